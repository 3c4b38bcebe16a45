"""Numerical dressed theory: mean-field logits with variance, from a seed's initial weights."""

import numpy as np

from theory.special import gaussian_accuracy
from theory.state_tracking.numbers.per_seed.attention import Attention
from theory.state_tracking.numbers.per_seed.observables import forces, forms, summary
from theory.state_tracking.numbers.per_seed.start import Start
from theory.state_tracking.parameters import Parameters


class Dressed:
    """Dressed theory. State per seed: W_Q, W_K, R, S and V_M.

    Parameters
    ----------
    p : Parameters
        Sizes and learning rate.
    start : Start
        Initial values of the seeds.
    pull : ndarray, shape (B, L, L), optional
        Constant force on the attention entries of every position: the deviation of one training set
        from the mean.
    """

    BY_SEED = ("pull", "zeta")

    def __init__(self, p: Parameters, start: Start, pull: np.ndarray | float = 0.0) -> None:
        self.p, self.attention = p, Attention(p)
        self.pull = pull + np.zeros((len(start.R), 1, 1))
        pooled = (start.variance_right + (p.N - 1) * start.variance_wrong) / p.N
        self.state = [
            x.astype(float).copy() for x in (start.W_Q, start.W_K, start.R, start.S, pooled)
        ]
        self.zeta = start.zeta[:, None]

    def _means(self) -> tuple[np.ndarray, ...]:
        """Attention, its diagonal, logit variance per variance of M, correct logit and margin, per
        seed and position.
        """
        W_Q, W_K, R, S, _ = self.state
        attention = self.attention.forward(W_Q, W_K)
        on_right = np.einsum("bii->bi", attention)
        correct = forms()["logit"](on_right, R[:, None], S[:, None], self.p.d_g)
        spread = forms()["spread"]((attention**2).sum(2), self.p.d_g)
        return attention, on_right, spread, correct, forms()["margin"](correct, self.zeta, self.p.N)

    def rates(self) -> list[np.ndarray]:
        """Change of the state per epoch."""
        p, f = self.p, forms()
        W_Q, W_K, R, S, V = self.state
        attention, on_right, spread, _, margin = self._means()
        wrong = f["g"](margin, p.N)
        force, on = forces(p, attention, wrong, V, R, S)
        d_q, d_k = self.attention.backward(
            W_Q, W_K, attention, (force + self.pull + on[..., None] * np.eye(p.L)) / p.L
        )
        q = f["curvature"](wrong, p.N)
        by_alpha = [
            p.eta * (wrong * f["weight"](on_right, p.d_g)).mean(1),
            p.eta * (wrong * (1 - on_right)).mean(1) / p.d_g,
            -2 * p.eta * (q * spread).mean(1) * V,
        ]
        return [-p.eta * d_q, -p.eta * d_k, *(x / (p.d_g * p.N) for x in by_alpha)]

    def observe(self) -> dict[str, np.ndarray]:
        """Order parameters, logits, loss and accuracies per seed."""
        p, f = self.p, forms()
        _, _, R, S, V = self.state
        _, on_right, spread, correct, margin = self._means()
        noise = spread * V[:, None]
        other = f["other"](correct, self.zeta, p.N)
        cost = f["cost"](f["g"](margin, p.N), p.N)
        steps = gaussian_accuracy(margin, np.sqrt(noise), np.sqrt(noise), p.N)
        return summary(
            p,
            own=on_right,
            R=R,
            S=S,
            right=correct,
            right_variance=noise,
            other=other,
            other_variance=noise,
            loss_=f["loss"](margin, p.N) + noise * cost / 2,
            steps=steps,
        )
