"""Checks of in-context Markov chains, in addition to those of every statement."""
