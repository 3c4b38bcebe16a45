"""Check: verdicts, minimum detectable effects, errors, z-scores, tables, exit codes."""

import numpy as np
import pytest
import scipy.stats
import sympy as sp

from theory.equations.equation import table
from verify.checks import check, check_table
from verify.checks import verdict as verdict_module
from verify.checks.check import (
    Band,
    Check,
    Sides,
    at_least,
    at_most,
    detectable_effect,
    estimated,
    failed,
    identity,
    near,
    sampled,
    samples_needed,
    together,
    vanishing,
    with_notes,
)
from verify.checks.report import sided
from verify.checks.verdict import POWER, Z_MAX, Shape

OFF = Band(0.1, 0.2, "mean field")


def scattered(n, spread, mean=1.0):
    """n numbers with exactly this mean and standard deviation, and no skewness."""
    half = np.random.default_rng(n).normal(size=n // 2)
    x = np.concatenate([half, -half, np.zeros(n % 2)])
    return mean + spread * (x - x.mean()) / x.std(ddof=1)


def test_sides_are_gathered_by_label():
    """Numbers and arrays of several points, one row per label; the worst entry is
    shown.
    """
    a = sp.Symbol("a")
    sides = Sides(
        table("nowhere", status="exact", double=(a, 2 * a), square=(a, a**2)),
        1e-9,
        "why",
    )
    for x in (1.0, 3.0):
        sides.add("twice", "double", {"a": x}, [2 * x, 2 * x])
        sides.add("squared", "square", {"a": x}, x**2 if x < 2 else 9.5)
    twice, squared = sides.checks()
    assert (twice.name, twice.equation, twice.verdict) == ("twice", "double", "exact")
    assert twice.measured == 6.0 and not failed([twice])
    assert (squared.predicted, squared.measured, squared.verdict) == (9.0, 9.5, "FAIL")


def test_rows_come_after_those_of_the_sides():
    """Whether they are returned, yielded or missing, and of the table that is given."""
    double = table("nowhere", status="exact", double=(a := sp.Symbol("a"), 2 * a))
    row = vanishing("rest", "double", 0.0, 0.0, "why")

    def added(sides):
        """Only both sides of an equation."""
        sides.add("twice", "double", {"a": 3.0}, 6.0)

    def returned(sides):
        """Rows as a list."""
        added(sides)
        return [row]

    def yielded(sides):
        """Rows one by one."""
        added(sides)
        yield row

    for add, names in (
        (added, ["twice"]),
        (returned, ["twice", "rest"]),
        (yielded, ["twice", "rest"]),
    ):
        rows = sided(1e-9, "rounding")(add)(double)
        assert [c.name for c in rows] == names and not failed(rows)
        assert (rows[0].tolerance, rows[0].reason) == (1e-9, "rounding")


def test_rows_and_notes_are_told_apart():
    """And nothing else is dropped, such as a list of rows that was yielded as one."""
    row = vanishing("rest", "double", 0.0, 0.0, "why")
    assert with_notes(lambda: iter(["before", row, "after"]))() == (
        [row],
        ["before", "after"],
    )
    for other in ([row], None):
        with pytest.raises(TypeError, match="must yield Checks and text"):
            with_notes(lambda other=other: iter([row, other]))()


def test_of_several_numbers_the_farthest_counts():
    """Also on the other side, and where one is no number."""
    assert near("x", "e", 1.0, [1.01, 0.8, 1.1], 0.5, "why").measured == 0.8
    assert (
        near("x", "e", 1.0, np.array([1.01, np.nan, 5.0]), 10, "why").verdict == "FAIL"
    )


VERDICTS = {
    "exact": [
        identity("x", "e", 1.0, 1.0 + 1e-10, 1e-9, "why"),
        vanishing("x", "e", [0.0, -1e-12], 1e-9, "why"),
        identity("x", "e", 1.0, 1.0 + 0.9e-6, verdict_module.IDENTITY, "why"),
    ],
    "agrees": [
        identity("x", "e", 1.0, 1.01, 0.05, "why"),
        near("x", "e", -2.0, -2.05, 0.05, "why"),
        at_least("x", "e", 1.0, 1.05, "why"),
        at_most("x", "e", 1.0, 1.0, "why"),
        sampled("x", "e", 1.0, scattered(20, 0.01)),
        near(
            "x", "e", 1.0, 1.009, 0.0, "", band=Band(-0.01, 0.01, "why")
        ),  # known to be right to a per cent
        sampled("x", "e", 0.0, scattered(20, 0.01, 0.0), scale=1.0),
    ],
    "coarse": [
        identity("x", "e", 1.0, 1.01, 0.06, "why"),
        near("x", "e", 1.0, 1.01, 0.5, "why"),
        sampled("x", "e", 1.0, scattered(20, 0.1), required=0.5),
    ],
    "bound": [
        at_least("x", "e", 1.0, 1.06, "why"),
        at_most("x", "e", 1.0, 0.95, "why"),
        at_least("x", "e", 0.0, 3.0, "why"),
        at_most("x", "e", 1.0, 0.0, "why"),
        at_most("x", "e", -1.0, -1.2, "why"),
    ],
    "limit": [
        near("x", "e", 1.0, 1.15, 0.0, "", band=OFF),
        sampled("x", "e", 1.0, scattered(20, 0.01, 1.15), band=OFF),
        near("x", "e", -1.0, -0.85, 0.0, "", band=OFF),
        near("x", "e", 0.0, 0.3, 0.0, "", 2.0, OFF),
    ],
    "undecided": [
        sampled("x", "e", 1.0, scattered(4, 0.05)),
        sampled("x", "e", 0.0, scattered(20, 0.01, 0.0)),
        sampled("x", "e", 1.0, scattered(4, 0.5, 1.15), band=OFF),
    ],
    "FAIL": [
        identity("x", "e", 1.0, 1.1, 0.05, "why"),
        near("x", "e", 1.0, 1.2, 0.1, "why"),
        vanishing("x", "e", 1e-3, 1e-9, "why"),
        at_least("x", "e", 1.0, 0.999, "why"),
        at_most("x", "e", 1.0, 1.001, "why"),
        sampled("x", "e", 1.05, scattered(20, 0.01)),
        sampled("x", "e", 3.99, scattered(8, 0.3)),
        sampled("x", "e", 0.0, scattered(20, 0.01, 0.1), scale=1.0),
    ],
}


@pytest.mark.parametrize("verdict", verdict_module.VERDICTS)
def test_every_verdict(verdict):
    assert [c.verdict for c in VERDICTS[verdict]] == [verdict] * len(VERDICTS[verdict])
    assert all(c.within == (verdict != "FAIL") for c in VERDICTS[verdict])


def test_identity_is_relative_to_the_largest_entry():
    c = identity("x", "e", [1.0, 200.0], [1.0 + 2e-10, 200.0], 1e-9, "why")
    assert c.error == pytest.approx(
        1e-12, rel=1e-3
    )  # 2e-10 / 200, up to the rounding of 1 + 2e-10
    assert c.within
    assert c.verdict == "exact"


def test_identity_shows_the_worst_entry_and_fails():
    c = identity("x", "e", [1.0, 2.0], [1.0, 3.0], 1e-9, "why")
    assert (c.predicted, c.measured) == (2.0, 3.0)
    assert not c.within
    assert c.verdict == "FAIL"


@pytest.mark.parametrize(
    "c",
    [
        identity("x", "e", [1.0, np.nan], [1.0, 1.0], 1e9, "why"),
        near("x", "e", 1.0, np.nan, 1e9, "why"),
        vanishing("x", "e", [0.0, np.nan], 1e9, "why"),
        near("x", "e", 1.0, np.nan, 1e9, "", band=OFF),
        at_least("x", "e", 0.0, np.nan, "why"),
        at_most("x", "e", 0.0, np.nan, "why"),
        at_least("x", "e", 0.0, np.inf, "why"),
        sampled("x", "e", 0.0, [np.nan, 1.0]),
        sampled("x", "e", np.nan, [0.9, 1.0, 1.1]),
        sampled("x", "e", 1.0, [np.nan] * 3, band=OFF),
        estimated("x", "e", 1.0, 1.0, np.nan, 8),
        sampled("x", "e", 0.0, [1.0]),
        sampled("x", "e", 1.0, [1.0]),  # one sample has no standard error
    ],
)
def test_nan_never_passes(c):
    assert c.verdict == "FAIL" and not c.within and check.failed([c])


def test_sampled_accepts_truth_and_refuses_five_per_cent():
    """10,000 draws of relative spread 0.3: a 5% error is 16 standard errors."""
    x = np.random.default_rng(0).normal(1.0, 0.3, 10_000)
    assert sampled("x", "e", 1.0, x).verdict == "agrees"
    assert sampled("x", "e", 1.05, x).verdict == "FAIL"


@pytest.mark.parametrize("value", [0.1, 1.0, -7.3])
@pytest.mark.parametrize("n", [2, 3, 7, 20])
def test_samples_that_do_not_scatter(value, n):
    """Equal to the prediction: fine; to anything else: infinitely many standard errors
    off, however near.
    """
    same = sampled("x", "e", value, [value] * n)
    assert (same.error, same.standard_error, same.verdict) == (0.0, 0.0, "agrees")
    assert sampled("x", "e", 3 * value / 3, [value] * n).within  # the last bit
    for off in (value * (1 + 1e-9), 2 * value, -value, 0.0):
        other = sampled("x", "e", off, [value] * n)
        assert other.error == np.inf and other.verdict == "FAIL"
    assert sampled("x", "e", 1.0, [1.15] * n, band=OFF).verdict == "limit"
    assert sampled("x", "e", 1.0, [1.21] * n, band=OFF).verdict == "FAIL"
    assert check_table.table([same])


def test_few_samples_are_judged_by_student_t():
    """t = 6 from two values is nothing unusual (p = 0.1), from a thousand it is."""
    assert check.normal_z(6.0, 2) == pytest.approx(
        1.62, abs=0.01
    )  # isf of atan tail 1/2 - atan(6)/pi, by hand
    assert check.normal_z(6.0, 1000) > 5.5
    assert np.isnan(check.normal_z(6.0, 1))
    # As unlikely as the normal z: the tolerance means the same for any number of seeds.
    for n in (2, 4, 8, 20):
        assert check.normal_z(scipy.stats.t.isf(3e-5, n - 1), n) == pytest.approx(
            scipy.stats.norm.isf(3e-5), rel=1e-12
        )


@pytest.mark.parametrize("n", [3, 20, 10**6, np.inf])
@pytest.mark.parametrize("length", [2.0, 80.0])
def test_the_largest_along_a_curve_is_judged_as_a_single_number(n, length):
    """At its critical deviation it is as unlikely as the largest z that is let pass."""
    shape = Shape(points=50, length=length)
    assert detectable_effect(n, shape=shape) > detectable_effect(n)
    critical = detectable_effect(n, shape=shape) - scipy.stats.t.ppf(POWER, n - 1)
    assert check.normal_z(critical, n, shape) == pytest.approx(Z_MAX, rel=1e-9)


DRAWN = 1000  # a share of 0.9 scatters by sqrt(0.9 0.1 / 1000) = 0.0095


@pytest.mark.parametrize(
    ("n", "sign"),
    [
        (4, 1),
        (20, -1),
        *(
            pytest.param(*x, marks=pytest.mark.slow)
            for x in ((4, -1), (8, 1), (8, -1), (20, 1))
        ),
    ],
)
def test_resolution_is_flagged_nine_times_in_ten(n, sign):
    """A prediction off by what the check says it can detect, for truths of 2 that
    scatter by 10%: four binomial deviations about 0.9.
    """
    rng = np.random.default_rng([n, sign + 1])
    flagged = 0
    for x in rng.normal(2.0, 0.2, (DRAWN, n)):
        detectable = sampled("x", "e", 2.0, x).detectable
        flagged += not sampled("x", "e", 2.0 * (1 + sign * detectable), x).within
    assert flagged / DRAWN == pytest.approx(0.9, abs=4 * np.sqrt(0.9 * 0.1 / DRAWN))


def test_resolution_of_bands_adds_their_width():
    """Beyond the far edge, nine times in ten: a shift by the width alone may lead from
    edge to edge.
    """
    plain, banded = (
        sampled("x", "e", 1.0, scattered(20, 0.01)),
        sampled("x", "e", 1.0, scattered(20, 0.01, 1.15), band=OFF),
    )
    assert banded.detectable == pytest.approx(plain.detectable + 0.1, rel=1e-9)
    assert near("x", "e", 1.0, 1.15, 0.0, "", band=OFF).detectable == pytest.approx(0.1)


@pytest.mark.parametrize(
    ("spread", "required"),
    [
        (1e-6, 0.05),
        (0.01, 0.05),
        (0.05, 0.05),
        (0.1, 0.05),
        (0.3, 0.05),
        (0.3, 0.5),
        (1.0, 0.2),
    ],
)
def test_samples_needed_is_the_smallest_number(spread, required):
    n = samples_needed(spread, required)
    assert detectable_effect(n) * spread / np.sqrt(n) <= required
    assert all(
        detectable_effect(k) * spread / np.sqrt(k) > required for k in range(2, n)
    )


def test_parts_come_together():
    """Checks and notes of all parts, in their order."""
    first, second = (Check(n, "e", 1.0, 1.0, 0.0, 0.1, "") for n in ("first", "second"))
    made = together([([first], ["a"]), ([], ["b", "c"]), ([second], [])])
    assert made == ([first, second], ["a", "b", "c"])


def test_nobody_trains_for_ever():
    assert (
        samples_needed(1.0, 0.0) is None
        and samples_needed(1.0, 1e-9) is None
        and samples_needed(np.nan, 0.05) is None
    )
    assert (
        sampled("x", "e", 0.0, [0.1, -0.1]).why
        == "any error would go unnoticed; no number of samples would show 5%"
    )


@pytest.mark.parametrize("spread", [0.02, 0.05, 0.3])
def test_undecided_says_how_many_samples_decide(spread):
    """With that many of the same scatter it agrees, with one fewer it is undecided
    still; it never agrees before.
    """
    c = sampled("x", "e", 1.0, scattered(4, spread))
    assert (
        c.verdict == "undecided"
        and c.within
        and c.why.endswith(
            f" would go unnoticed; {c.samples_needed} samples would show 5%"
        )
    )
    assert (
        sampled("x", "e", 1.0, scattered(c.samples_needed, spread)).verdict == "agrees"
    )
    assert {
        sampled("x", "e", 1.0, scattered(n, spread)).verdict
        for n in range(2, min(c.samples_needed, 40))
    } == {"undecided"}
    assert "undecided" in check_table.table([c]) and "agrees" not in check_table.table(
        [c]
    )


def test_the_same_for_a_band():
    c = sampled("x", "e", 1.0, scattered(8, 0.5, 1.15), band=OFF)
    assert c.verdict == "undecided" and c.required == pytest.approx(0.2)
    assert (
        sampled("x", "e", 1.0, scattered(c.samples_needed, 0.5, 1.15), band=OFF).verdict
        == "limit"
    )
    assert (
        sampled(
            "x", "e", 1.0, scattered(c.samples_needed - 1, 0.5, 1.15), band=OFF
        ).verdict
        == "undecided"
    )


@pytest.mark.parametrize(
    ("measured", "verdict"),
    [
        (0.85, "FAIL"),
        (1.0, "FAIL"),
        (1.09, "FAIL"),
        (1.101, "limit"),
        (1.15, "limit"),
        (1.199, "limit"),
        (1.21, "FAIL"),
        (2.0, "FAIL"),
        (-1.15, "FAIL"),
    ],
)
def test_leaving_a_band_fails_on_either_side(measured, verdict):
    """A theory that becomes right has left its band, too: 20 values that scatter by a
    thousandth are 4 z within 0.0015.
    """
    found = [
        near("x", "e", 1.0, measured, 0.0, "", band=OFF),
        sampled("x", "e", 1.0, scattered(20, 1e-3, measured), band=OFF),
        near("x", "e", 0.0, measured - 1, 0.0, "", 1.0, OFF),
    ]
    assert [c.verdict for c in found] == [verdict] * 3
    assert all(
        "off by +10.0% to +20.0%: mean field" in check_table.table([c]) for c in found
    )


def test_a_check_made_by_hand_sees_its_tolerance():
    assert Check("x", "e", 1.0, 1.0, 0.0, 0.02, "why").detectable == 0.02
    assert Check("x", "e", 1.0, 1.0, 0.0, 0.02, "why").verdict == "agrees"
