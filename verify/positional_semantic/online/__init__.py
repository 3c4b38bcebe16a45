"""One-pass descent of the positional-semantic layer: theory against students."""
