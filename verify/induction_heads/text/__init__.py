"""Character models on real text: ensembles and their checks."""
