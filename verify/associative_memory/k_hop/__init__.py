"""Checks of k hop."""
