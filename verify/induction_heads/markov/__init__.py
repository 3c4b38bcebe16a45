"""Checks of in-context Markov chains, beside those of every statement."""
