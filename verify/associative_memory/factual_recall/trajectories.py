"""Curves of factual recall: full-batch descent (the Euler map of the flow) against students trained
on batches, to 1% of the range of each curve.
"""

from theory.associative_memory.factual_recall import flow, predict
from verify import curves
from verify.check import Band

BATCHES = "gradient noise of batches of about a thousand sequences, the same sign in all seeds"
RELATION, SUBJECT = ("relation", "C0"), ("subject", "C1")
PANELS = {
    "cross-entropy [nats]": {
        "loss": ("loss", "C2"),
        "loss_relation": RELATION,
        "loss_subject": SUBJECT,
    },
    "attention weight": {"w_r": RELATION, "w_s": SUBJECT},
    "value gain": {"delta_r": RELATION, "delta_s": SUBJECT},
}
report = curves.trajectories(predict, flow, PANELS, Band(-0.01, 0.01, BATCHES))
