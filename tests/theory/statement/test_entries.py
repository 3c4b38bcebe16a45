"""Mean loss in all entries, no symmetry assumed: against all inputs; and what is
refused.
"""

from __future__ import annotations

import sys
from pathlib import Path

import numpy as np
import pytest
import sympy as sp

sys.path.insert(0, str(Path(__file__).parent))
import systems

from theory.call.refusal import ParameterError
from theory.statement.derivation import printed
from theory.statement.derivation.derived import derive
from theory.statement.evaluation import arrays, wick

i, j, d = sp.symbols("i j d", integer=True, positive=True)


def numbers_of(expr, weights, eigenvalues, **sizes):
    """A mean at concrete sizes and entries."""
    D, N = systems.sizes("D N")
    written = expr.subs({D: sizes["D"], N: sizes["N"]}).doit()

    values = {
        f"{k}[{', '.join(str(n + 1) for n in at)}]": x
        for k, w in weights.items()
        for at, x in np.ndenumerate(w)
    }
    values |= {f"lambda[{n}]": x for n, x in enumerate(eigenvalues, 1)} | {
        "v": weights["v"]
    }
    free = written.free_symbols | written.atoms(sp.Indexed)
    return float(written.subs({x: values[str(x)] for x in free if str(x) in values}))


def test_mean_in_all_entries():
    """Of a head with weights that have no class (b and c), at random entries of all of
    them.
    """
    stated, rng, lam = systems.regression(), np.random.default_rng(6), (1.3, 0.6)
    sizes = {"D": 2, "N": 2, "a": 1.0, "lambda_1": lam[0], "lambda_2": lam[1]}
    data = arrays.every_input(stated, sizes, rng)
    drawn = {w: rng.normal(size=data.shape(w.sorts)) for w in stated.weights}
    listed = arrays.mean(data, arrays.Evaluation(data, drawn).value(stated.loss))
    k, l = sp.symbols("k l", integer=True, positive=True)
    found = wick.mean(stated, (i, j, k, l, d))
    weights = {w.name: x for w, x in drawn.items()}
    assert numbers_of(found, weights, lam, D=2, N=2) == pytest.approx(
        float(listed), rel=1e-12
    )


def test_what_is_no_polynomial_is_refused():
    """An exponential, by name."""
    with pytest.raises(
        ParameterError, match="no polynomial in Gaussian data and weights"
    ):
        wick.mean(systems.bigram(), (i, j, d))


def test_printed_abbreviations_are_factors():
    """A rate in the first abbreviation that takes all its exponentials,
    else as it is.
    """
    x, g, X = sp.symbols("x g X", positive=True)
    where = {g: 2 / (sp.exp(X) + 2), X: 3 * x}
    assert (
        printed.shortened(5 * x / (sp.exp(3 * x) + 2), where)
        == sp.Rational(5, 2) * x * g
    )
    other = x / (sp.exp(x) + 2)
    assert (
        printed.shortened(other, where) == other
        and printed.shortened(x**2, where) == x**2
    )
    made = derive(systems.bigram())
    (name,) = (s.name for s in made.flow.state)
    flow = printed.flow(made, {name: x}, name="renamed")
    assert (
        list(flow.rhs) == [x] and flow.name == "renamed" and flow.status == made.status
    )
