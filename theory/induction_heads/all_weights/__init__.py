"""Every weight moves: the flow of all weights in closed form, its emergence times, and their law
(beyond Theorem 2).
"""
