"""tree, language, stated."""
