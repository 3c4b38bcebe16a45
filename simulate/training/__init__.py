"""training=plan, stack, pool, jobs, learner, optimisers, interface_checks,
gradient_flow, arguments, device, streams.
"""
