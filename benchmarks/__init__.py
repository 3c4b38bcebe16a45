"""Benchmarks: ratios to a named baseline, in CPU time of the same run. None of it is
asserted by a test.

Run all by ``make benchmarks``, or one by ``python -m benchmarks.steps``.
"""
