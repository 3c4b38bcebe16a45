"""Flows and their solutions: events, conserved quantities, optimisers, predictions."""
