"""registry, plugins."""
