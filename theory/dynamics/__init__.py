"""flow, solution, trajectory, bulk, certified, conserved, special_times, optimisers,
clocks, prediction, catalogue.
"""
