"""Checks of retrieval, beside those of every statement."""
