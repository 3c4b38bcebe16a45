"""Compiled loops of the theories of single students."""
