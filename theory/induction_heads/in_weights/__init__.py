"""In-context against in-weights learning (Musat et al., Sec. 8; Nguyen and Reddy,
arXiv:2412.00104): which of the two solves the task first, and how weight decay removes it again;
derived from a statement.
"""

from functools import cache
from typing import Any

import numpy as np
from scipy.integrate import quad
from scipy.optimize import brentq, minimize_scalar

from theory import Equation, Limit, Scope, gauss_legendre, numeric, only, scope
from theory.induction_heads.in_weights import emergence, transience
from theory.induction_heads.in_weights.emergence import (
    SIZES,
    B,
    C,
    L,
    R,
    beta,
    c_0,
    decay,
    known,
    n,
    q,
    stated,
    tau,
    w,
)
from theory.statement.model import package_theory

__all__ = [
    "Parameters",
    "applies",
    "critical_items",
    "derived",
    "emergence_time",
    "emergence_times",
    "equations",
    "flow",
    "flows",
    "head_share",
    "lost_below",
    "lost_time",
    "onset",
    "predict",
    "sections",
    "solved_time",
    "stated",
]


# Times of head and memory, which comes first, and the effect of weight decay, as numbers

NODES = 60  # of integrals over the root of the score, which are analytic
WIDEST = 20.0  # logit of the memory up to which the head is waited for: e^20 times its clock
FIRM = 4.0  # clock that the memory takes until the head is lost, over that of the head
FAST = 0.12  # rate of the memory over the head's weight decay, where the head is about to be lost
FAINT = 1e-100  # least read-out or decay of the memory: its square is still a number
WEAK = 0.06  # weight decay of the head over that at which it does not begin


@cache
def race_equations() -> dict[str, Equation]:
    """Equations of emergence and transience, which the numbers below evaluate."""
    return emergence.equations() | transience.equations()


@cache
def compiled() -> dict[str, Any]:
    """Array functions for the paths of head and memory."""
    attention = emergence.attention()
    given = {
        "read_out": (emergence.law() ** (1 / 2), (beta, n)),
        "attention": (attention, (beta, n)),
        "speed": (emergence.speed().subs(w, emergence.law() ** (1 / 2)), (beta, n)),
        "remembered": (emergence.remembered(), (tau, q, c_0)),
        "memory": (emergence.memory(), (known, q, c_0)),
        "still": (transience.still()[0].subs(emergence.a, attention), (beta, n)),
        "kept": (transience.kept().subs(emergence.a, attention), (beta, n, decay)),
    }
    return {k: numeric.function(x, symbols) for k, (x, symbols) in given.items()}


@cache
def from_sizes() -> dict[str, Any]:
    """Functions of the sizes."""
    return {s.name: numeric.function(x, (L, C, R, B)) for s, x in SIZES.items()}


def sized(p: Any) -> dict[str, float]:
    """The parameters, and the numbers that follow from the sizes."""
    return p.as_dict() | {k: float(of(p.L, p.C, p.R, p.B)) for k, of in from_sizes().items()}


def value(name: str, p: Any, **more: float) -> float:
    """Right-hand side of an equation."""
    return race_equations()[name].number({**sized(p), **more})


def clock(p: Any, root: Any) -> Any:
    """Clock at which the root of the score is ``root``."""
    unit, weights = gauss_legendre(NODES)
    x = np.multiply.outer(root, unit)
    return root * (2 * x / compiled()["speed"](x**2, sized(p)[n.name]) @ weights)


def memory(p: Any, at: Any) -> Any:
    """Logit of the memory at a clock."""
    return compiled()["remembered"](at, sized(p)[q.name], p.c_0)


def head(p: Any, root: Any) -> Any:
    """Logit of the head at a root of the score."""
    of, ratio = compiled(), sized(p)[n.name]
    return of["read_out"](root**2, ratio) * of["attention"](root**2, ratio)


def end(p: Any) -> float:
    """Root of the score at attention 1/2."""
    return float(np.sqrt(np.log(sized(p)[n.name])))


def seconds(p: Any, root: float) -> float:
    """Time at which the root of the score is ``root``."""
    x, weights = gauss_legendre(NODES, 0, root)
    logit = head(p, x) + memory(p, clock(p, x))
    slow = 1 + np.exp(logit) / (p.L - 1)  # one over the residual
    return float((2 * weights * x * slow / compiled()["speed"](x**2, sized(p)[n.name])).sum())


def reached(p: Any, logit: float, share: float = 1.0) -> float:
    """Root of the score where the head's logit and ``share`` of the memory's make a logit."""

    def missing(log: float) -> float:
        root = np.exp(log)
        known = share * memory(p, clock(p, root)) if share else 0.0  # infinite, late
        return float(head(p, root) + known - logit)

    # The clock is about n times the root, at first.
    ends = 1e-9 / sized(p)[n.name], np.sqrt(end(p) ** 2 + 2 * logit + 2)
    return float(np.exp(brentq(missing, *np.log(ends), xtol=1e-13)))


def halved(p: Any) -> float:
    """Root of the score when the residual is half its start."""
    return reached(p, value("iw_half", p))


def least(p: Any) -> float:
    """Smallest residual at which the head survives, exactly: beyond attention 1/2."""
    ratio, middle = sized(p)[n.name], end(p) ** 2
    of = minimize_scalar(
        lambda x: compiled()["kept"](x, ratio, 1.0),
        bounds=(middle - 1, middle + 4),
        method="bounded",
    )
    return p.head_decay * float(of.fun)


def followed(p: Any) -> tuple[float, float]:
    """Logit of the memory when attention first is 1/2, and when it falls back."""
    return float(memory(p, clock(p, end(p)))), value("iw_left", p)


def slow(p: Any) -> bool:
    """Whether the memory takes long until the head is lost, and the head can follow it."""
    takes = compiled()["memory"](followed(p)[1], sized(p)[q.name], p.c_0) / clock(p, end(p))
    return bool(takes >= FIRM and sized(p)[q.name] * least(p) <= FAST * p.head_decay)


LONG = Limit(
    "R",
    "such that there are at least 4 other pairs for every copy, L R/B",
    lambda p, runs: p.L * p.R >= 4 * p.B,
    reads=("L", "B"),
)
LABELS = Limit("L", "at least 2", lambda p, runs: p.L >= 2)


def given(p: Any) -> bool:
    """Whether sizes are allowed."""
    return all(limit.holds(p, None) for limit in (LABELS, LONG))


PATIENT = Limit(
    "C",
    f"so many that the memory's logit is at most {WIDEST:g} when attention is 1/2",
    lambda p, runs: not given(p) or memory(p, clock(p, end(p))) <= WIDEST,
    reads=("L", "R", "B", "c_0"),
)
STARTED = Limit("c_0", f"at least {FAINT:g}", lambda p, runs: p.c_0 >= FAINT)
DECAYS = Limit(
    "head_decay",
    f"above 0, and at most {WEAK:g} of that at which the head does not begin",
    lambda p, runs: not given(p) or 0 < p.head_decay <= WEAK * value("iw_decay_largest", p),
    reads=("L", "R", "B"),
    values=(1e-3, 1e-4),
)
SLOW = Limit(
    "C",
    f"so many that the memory takes {FIRM:g} times the head's clock, and grows at {FAST:g} of its decay",
    lambda p, runs: not (given(p) and DECAYS.holds(p, None) and STARTED.holds(p, None)) or slow(p),
    reads=("L", "R", "B", "c_0", "head_decay"),
    values=(10**4, 10**6),
)
STUDENTS = "gradient descent in small steps, score and memory from zero"
FREE = ("eta", "steps", "eval_every", "batch_size")
PLAIN = (LABELS, LONG, only("head_decay", 0.0), only("fading", 0.0))
HEAD = Scope("iw_head_time", STUDENTS, (*PLAIN, PATIENT), free=FREE)
RACE = Scope("iw_half", STUDENTS, PLAIN, free=(*FREE, "C", "c_0"))
ITEMS = Scope("iw_items_many", STUDENTS, (*PLAIN, STARTED), free=(*FREE, "C"))
LOST = Scope(
    "iw_lost", STUDENTS, (LABELS, LONG, STARTED, only("fading", 0.0), DECAYS, SLOW), free=FREE
)
FADES = Limit("fading", f"at least {FAINT:g}", lambda p, runs: p.fading >= FAINT, values=(0.01,))
EXCLUSION = Scope(
    "iw_items_lost", STUDENTS, (LABELS, LONG, STARTED, DECAYS, FADES), free=(*FREE, "C")
)
applies = scope.applies(
    {"head": HEAD, "race": RACE, "items": ITEMS, "lost": LOST, "exclusion": EXCLUSION}
)


@scope.pointwise(HEAD)
def emergence_time(p: Any) -> float:
    """Time at which attention is 1/2: one over the residual, integrated over the head's clock.

    In time of the flow, at any learning rate; `emergence_times` refuses those with few steps.
    """
    return seconds(p, end(p))


@scope.pointwise(RACE)
def solved_time(p: Any) -> float:
    """Time at which the residual is half of its initial value, by head or memory."""
    return seconds(p, halved(p))


@scope.pointwise(RACE)
def head_share(p: Any) -> float:
    """Share of the head in the logit at that time."""
    return float(head(p, halved(p))) / value("iw_half", p)


@scope.pointwise(ITEMS)
def critical_items(p: Any) -> float:
    """Items of the pool at which this share is 1/2: with fewer the memory wins."""
    part = value("iw_half", p) / 2
    needed = clock(p, reached(p, part, share=0.0))
    root = brentq(
        lambda x: compiled()["memory"](part, np.exp(-x), p.c_0) - needed,
        -30.0,
        np.log(2 * needed) + 30.0,
        xtol=1e-13,
    )
    return sized(p)["kappa_labels"] * float(np.exp(2 * root))


@scope.pointwise(LOST)
def lost_time(p: Any) -> float:
    """Time at which attention falls below 1/2 again under weight decay, by `iw_lost`."""
    begun, left = followed(p)
    of, size = compiled(), sized(p)
    ratio, rate = size[n.name], size[q.name]

    def logit(score: float) -> float:
        of_head = np.sqrt(of["still"](score, ratio)) * of["attention"](score, ratio)
        return float(np.log((p.L - 1) * (1 / of["kept"](score, ratio, p.head_decay) - 1)) - of_head)

    def wait(phi: float) -> float:
        score = brentq(lambda x: logit(x) - phi, end(p) ** 2 - 1e-9, top)
        speed = np.sqrt((p.c_0**2 * rate**2) ** 2 + (2 * rate * phi) ** 2)
        return float(1 / (of["kept"](score, ratio, p.head_decay) * speed))

    top = end(p) ** 2
    while logit(top) > begun:
        top += 0.1
    read_out = np.sqrt(2) * end(p)  # at attention 1/2
    behind = value("iw_lag", p, w=read_out, residual=2 * p.head_decay * read_out)
    return seconds(p, end(p)) + float(quad(wait, begun, left, epsrel=1e-8)[0]) + behind


@scope.pointwise(EXCLUSION)
def lost_below(p: Any) -> float:
    """Items of the pool below which the memory drives the head out, by the exact residuals."""
    return sized(p)["kappa_labels"] * (least(p) / p.fading) ** 2


NUMBERS = {
    "T_head": (emergence_time, "time at which attention is 1/2"),
    "T_solved": (solved_time, "time at which the residual is half its start"),
    "share_head": (head_share, "share of the head in the logit at that time"),
    "K_critical": (critical_items, "items of the pool at which this share is 1/2"),
    "T_lost": (lost_time, "time at which attention falls below 1/2 again"),
    "K_lost": (lost_below, "items below which the memory drives the head out"),
}


Parameters, derived, flow, flows, sections, equations, onset, emergence_times, predict = (
    package_theory(
        stated,
        {
            "In-context against in-weights learning: the race": [emergence],
            "In-context against in-weights learning: weight decay": [transience],
        },
        NUMBERS,
    )
)
