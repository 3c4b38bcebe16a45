"""A derivation against autograd of the student that the same statement makes, at tiny
sizes; and classes of entries found from gradients alone: one class per weight, split
until stable.

For a given teacher that partition is exact, whatever the statement's symmetry: with it
descent of all weights is descent of as many numbers.
"""

import functools
import itertools
import types
from collections.abc import Iterator, Mapping

import numpy as np
import torch

from simulate.statement import Student
from simulate.statement import data as law
from simulate.training.learner import Descent
from simulate.training.pool import one_thread
from simulate.training.streams import keyed
from theory.statement import model
from theory.statement.derivation import check
from theory.statement.derivation.derived import Derived
from theory.statement.evaluation import arrays
from theory.statement.evaluation.arrays import Data, lifted
from theory.statement.words.stated import Statement
from theory.statement.words.tree import Weight, require
from verify.checks.check import Band, Check, identity, listed, sampled, vanishing
from verify.checks.report import Report, Request

SIZES = 3  # at which everything is compared
STEPS, ETA = 5, 0.3  # of descent
BATCHES, INPUTS, GAUSSIAN = 40, 500, 3000  # drawn: mean losses to a percent
SPREAD = 0.3  # of weights there: large ones make a loss that few inputs dominate
ROUNDING = 1e-10
WHY = "sums over at most 50,000 inputs in float64"


@listed
def at(made: Derived, data: arrays.Data, seed: int = 0) -> Iterator[Check]:
    """Everything at one size, for one table of every teacher.

    Parameters
    ----------
    made : Derived
    data : Data
        All inputs.
    seed : int
        Of the values of classes.
    """
    student = Student(made.statement)
    told = check.predicted(made, data, seed)
    taken = student.taken(data)
    where = "".join(f", {k} = {v:.3g}" for k, v in data.numbers.items())
    weights = {w: torch.tensor(x) for w, x in told.weights.items()}
    loss, slopes = student.gradients(weights, taken)
    begun = {w: np.minimum(x, 0) for w, x in told.members.items()}
    split = pieces(told.members, refine(student, taken, begun, seed))
    yield identity(f"loss{where}", "loss", told.loss, float(loss), ROUNDING, WHY)
    scale = largest(student, taken, seed)
    for w, slope in slopes.items():
        of_weight = [c.weight is w for c in made.classes]
        sizes, counted = (
            np.append(x[of_weight], 0) for x in (told.sizes, told.counted)
        )
        entries = f"entries of {w}{where}"
        yield identity(entries, "classes", sizes, counted, 0, "counted")
        gap = np.abs(told.gradients[w] - slope.numpy())
        yield vanishing(
            f"gradient of {w}{where}",
            "loss",
            float(gap.max()) / scale,
            ROUNDING,
            f"over the largest at random weights; {WHY}",
        )
        many = len(np.unique(told.members[w]))
        by, why = f"classes of {w} by refinement{where}", "gradients split none of them"
        yield identity(by, "classes", many, split[w], 0, why)
    yield descent(made, data, told, where)
    yield from drawn(student, data, where, seed)


def descent(
    made: Derived, data: arrays.Data, begun: check.Predicted, where: str
) -> Check:
    """Some steps of all weights by autograd against as
    many steps of the derived rates.
    """
    student, predicted = Student(made.statement), begun
    weights = {w: torch.tensor(x) for w, x in begun.weights.items()}
    steps = Descent(weights.values(), ETA)
    taken = student.taken(data)
    for _ in range(STEPS):
        for w, slope in student.gradients(weights, taken)[1].items():
            weights[w].grad = slope
        steps.step()
        slopes = predicted.slopes
        values = {x: v - ETA * slopes[x] for x, v in predicted.values.items()}
        predicted = check.predicted(made, data, values=values)
    derived = np.concatenate([np.ravel(x) for x in predicted.weights.values()])
    trained = np.concatenate([np.ravel(x) for x in weights.values()])
    what = f"all weights after {STEPS} steps{where}"
    return identity(what, "rates", derived, trained, ROUNDING, WHY)


def drawn(student: Student, data: arrays.Data, where: str, seed: int) -> list[Check]:
    """Loss of drawn inputs against that of all inputs,
    at random values of all weights.
    """
    stated, rng = student.stated, keyed(seed, 0)
    if any(
        not f.kept and not f.leading and len(f.injective) > 1 for f in stated.functions
    ):
        return []  # not drawn
    shapes = {w: data.shape(w.sorts) for w in stated.weights}
    weights = {w: torch.tensor(SPREAD * rng.normal(size=n)) for w, n in shapes.items()}
    count = GAUSSIAN if stated.gausses else INPUTS
    batches = (
        law.inputs(stated, data.numbers, data.tables, count, rng)
        for _ in range(BATCHES)
    )
    losses = [student.each(weights, student.taken(batch)) for batch in batches]
    exact = float(student.mean(weights, student.taken(data)))
    share, band = law.coinciding(stated, data), None
    if share:
        low = min(float(x.min()) for x in losses) / abs(exact)
        high = max(float(x.max()) for x in losses) / abs(exact)
        why = (
            f"values that coincide, in {share:.0%} of inputs, bounded by all losses; no"
            " order: sizes are small"
        )
        band = Band(share * (low - high), share * (high - low), why)
    means = [float(x.mean()) for x in losses]
    return [sampled(f"loss of drawn inputs{where}", "loss", exact, means, band=band)]


def checks(made: Derived, sizes: int = SIZES) -> list[Check]:
    """Everything at a few tiny sizes.

    Raises
    ------
    ParameterError
        For a closure, whose gradients are no gradients of any one student.
    """
    none = "a closure over teachers has no gradients of one student"
    require(not made.shared, f"statement {made.statement.name}: {none}")
    made = check.written(made)
    rows: list[Check] = []
    with one_thread():
        for data in itertools.islice(check.listed(made), sizes):
            rows += at(made, data)
    return rows


@functools.cache
def of(stated: Statement) -> types.SimpleNamespace:
    """The ``report`` of a statement, for ``verify.gradients``."""

    def report(request: Request) -> Report:
        """All checks."""
        return Report(checks(model.theory_of(stated).derived()))

    return types.SimpleNamespace(report=report)


# of the largest gradient: rounding of sums over at most 50,000 inputs, with a margin
APART = 1e-9
ROUNDS = 50  # each splits a class at least, or is the last

Classes = dict[Weight, np.ndarray]


def refine(
    student: Student, data: Data, begun: Mapping[Weight, np.ndarray], seed: int
) -> Classes:
    """Split classes by gradients at random values until none is split any more.

    Parameters
    ----------
    student : Student
    data : Data
        All inputs, as `Student.taken` makes them.
    begun : mapping of Weight to array
        Number of every entry's class to begin with; -1 for one that is zero.
    seed : int
        Of the values.

    Returns
    -------
    dict of Weight to array
        Numbers of classes, -1 for entries that stay zero.
    """
    rng, classes = np.random.default_rng(seed), dict(begun)
    apart = APART * largest(student, data, seed)
    for _ in range(ROUNDS):
        weights = {
            w: torch.tensor(
                lifted(numbers, rng.normal(size=numbers.max(initial=-1) + 1))
            )
            for w, numbers in classes.items()
        }
        slopes = {w: s.numpy() for w, s in student.gradients(weights, data)[1].items()}
        refined = {w: _split(classes[w], s, apart) for w, s in slopes.items()}
        if all((refined[w].max() == classes[w].max()) for w in refined):
            return refined
        classes = refined
    return classes


def largest(student: Student, data: Data, seed: int) -> float:
    """Size of gradients, also where equal entries have none: at random values of all
    entries.
    """
    rng = np.random.default_rng(seed)
    of = student.stated.weights
    weights = {w: torch.tensor(rng.normal(size=data.shape(w.sorts))) for w in of}
    sizes = student.gradients(weights, data)[1].values()
    return max(float(s.abs().max()) for s in sizes) or 1.0


def _split(own: np.ndarray, slope: np.ndarray, apart: float) -> np.ndarray:
    """Classes whose entries have the same gradient."""
    numbers, count = np.full(own.shape, -1), 0
    for k in range(-1, own.max(initial=-1) + 1):
        members = (own == k) & (
            (k >= 0) | (np.abs(slope) > apart)
        )  # zero entries that nothing moves stay
        order = np.sort(slope[members])
        steps = np.flatnonzero(np.diff(order) > apart)
        numbers[members] = count + np.searchsorted(
            order[steps] + apart / 2, slope[members]
        )
        count += len(steps) + bool(members.any())
    return numbers


def pieces(classes: Classes, finer: Classes) -> dict[Weight, int]:
    """Into how many pieces classes are split by others."""
    return {
        w: len(np.unique(np.stack([numbers.ravel(), finer[w].ravel()], 1), axis=0))
        for w, numbers in classes.items()
    }
