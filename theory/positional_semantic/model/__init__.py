"""symbols, parameters, definitions."""
