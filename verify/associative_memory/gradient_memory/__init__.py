"""Checks of gradients as memories."""
