"""From a statement to its flow: classes, symmetry, closure, printed forms, checks."""
