"""symbols, parameters, scope, task, groups, definitions, mean_field."""
