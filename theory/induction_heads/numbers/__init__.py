"""Numerical code of the induction-head theory. Formulas are compiled from the derived equations
where speed allows; array code written by hand is checked against the equations by `verify` and the
tests.
"""
