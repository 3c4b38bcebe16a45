"""Numbers of a statement: its world of inputs, frames, decisions and arrays."""
