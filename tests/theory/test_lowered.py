"""Array code of equations with indices: against sums entry by entry, in NumPy and
torch.
"""

import itertools

import numpy as np
import pytest
import sympy as sp
import torch
from spelled import Spelled, generated
from test_fixed_disorder import P, begin

from theory.call.refusal import ParameterError
from theory.numbers import lowered as lowered_module
from theory.numbers.lowered import Lowered, NotLowered, number
from theory.state_tracking.single_students.fixed_disorder import FixedDisorder
from theory.state_tracking.single_students.realisation import Realisation, Start

i, j, k, l, n, m, seed = sp.symbols("i j k l n m seed", integer=True, positive=True)
y = sp.Symbol("y", real=True)
A, B, T, g = (sp.IndexedBase(x, real=True) for x in "ABTg")
I, J, K = ((x, 1, size) for x, size in ((i, n), (j, m), (k, n)))
SIZES = {"n": 4, "m": 3, "y": 0.7}
FORMS = {
    "contracted": sp.Sum(A[i, j] * B[j, k] * A[k, l], I, J, K),
    "stacked": sp.Sum(T[i, j, k] * A[i, j] * B[j, k], I, J, K),
    "columns first": sp.Sum(T[i, j, k] * T[k, j, i] * A[i, l], I, J, K),
    "square": sp.Sum((A[i, j] - B[j, k]) ** 2 * y, I, J, K),
    "delta": sp.Sum(sp.KroneckerDelta(i, k) * A[i, j] * B[j, k] / y, I, J, K),
    "softmax": sp.Sum(sp.exp(A[i, l]) / sp.Sum(sp.exp(A[k, l]), K) * B[l, i], I),
    "outer sum": sp.Sum(A[i, j] * (B[j, k] - A[k, j] * sp.Sum(T[i, j, k], K)), I, J, K),
    "same index inside": sp.Sum(A[k, j] * sp.Sum(A[i, j] * B[j, k], J), I, J, K),
    "first and last": sp.Sum(T[i, l, k] / (i + 2 * k), I, K),
    "diagonal": sp.Sum(T[i, j, i] * A[i, j], I, J),
    "shifted": sp.Sum(A[i, j] * A[i - 1, j], (i, 2, n), J),
    "index as number": sp.Sum(i * A[i, j] / (i + j), I, J) + sp.erf(y),
    "counted": sp.Sum(A[i, l] * y, I, J),
}


def given(stack: int = 0) -> dict:
    """Random arrays of the forms, or a stack of them."""
    rng, shape = np.random.default_rng(0), (stack,) * bool(stack)
    sizes = {"A": (4, 3), "B": (3, 4), "T": (4, 3, 4)}
    arrays = {name: rng.normal(size=(*shape, *size)) for name, size in sizes.items()}
    return {**SIZES, **arrays}


@pytest.mark.parametrize("form", FORMS)
def test_as_entry_by_entry(form):
    """At a place, and at all places of a stack at once."""
    expr, values = FORMS[form], given()
    expected = lowered_module.entry_by_entry(expr, values | {"l": 2})
    lowered_module._of.cache_clear()
    assert number(expr, values | {"l": 2}) == pytest.approx(
        expected, rel=1e-12
    )  # 48 terms
    result, stack = sp.IndexedBase("result"), given(2)
    left, many = (result[l], 3) if l in expr.free_symbols else (sp.Symbol("result"), 1)
    for xp, array in ((np, np.asarray), (torch, torch.as_tensor)):
        lowered = Lowered({left: expr}, [left], (seed,), xp)
        arrays = {name: array(x) if np.ndim(x) else x for name, x in stack.items()}
        found = np.asarray(lowered(arrays)[0]).reshape(2, many)
        for which, place in itertools.product(range(2), range(many)):
            one = {name: x[which] if np.ndim(x) > 1 else x for name, x in stack.items()}
            at = 2 if many == 1 else place + 1
            entry = lowered_module.entry_by_entry(expr, {**one, "l": at})
            assert found[which, place] == pytest.approx(entry, rel=1e-12)


def test_maps_of_indices():
    """An array whose entries are places, as values of a delta and as an index."""
    x = given() | {"g": np.array([2, 4, 1, 3])}
    expr = sp.Sum(A[g[i], j] * sp.KroneckerDelta(g[i], k) * T[i, j, k], I, J, K)
    expected = sum(x["A"][q - 1] @ x["T"][p, :, q - 1] for p, q in enumerate(x["g"]))
    assert number(expr, x) == pytest.approx(expected, rel=1e-12)
    for wrong in (5, 1.5):
        with pytest.raises(ParameterError, match=rf"A\[{wrong}, 1\]: not a place"):
            number(expr, x | {"g": np.array([2, 4, wrong, 3])})


def test_what_is_refused_or_left_to_others():
    """Places outside of an array, arrays too large, ends that depend on an index."""
    with pytest.raises(
        ParameterError, match=r"B\[1, 5\]: not a place of an array of shape"
    ):
        number(sp.Sum(B[j, i + 1], I, J), given())
    with pytest.raises(ParameterError, match="would have"):
        number(sp.Sum(1 / (i + j + k), I, J, K), {"n": 10**5, "m": 1})
    with pytest.raises(NotLowered):
        Lowered({y: sp.Product(A[i, j], I, J)}, [y])(given())
    product = sp.Product(A[i, j], I, J)
    assert number(product, given()) == pytest.approx(given()["A"].prod(), rel=1e-12)
    entries, v = sp.IndexedBase("v")[i], {"A": np.ones((4, 2)), "B": np.ones((3, 2))}
    with pytest.raises(
        ParameterError, match=r"B\[i, 1\]: i goes to 3, elsewhere to another end"
    ):
        Lowered({entries: A[i, 1] + B[i, 1]}, [entries])(v)
    with pytest.raises(ParameterError, match="its ends must be whole numbers"):
        number(sp.Sum(A[i, j], (j, 1, i), (i, 1, 3)), given())


@pytest.mark.parametrize("size", [(3, 2, 3), (7, 4, 5)], ids=str)
def test_rates_of_the_quenched_theory_by_hand(size):
    """Of two students, one of them with groups that no row of its training set is in:
    array code written by hand against that of the equations. Pairs are in single
    precision.
    """
    p = P.replace(N=size[0], d_g=size[1], L=size[2])
    starts, members = zip(*(begin(p, seed) for seed in (5, 6)), strict=True)
    start = Start(
        *(
            np.concatenate(x)
            for x in zip(*(vars(s).values() for s in starts), strict=True)
        )
    )
    given = Realisation.joined([*members])
    assert (given.share == 0).any() or size[0] == 3
    by_hand, lowered = (
        FixedDisorder(p, start, given).rates(),
        Spelled(p, start, given).rates(),
    )
    for x, expected in zip(by_hand, lowered, strict=True):
        np.testing.assert_allclose(
            x, expected, rtol=0, atol=3e-7 * np.abs(expected).max()
        )


def test_rates_in_torch():
    """The array module is the caller's."""
    start, given = begin(P, 5)
    system = Spelled(P, start, given)
    M = system.state[2].transpose(0, 2, 3, 1)
    values = system.numbers | {
        "M": M,
        "pi": system.attention.forward(*system.state[:2]),
    }
    tensors = {q: torch.tensor(x) if np.ndim(x) else x for q, x in values.items()}
    for x, z in zip(generated(torch)(tensors), generated()(values), strict=True):
        np.testing.assert_allclose(x.numpy(), z, rtol=1e-12, atol=1e-16)
