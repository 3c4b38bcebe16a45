"""Symbols and exact algebra: notation, zero tests, contractions, special functions."""
