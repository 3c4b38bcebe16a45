"""Theories of single students: `levels` by name and `predict`; `cavity` (with
`dressed`, `accuracy_kernels`), `fixed_disorder` (with `fixed_disorder_kernels`,
`optimised_disorder`), `integrate`, `realisation`, `per_seed`.
"""
