"""comparison=curves, gaps=deviations, tables, timed=time_axes, times, emergence,
exponents.
"""
