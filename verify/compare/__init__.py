"""Theory beside students: curves, deviations, times of events, tables, exponents."""
