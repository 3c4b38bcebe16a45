"""derived, roles, symmetry, closure, printed, check,
kept=derivation_store, remedies.
"""
