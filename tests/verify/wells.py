"""Which well of its objective each sentence of a trained student lies in.

At a stationary point of the risk the fields of a sentence, ``z``, solve ``z = w - V
dl/dz`` with ``w`` what the other sentences make of it, and ``V = sigma^2 tr(H^-1)/d``
by the Hessian ``H`` of the risk. Both are measured on a student. Where the objective of
(w, V) has two wells, the paper's selection puts ``z`` into the deeper one, the local
selection into that of the mean field.
"""

from typing import Any

import numpy as np
import torch

from simulate.positional_semantic import student as task
from simulate.positional_semantic.learner import polish
from simulate.positional_semantic.student import Problem, initial_weights
from theory.positional_semantic import Parameters, prox
from theory.positional_semantic import state_evolution as stability
from theory.positional_semantic.model.parameters import DESCENT

# distance of two wells; they are about 1 apart, z is known to 1/sqrt(d) of that
APART = 0.05
STEPS, RATE = 600, 0.15  # descent before quasi-Newton steps


def trained(
    p: Parameters, seed: int, spread: float = 0.0
) -> tuple[Any, np.ndarray, np.ndarray, np.ndarray]:
    """Problem with Gram matrices at their limit, weights at a minimum and at the start,
    teacher.

    ``spread`` adds Gaussian weights of that size to the informed start: sentences then
    begin on either side of the origin.
    """
    DESCENT.require(p)
    teacher, data = task.sample(p, seed)
    problem = Problem([data.idealised(p.sigma)], p.lam)
    streams = task.streams(seed)
    Q = initial_weights(p, teacher, streams["initialisation"])["Q"]
    Q = Q + spread * streams["initialisation"].standard_normal(Q.shape)
    weights = {"Q": torch.as_tensor(Q)[None]}
    for _ in range(STEPS):
        weights = {"Q": weights["Q"] - RATE * problem.gradient(weights)[1]["Q"]}
    minimum = polish(problem, weights)
    return problem, minimum["Q"][0, :, 0].numpy(), Q[:, 0], teacher


def cavity(p: Parameters, problem: Any, Q: np.ndarray) -> dict[str, Any]:
    """Fields ``z``, mean fields ``w`` exerted by the other sentences, targets ``Y`` and
    response ``V`` of a student, the smallest eigenvalue of its Hessian and the replicon
    (`state_evolution.stability`).
    """
    rows = problem.tokens[0].numpy()  # (n, 2, d)
    z = (rows @ Q / np.sqrt(p.d)).T
    target = problem.target[0].numpy()
    Y = np.stack([target[:, 0, 1], target[:, 1, 0]])
    # At infinite V the objective is the loss of the sentence alone.
    _, g_1, g_2, a, b, c = prox.objective(z, z, Y, np.inf, p.sigma)
    X = rows / np.sqrt(p.d)
    H = p.lam * np.eye(p.d)
    for k, l, weight in ((0, 0, a), (0, 1, b), (1, 0, b), (1, 1, c)):
        H += (X[:, k] * weight[:, None]).T @ X[:, l]
    spectrum = np.linalg.eigvalsh(H)
    V = p.sigma**2 * float((1 / spectrum).mean())
    size = {"V": V, "H_2": float((spectrum**-2.0).mean()), "sigma": p.sigma}
    return {
        "z": z,
        "Y": Y,
        "V": V,
        "w": z + V * np.stack([g_1, g_2]),
        "least": float(spectrum[0]),
        "replicon": float(stability.stability()["R"].evaluate(size)),
    }


def occupation(
    p: Parameters, fields: dict[str, Any], side: np.ndarray
) -> tuple[int, int]:
    """Number of sentences with two wells of which the deeper one is not on a given
    side, and of those among them that lie in the well on that side.

    Parameters
    ----------
    p : Parameters
        Model.
    fields : dict
        Of `cavity`.
    side : ndarray, shape (2, n)
        Fields that say which side: the mean field for the local selection.
    """
    z, w, Y, V = (fields[name] for name in ("z", "w", "Y", "V"))
    z_0 = prox.target_solution(Y)
    toward = z_0 * np.where((z_0 * side).sum(0) < 0, -1.0, 1.0)
    here, f_here, _ = prox.descend(toward, w, Y, V, p.sigma)
    there, f_there, _ = prox.descend(-toward, w, Y, V, p.sigma)
    differ = (np.hypot(*(here - there)) > APART) & (f_there < f_here)
    kept = np.hypot(*(z - here)) < np.hypot(*(z - there))
    return int(differ.sum()), int((kept & differ).sum())


def mean_field(
    p: Parameters, problem: Any, Q: np.ndarray, teacher: np.ndarray
) -> np.ndarray:
    """Mean of the fields of each sentence given its teacher's: ``(m, -m)``, or ``theta
    h/rho``.
    """
    if p.start == "positional":
        return np.outer([1.0, -1.0], np.full(p.n, Q.mean()))
    h = (problem.tokens[0].numpy() @ teacher / np.sqrt(p.d)).T
    return (Q @ teacher) / p.d * h


def occupations(
    p: Parameters, seeds: Any, spread: float = 0.0
) -> dict[str, np.ndarray]:
    """By seed: sentences for which selections differ and how many follow the local one
    (``differ``, ``local``); of those whose start lies across the deeper well, how many
    stayed (``across``, ``stayed``); order parameters and loss per dimension.
    """
    rows = []
    for seed in seeds:
        problem, Q, begun, teacher = trained(p, seed, spread)
        fields = cavity(p, problem, Q)
        differ, local = occupation(p, fields, mean_field(p, problem, Q, teacher))
        start = (problem.tokens[0].numpy() @ begun / np.sqrt(p.d)).T
        across, stayed = occupation(p, fields, start)
        risk = float(problem.objective({"Q": torch.as_tensor(Q)[None, :, None]})[0])
        rows.append(
            {
                "differ": differ,
                "local": local,
                "across": across,
                "stayed": stayed,
                "m": abs(Q.mean()),
                "theta": p.sigma**2 * abs(Q @ teacher) / p.d,
                "loss": risk / p.d,
                "least": fields["least"],
                "replicon": fields["replicon"],
            }
        )
    return {name: np.array([r[name] for r in rows]) for name in rows[0]}
