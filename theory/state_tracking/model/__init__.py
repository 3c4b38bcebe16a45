"""The model of state tracking: symbols, parameters, task and mean logits."""
