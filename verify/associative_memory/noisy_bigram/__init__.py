"""Checks of noisy bigram."""
