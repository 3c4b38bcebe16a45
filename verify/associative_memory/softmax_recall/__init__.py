"""Checks of factual recall by softmax attention, beside those of every statement."""
