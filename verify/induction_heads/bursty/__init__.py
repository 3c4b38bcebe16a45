"""Checks of induction heads on a burst of right pairs, in addition to those of every statement."""
