"""Everything that is measured of the students on a device: ``python -m verify.device``."""
