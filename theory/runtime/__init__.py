"""Services of commands: flags, progress, files, tables, figures, memory, digests. Derivations,
equations and flows do not import it.
"""
