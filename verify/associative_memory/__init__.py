"""Checks of the associative-memory systems."""
