"""Drawn starts and batches: recursions, fluctuations, passage times, rare starts."""
