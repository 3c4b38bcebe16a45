"""Checks of in-context against in-weights learning, in addition to those of every statement."""
