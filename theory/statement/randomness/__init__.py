"""batches=minibatches, fluctuations, recursion, passage, rare=rare_starts,
starts=random_starts.
"""
