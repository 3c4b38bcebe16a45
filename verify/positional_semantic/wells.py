"""Which well of its objective each sentence of a trained student lies in.

At a stationary point of the risk the fields of a sentence, ``z``, solve ``z = w - V dl/dz`` with
``w`` what the other sentences make of it, and ``V = sigma^2 tr(H^-1)/d`` by the Hessian ``H`` of
the risk. Both are measured on a student. Where the objective of (w, V) has two wells, the paper's
selection puts ``z`` into the deeper one, the local selection into that of the mean field.

And which minimum full-batch descent reaches from random weights.
"""

import json
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import scipy.stats
import torch
import xarray as xr

from simulate import pool
from simulate import runs as store
from simulate.positional_semantic import student as task
from simulate.positional_semantic.learner import Learner, descended
from simulate.positional_semantic.student import Problem, initial_weights
from theory.positional_semantic import Parameters, online, prox
from theory.positional_semantic import state_evolution as stability
from theory.positional_semantic.parameters import DESCENT
from verify.admission import admitted
from verify.positional_semantic.extensions import ADAM, BASE, SAME

# Which minimum full-batch descent reaches from random weights, compared with the population's
# flow
#
# Students of one seed share their sentences: two from random weights (descent, Adam) and one from
# each informed start. A random student ends in a minimum if its training loss is that of the
# informed student there (App. E.4; `extensions.ends`), else in neither.

PLACE = Path(__file__).with_name("ensembles") / "random_starts.nc"
COMMAND = 'python -c "from verify.positional_semantic import wells as w; w.renew()"'
SEEDS = range(7000, 7048)  # a share has a standard error of at most 0.072
OMEGAS = (0.1, 0.3, 0.5)
ALPHAS = (0.5, 2.0, 8.0)
SIZES = (100, 200)
BRANCHES = ("semantic", "positional")
ENDS = (*BRANCHES, "neither")
OPTIMISERS = ("descent", "Adam")
RANDOM = BASE.replace(start="random", steps=600)
STUDENTS = {"descent": RANDOM, "Adam": ADAM.replace(alpha=None)} | {
    name: BASE.replace(start=name) for name in BRANCHES
}
SCALE = 0.1  # of random initial weights, entry by entry
KEPT = ("q", "m", "theta", "train_loss", "gradient")
CACHED = 2**18  # numbers of the sentences of one stack: they stay in a processor's cache
SETTLED = 1e-5  # largest gradient of a minimum, per sqrt(d)


def train(p: Parameters, seeds: Sequence[int]) -> xr.Dataset:
    """Students of one kind, sample complexity and size, in stacks."""
    size = max(1, CACHED // (2 * p.n * p.d))
    device = torch.device("cpu")
    rows = []
    with pool.one_thread():
        for k in range(0, len(seeds), size):
            learner = Learner(p, seeds[k : k + size], device, torch.float32)
            for number in range(p.steps):
                learner.step(number)
            rows += [learner.finish(b) for b in range(len(learner.seeds))]
    variables = {name: ("seed", [float(r[name][1]) for r in rows]) for name in KEPT}
    return xr.Dataset(variables, {"seed": [*seeds]})


def ensemble(
    seeds: Iterable[int] = SEEDS,
    omegas: Iterable[float] = OMEGAS,
    alphas: Iterable[float] = ALPHAS,
    sizes: Iterable[int] = SIZES,
) -> xr.Dataset:
    """All students, over ``(student, d, omega, alpha, seed)``."""
    places: dict[str, list[Any]] = {"d": [*sizes], "omega": [*omegas], "alpha": [*alphas]}
    cells = [
        train(of.replace(d=d, omega=omega, alpha=alpha), [*seeds]).assign_coords(
            student=name, d=d, omega=omega, alpha=alpha
        )
        for name, of in STUDENTS.items()
        for d in places["d"]
        for omega in places["omega"]
        for alpha in places["alpha"]
    ]
    rows = [c.expand_dims(["student", *places]) for c in cells]
    whole = xr.merge([xr.combine_by_coords(rows, combine_attrs="drop")])
    return whole.sel(student=[*STUDENTS])


def renew() -> None:
    """Train the shipped ensemble again."""
    runs = ensemble().astype(np.float32)
    told = json.dumps({name: p.stored() for name, p in STUDENTS.items()})
    runs.attrs = {"kind": store.KIND, "parameters": told, "command": COMMAND}
    PLACE.parent.mkdir(exist_ok=True)
    store.write(runs, PLACE)


def shipped() -> xr.Dataset:
    """The ensemble that comes with the code."""
    return admitted(PLACE, store.read(PLACE))


def ends(runs: xr.Dataset) -> xr.DataArray:
    """Whether students from random weights end in either minimum, or in neither, over ``(end,
    student, ...)``: one or zero.

    Where both informed starts lead to one minimum, it is named by the larger of the cosines with
    the teacher and with the positions.
    """
    loss = runs.train_loss
    of_semantic, of_positional = (loss.sel(student=name, drop=True) for name in BRANCHES)
    random = runs.sel(student=[*OPTIMISERS])
    there = [np.abs(random.train_loss / of - 1) < SAME for of in (of_semantic, of_positional)]
    teacher = random.theta / BASE.sigma > BASE.sigma * random.m  # cosines times sqrt(q)
    one = np.abs(of_semantic / of_positional - 1) < SAME
    semantic, positional = (
        (of & ~one) | (of & one & kind) for of, kind in zip(there, (teacher, ~teacher), strict=True)
    )
    ends = xr.concat([semantic, positional & ~semantic, ~(semantic | positional)], "end")
    return ends.assign_coords(end=[*ENDS]).astype(float)


def settled(runs: xr.Dataset) -> xr.DataArray:
    """Share of students whose gradient vanishes, by kind."""
    return (runs.gradient < SETTLED).mean([x for x in runs.gradient.dims if x != "student"])


def interval(count: int, n: int) -> tuple[float, float]:
    """95% interval of a share (Clopper and Pearson)."""
    between = scipy.stats.binomtest(count, n).proportion_ci()
    return float(between.low), float(between.high)


def flow(omega: float, alpha: float, d: int) -> online.Parameters:
    """Population's gradient from random weights, with the decay that the ridge is for a full
    batch, ``lambda / alpha``.
    """
    return online.Parameters(
        omega=omega,
        sigma=BASE.sigma,
        target=BASE.target,
        scale=SCALE,
        decay=BASE.lam / alpha,
        d=d,
        batch=None,
    )


def predicted(omega: float, alpha: float, d: int) -> dict[str, Any]:
    """Shares of the ends by the population's flow."""
    return online.shares(flow(omega, alpha, d))


APART = 0.05  # distance of two wells; they are about 1 apart, z is known to 1/sqrt(d) of that
STEPS, RATE = 600, 0.15  # descent before quasi-Newton steps


def trained(
    p: Parameters, seed: int, spread: float = 0.0
) -> tuple[Any, np.ndarray, np.ndarray, np.ndarray]:
    """Problem with Gram matrices at their limit, weights at a minimum and at the start, teacher.

    ``spread`` adds Gaussian weights of that size to the informed start: sentences then begin on
    either side of the origin.
    """
    DESCENT.require(p)
    teacher, data = task.sample(p, seed)
    problem = Problem([data.idealised(p.sigma)], p.lam)
    streams = task.streams(seed)
    Q = initial_weights(p, teacher, streams["initialisation"])["Q"]
    Q = Q + spread * streams["initialisation"].standard_normal(Q.shape)
    minimum = descended(problem, {"Q": torch.as_tensor(Q)[None]}, STEPS, RATE)
    return problem, minimum["Q"][0, :, 0].numpy(), Q[:, 0], teacher


def cavity(p: Parameters, problem: Any, Q: np.ndarray) -> dict[str, Any]:
    """Fields ``z``, mean fields ``w`` exerted by the other sentences, targets ``Y`` and response
    ``V`` of a student, the smallest eigenvalue of its Hessian and the replicon
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


def occupation(p: Parameters, fields: dict[str, Any], side: np.ndarray) -> tuple[int, int]:
    """Number of sentences with two wells of which the deeper one is not on a given side, and of
    those among them that lie in the well on that side.

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


def mean_field(p: Parameters, problem: Any, Q: np.ndarray, teacher: np.ndarray) -> np.ndarray:
    """Mean of the fields of each sentence given its teacher's: ``(m, -m)``, or ``theta h/rho``."""
    if p.start == "positional":
        return np.outer([1.0, -1.0], np.full(p.n, Q.mean()))
    h = (problem.tokens[0].numpy() @ teacher / np.sqrt(p.d)).T
    return (Q @ teacher) / p.d * h


def occupations(p: Parameters, seeds: Any, spread: float = 0.0) -> dict[str, np.ndarray]:
    """By seed: sentences for which selections differ and how many follow the local one
    (``differ``, ``local``); of those whose start lies across the deeper well, how many stayed
    (``across``, ``stayed``); order parameters and loss per dimension.
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
