"""Training of all weights: the gradient flow in closed form, its emergence times, and
their asymptotic law (beyond Theorem 2).
"""
