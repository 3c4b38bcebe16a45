"""Checks of gradient steps."""
