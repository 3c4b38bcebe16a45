"""From expressions to numbers: compiled functions, certified balls, drawn streams."""
