"""The words of a statement, their syntax tree, and what a file states."""
