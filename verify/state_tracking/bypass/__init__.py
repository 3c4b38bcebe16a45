"""Checks of state tracking with a bypass, in addition to those of every statement."""
