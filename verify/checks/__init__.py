"""check, check_table, verdict, report, command, stored=report_store, digests,
measured=shipped_numbers, admission, ensemble=ensemble_source.
"""
