"""Students of the associative-memory systems; each subpackage is one system."""
