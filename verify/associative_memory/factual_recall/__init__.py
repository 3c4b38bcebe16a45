"""Checks of factual recall."""
