"""Checks of the state-tracking model."""
