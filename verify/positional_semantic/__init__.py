"""Checks of the positional-semantic model."""
