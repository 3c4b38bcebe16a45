"""Equations with name, place in the paper and status; their printed forms."""
