"""Checks of in-context against in-weights learning, beside those of every statement."""
