"""equation, printing, renaming, titles, digits."""
