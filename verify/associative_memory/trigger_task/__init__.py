"""Checks of trigger task."""
