"""Checks and their verdicts, reports and their store, ensembles and their admission."""
