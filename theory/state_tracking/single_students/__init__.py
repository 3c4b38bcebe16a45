"""Single students of state tracking: curves from their own start and training set."""
