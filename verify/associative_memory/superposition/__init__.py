"""Checks of superposition."""
