"""values, parameters, arguments, sweep, scope."""
