"""A call of the theory: parameters, values, arguments, sweeps, and a theory's scope."""
