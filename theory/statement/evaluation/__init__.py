"""world, frames, decisions, arrays, wick."""
