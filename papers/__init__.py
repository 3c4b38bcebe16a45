"""What the papers printed: figures, claims and write-ups, remade from theory and students."""
