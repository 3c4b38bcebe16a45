"""Checks of retrieval, in addition to those of every statement."""
