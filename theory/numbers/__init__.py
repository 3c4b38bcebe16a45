"""numeric, lowered, compiled, balls, streams."""
