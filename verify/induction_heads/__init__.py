"""Checks of the induction-head model."""
