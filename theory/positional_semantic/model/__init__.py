"""The model of positional and semantic attention: symbols, parameters, task."""
