"""Services of commands (flags, files, progress, memory, digests); no derivation imports it."""

from typing import TYPE_CHECKING

from theory.renamed import renamed

if not TYPE_CHECKING:  # checkers would take every name for one of the package
    __getattr__ = renamed(__name__, {"compiled": "theory.compiled"})
