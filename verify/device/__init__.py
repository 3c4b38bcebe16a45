"""Checks and benchmarks of the students on a device: ``python -m verify.device``."""
