"""Checks that every statement gets without writing one."""
