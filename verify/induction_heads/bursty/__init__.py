"""Checks of induction heads on a burst of right pairs, beside those of every statement."""
