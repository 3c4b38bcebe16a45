"""Theorem 1 as a computation: groups, commutants (Propositions 1-4), invariant
directions, the 15 that move.
"""

from __future__ import annotations

import itertools

import numpy as np
import pytest

from theory.induction_heads import equations, structure

SIZES = (2, 4)


@pytest.mark.parametrize("D", SIZES)
def test_groups(D):
    """Orders 2^n n!, closed under multiplication and transposition, orthogonal."""
    for kind, order in (("token", {2: 8, 4: 384}[D]), ("position", {2: 4, 4: 16}[D])):
        elements = structure.group(kind, D)
        found = {g.tobytes() for g in elements}
        assert len(found) == len(elements) == order
        assert all(
            ((g @ g.T) == np.eye(D)).all() and g.T.copy().tobytes() in found
            for g in elements
        )
        some = elements[:: max(1, len(elements) // 12)]
        assert all((a @ b).tobytes() in found for a, b in itertools.product(some, some))


@pytest.mark.parametrize("D", SIZES)
def test_proposition_4(D):
    """F M F^T = M for every F of the group, and with a rotation drawn at random; no
    other involution does it: tokens' signed permutations do not keep M.
    """
    M = structure.swap(D)
    assert all((f @ M @ f.T == M).all() for f in structure.group("position", D))
    assert any((e @ M @ e.T != M).any() for e in structure.group("token", D))
    turn = np.linalg.qr(np.random.default_rng(0).normal(size=(D // 2, D // 2)))[0]
    for corner in (np.eye(2), np.eye(2)[::-1]):
        f = np.kron(corner, turn)
        np.testing.assert_allclose(f @ M @ f.T, M, atol=1e-14)  # rounding


@pytest.mark.parametrize("D", SIZES)
def test_propositions_1_to_3(D):
    """Scalars; I and M; nothing. Nothing already from F = -I."""
    assert structure.commutant("token", "token", D) == ("I",)
    assert structure.commutant("position", "position", D) == ("I", "M")
    assert (
        structure.commutant("token", "position", D)
        == structure.commutant("position", "token", D)
        == ()
    )
    assert any((f == -np.eye(D)).all() for f in structure.group("position", D))


@pytest.mark.parametrize("D", SIZES)
def test_nineteen_by_characters(D):
    """An average of squares of traces over the group,
    a whole number without tolerance.
    """
    assert structure.dimension(D) == 19


@pytest.mark.parametrize("D", [2, 4, 6, 8, 10])
def test_propositions_by_null_spaces(D):
    """Propositions 1-4 at larger D, from a few rotations: matrices left alone by a
    sign, a transposition and a cycle (block by block for F, and their exchange) are
    those named, and all rotations leave these alone.
    """

    def generators(size):
        sign, swapped = np.eye(size), np.eye(size)
        sign[0, 0] = -1
        swapped[[0, -1]] = swapped[[-1, 0]]
        return [sign, swapped, np.roll(np.eye(size), 1, 0)]

    corners = np.eye(2), np.eye(2)[::-1]
    M = np.kron(corners[1], np.eye(D // 2))
    E = generators(D)
    F = [np.kron(corners[0], e) for e in generators(D // 2)] + [M]
    one = np.eye(D)
    both = [(e, one) for e in E] + [(one, f) for f in F]
    rng = np.random.default_rng(D)
    e, half = (np.linalg.qr(rng.normal(size=(k, k)))[0] for k in (D, D // 2))
    for pairs, kept, drawn in (
        ([(e, e) for e in E], [one], [(e, e)]),
        (
            [(f, f) for f in F],
            [one, M],
            [(f, f) for f in (np.kron(c, half) for c in corners)],
        ),
        (both, [], []),
    ):
        moved = np.concatenate([np.kron(a, b) - np.eye(D * D) for a, b in pairs])
        assert D * D - np.linalg.matrix_rank(moved) == len(kept)
        for matrix in kept:
            assert not (moved @ matrix.ravel()).any()
            for a, b in drawn:
                np.testing.assert_allclose(
                    a @ matrix @ b.T, matrix, atol=1e-13
                )  # rounding


def test_larger_group_is_no_control():
    """With all signed permutations of codes the invariant space only shrinks: M is
    lost.
    """
    everything = sum(np.kron(e, e) for e in structure.group("token", 4))
    assert np.linalg.matrix_rank(everything) == 1


def test_reachable():
    """15 names; the equations of the other blocks say zero."""
    assert len(structure.reachable()) == 15
    assert {p.name for p in structure.pseudo_parameters()} - set(
        structure.reachable()
    ) == {f"beta_{k}" for k in (3, 4, 5, 6)}
    assert equations()["W2_22"].rhs == equations()["W2_24"].rhs == 0
    assert "stays zero" in equations()["W2_22"].reference


def test_forward_pass_of_rotated_data():
    """A.6 with a random orthogonal E and F, arbitrary pseudo-parameters: scores stay,
    the output turns with E.
    """
    rng = np.random.default_rng(5)
    D, N = 4, 3
    E, e = (np.linalg.qr(rng.normal(size=(k, k)))[0] for k in (D, D // 2))
    F = np.kron(np.array([[0, 1], [1, 0]]), e)
    kernels = {"I": np.eye(D), "M": structure.swap(D)}
    W = {
        name: np.zeros((len(rows) * D, len(columns) * D))
        for name, (rows, columns) in structure.BLOCKS.items()
    }
    for p in structure.pseudo_parameters():
        W[p.matrix][p.row * D : (p.row + 1) * D, p.column * D : (p.column + 1) * D] += (
            rng.normal() / 2 * kernels[p.kernel]
        )

    def forward(items, labels, codes):
        rows = [
            np.append(x, p)
            for a, b, c in zip(items, labels, codes, strict=True)
            for x, p in ((a, c), (b, c @ kernels["M"]))
        ]
        h = np.array([*rows, np.append(items[1], np.zeros(D))])
        scores = []
        for name in ("W1", "W2"):
            S = h @ W[name] @ h.T
            weight = np.exp(S) * np.tri(len(h), k=-1)
            weight[1:] /= weight[1:].sum(1, keepdims=True)
            h = np.hstack([h, weight @ h])
            scores.append(S)
        return scores, (h @ W["W3"])[-1]

    data = rng.normal(size=(3, N, D))
    scores, z = forward(*data)
    turned, z_turned = forward(data[0] @ E, data[1] @ E, data[2] @ F)
    # float64, numbers of order one
    np.testing.assert_allclose(turned, scores, atol=1e-12)
    np.testing.assert_allclose(z_turned, z @ E, atol=1e-12)
    _, wrong = forward(data[0] @ E, data[1], data[2] @ F)
    assert np.abs(wrong - z @ E).max() > 1e-2
