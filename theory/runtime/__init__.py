"""Services of commands (flags, files, progress, memory, digests); no derivation imports
it.
"""
