"""dressed, cavity, fixed_disorder, kernels=fixed_disorder_kernels, accuracy_kernels,
integrate, levels, per_seed, predict, realisation, trained=optimised_disorder.
"""
