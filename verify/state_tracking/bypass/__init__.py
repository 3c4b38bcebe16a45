"""Checks of state tracking with a bypass, beside those of every statement."""
