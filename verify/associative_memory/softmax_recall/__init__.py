"""Checks of factual recall by softmax attention, in addition to those of every statement."""
