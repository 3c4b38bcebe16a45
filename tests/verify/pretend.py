"""Students that are made up: curves that rise, at times that depend on every parameter,
option and seed that was asked for, so that rows of commands that train for hours are
built in a second.
"""

from __future__ import annotations

import dataclasses
import re
import zlib

import numpy as np
import xarray as xr

from simulate.induction_heads.student import NAMES, Student
from theory.positional_semantic import Parameters as Sentences


def drawn(*of):
    """A number between 0 and 1 that depends on everything that it is given, up to last
    digits, which are those of a library.
    """
    short = re.sub(r"\d+\.\d{9,}", lambda x: repr(round(float(x[0]), 7)), repr(of))
    return zlib.crc32(short.encode()) / 2**32


def asked(p, options):
    """Everything but the seed; fields that came later only where they are not their
    default.
    """
    given = zip(dataclasses.fields(p), dataclasses.astuple(p), strict=True)
    return tuple(v for f, v in given if f.name in p.stored()), sorted(options.items())


def rising(at, *of):
    """From 0 to 1 along ``at``, in the middle of it."""
    part = np.asarray(at, dtype=float) / at[-1]
    return 1 / (1 + np.exp(-20 * (part - 0.5 - 0.1 * drawn(*of))))


def heads(p, seeds=(0,), keep_weights=False, **options):
    """Students of induction heads: what their measurements have, over (seed, t)."""
    known = asked(p, options)
    step = np.arange(0, p.steps + 1, p.eval_every)

    def curves(name, of=lambda x: x):
        return (
            ("seed", "t"),
            np.array([of(rising(step, known, name, s)) for s in seeds]),
        )

    found = {name: curves(name) for name in ("alpha", "beta", "gamma")}
    found |= {name: curves(name, lambda x: 1 - x) for name in ("loss", "loss_three")}
    found["loss_others"] = curves("loss_others", lambda x: 1 - 0.2 * x)
    found["residual"] = curves("residual", lambda x: 0.7 * x)
    pseudo = np.stack([curves(f"pseudo {n}")[1] for n in NAMES], -1)
    sign = [-1 if k % 2 else 1 for k in range(len(NAMES))]
    found["pseudo"] = (("seed", "t", "parameter"), pseudo * sign)
    if keep_weights:
        for name, w in Student(p.dimension).weights().items():
            rngs = [
                np.random.default_rng(zlib.crc32(repr((known, s)).encode()))
                for s in seeds
            ]
            values = np.array([g.normal(size=(len(step), *w.shape)) for g in rngs])
            found[name] = (("seed", "t", f"{name}_row", f"{name}_column"), values)
    at = {"seed": list(seeds), "parameter": list(NAMES), "step": ("t", step)}
    return xr.Dataset(found, {**at, "t": step * p.time_per_step})


def standard(p, seeds=(0,), **options):
    """Loss of the standard transformer over (seed, step)."""
    step = np.arange(0, p.steps + 1, p.eval_every)
    loss = [np.log(p.pairs) * (1 - rising(step, asked(p, options), s)) for s in seeds]
    return xr.Dataset(
        {"loss": (("seed", "step"), loss)}, {"seed": list(seeds), "step": step}
    )


def hops(p, seeds=(0,), **options):
    """Product of overlaps over (seed, step)."""
    step = np.arange(0, p.steps + 1, p.eval_every)
    product = [rising(step, asked(p, options), s) for s in seeds]
    return xr.Dataset(
        {"product": (("seed", "step"), product)}, {"seed": list(seeds), "step": step}
    )


def sentences(p, seeds, alpha=None, **options):
    """Ends of students of positional_semantic over (seed, alpha).

    The gap of losses rises through zero in the middle of the given alphas; runs of Adam
    end in one of the two minima, or elsewhere.
    """
    alphas = np.atleast_1d(p.alpha if alpha is None else alpha).astype(float)
    own = asked(p, options)

    def loss(seed, a):
        start = p.start
        if p.optimizer == "adam":
            start = ("positional", "semantic", "neither")[
                int(3 * drawn("end", own, seed, a))
            ]
        level = (
            a
            if start == "positional"
            else alphas.mean() * (1 if start == "semantic" else 2)
        )
        shape = (
            p.omega,
            p.sigma,
            p.lam,
            p.target,
            p.d,
            p.rank,
            p.tied,
            p.value,
            p.correlation,
        )
        return 0.01 * level * (1 + 0.02 * drawn(shape, seed, a, start) + 1 / p.d)

    def value(name, seed, a):
        return (1 + 0.1 * drawn(asked(p, options), name, seed, a) + 1 / p.d) * (
            1 + 0.3 * a
        )

    names = ("q", "m", "theta", "test_mse_half")
    found = {n: [[value(n, s, a) for a in alphas] for s in seeds] for n in names}
    found["train_loss"] = [[loss(s, a) for a in alphas] for s in seeds]
    rows = {n: (("seed", "alpha"), v) for n, v in found.items()}
    return xr.Dataset(rows, {"seed": list(seeds), "alpha": alphas})


def minimum(p: Sentences, seed):
    """Of the linear layer."""
    return {"half_test": (1 + 0.1 * drawn(asked(p, {})[0], seed)) * (1 + 0.5 * p.alpha)}
