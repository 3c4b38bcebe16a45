"""Factual recall: brute force over answers, conserved quantities, hitting times by
independent methods, the command.
"""

from __future__ import annotations

import json

import mpmath
import numpy as np
import pytest
import sympy as sp
from later import Later

from theory import onset as command
from theory.associative_memory import factual_recall
from theory.associative_memory.factual_recall import (
    Parameters,
    closed_form,
    equations,
    flow,
    onset,
    time_of_share,
)
from theory.associative_memory.factual_recall.dynamics import PARTS, SUBJECT
from theory.associative_memory.factual_recall.timescales import constants
from theory.call.refusal import ParameterError
from theory.numbers.numeric import function

EQ = Later(equations)
REFERENCE = {
    "steps_relation_90": 1548,
    "steps_relation_50": 1684,
    "steps_relation_10": 1860,
    "steps_subject_90": 4045,
    "steps_subject_50": 4375,
    "steps_subject_10": 4734,
}


@pytest.mark.parametrize(("relations", "answers"), [(2, 2), (3, 4), (5, 3)])
def test_normalisation_by_counting(relations, answers):
    """Sum of exponentials over all R D answers, rationally: relation 0, answer 0 right,
    one subject answer per relation.
    """
    ex, ey = sp.Rational(7, 3), sp.Rational(5, 4)
    total = sum(
        (ex if r == 0 else 1) * (ey if a == 0 else 1)
        for r in range(relations)
        for a in range(answers)
    )
    X, Y = sp.symbols("X Y", real=True)
    form = EQ["recall_partition"].rhs.subs(
        {
            s: v
            for s in EQ["recall_partition"].rhs.free_symbols
            for v in [{"R": relations, "D": answers}.get(s.name)]
            if v
        }
    )
    assert form.subs({X: sp.log(ex), Y: sp.log(ey)}) == total


def test_printed_plateau_and_start():
    """ln D and ln(R D), of four relations with eight answers and of three with five."""
    for p, answers, total in (
        (Parameters(), 8, 32),
        (Parameters(S=15, R=3, D=5), 5, 15),
    ):
        assert EQ["plateau"].evaluate(p.values()) == pytest.approx(
            np.log(answers), rel=1e-15
        )
        assert EQ["initial_loss"].evaluate(p.values()) == pytest.approx(
            np.log(total), rel=1e-15
        )


def test_flow_keeps_its_invariants():
    """w^2 - c delta^2 = epsilon^2 along the integrated flow, until rounding of w^2
    hides it.
    """
    p = Parameters(epsilon=0.05)
    curve = flow().solve(p, t=400.0)
    for part, letter in zip(PARTS, "rs", strict=True):
        kept = EQ[f"conserved_{part.name}"].evaluate(
            p.values()
            | {
                f"w_{letter}": curve[f"w_{letter}"].values,
                f"delta_{letter}": curve[f"delta_{letter}"].values,
            }
        )
        np.testing.assert_allclose(
            kept, p.epsilon**2, atol=1e-9
        )  # 1e-12 relative of terms up to 20


@pytest.mark.parametrize("epsilon", [1e-100, 1e-5, 1e-2, 0.3, 1.0])
@pytest.mark.parametrize("part", PARTS, ids=["relation", "subject"])
def test_hitting_time_by_mpmath(part, epsilon):
    """Quadrature in double precision against the defining integral at 30 digits, at any
    initial weight.
    """
    p = Parameters(S=8, R=3, D=4, epsilon=epsilon)
    v = constants(p, part)
    with mpmath.workdps(30):
        c, K = mpmath.sqrt(v["c_recall"]), v["K"]
        goal = mpmath.log((K - 1) / (mpmath.mpf(K) ** mpmath.mpf("0.5") - 1))
        end = mpmath.asinh(2 * c * goal / mpmath.mpf(epsilon) ** 2) / 2
        form = EQ["hitting_time_exact"].rhs
        (inner,) = form.variables
        names = sorted(form.function.free_symbols - {inner}, key=str)
        density = function(form.function, [inner, *names], "mpmath")
        numbers = [mpmath.mpf(v[x.name]) for x in names]
        places = [mpmath.mpf(0), *mpmath.linspace(max(0, end - 30), end, 10)]
        exact = float(mpmath.quad(lambda q: density(q, *numbers), places))
    assert time_of_share(p, part, 0.5) == pytest.approx(
        exact, rel=1e-11
    )  # quadrature tolerance 1e-12
    if epsilon < 1e-4:
        assert closed_form(p, part, 0.5) == pytest.approx(
            exact, rel=1e-9
        )  # corrections of order epsilon^2 ln epsilon


def test_reference_run_on_record():
    """Steps of the reference run, to the step;
    the flow integrated with events agrees.
    """
    found = onset(Parameters()).numbers
    assert {name: round(found[name]) for name in REFERENCE} == REFERENCE
    assert found["growth_ratio"] == pytest.approx(16 / 4 * np.sqrt(3 / 7), rel=1e-14)


@pytest.mark.parametrize(
    ("subjects", "relations", "answers", "epsilon", "kind"),
    [(16, 4, 8, 1e-5, "flat"), (8, 4, 8, 0.3, "overlap"), (2, 8, 2, 1e-5, "none")],
)
def test_notes_on_the_plateau(subjects, relations, answers, epsilon, kind):
    """A note where the subject comes first, one where both transitions overlap, none
    where the plateau is flat.
    """
    found = onset(Parameters(S=subjects, R=relations, D=answers, epsilon=epsilon))
    numbers = found.numbers
    apart = numbers["steps_subject_90"] >= numbers["steps_relation_10"]
    assert (numbers["growth_ratio"] > 1) == (kind != "none") and (
        apart == (kind == "flat") or kind == "none"
    )
    words = {
        "flat": [],
        "overlap": ["the two transitions overlap"],
        "none": ["no plateau at ln D"],
    }[kind]
    assert len(found.notes) == len(words) and all(
        w in note for w, note in zip(words, found.notes, strict=True)
    )
    # What overlaps is no plateau: half way between the halves the flow is off ln D,
    # else on it.
    middle = (
        (numbers["steps_relation_50"] + numbers["steps_subject_50"])
        / 2
        * numbers["learning_rate"]
    )
    if kind != "none":
        curve = flow().solve(
            Parameters(S=subjects, R=relations, D=answers, epsilon=epsilon),
            at=[middle],
            t=middle,
        )
        assert (abs(float(curve.loss[0]) - np.log(answers)) < 0.05) == (kind == "flat")


def test_closed_form_holds_as_the_start_shrinks():
    """Error of the closed form falls as epsilon^2."""
    errors = [
        abs(closed_form(p, SUBJECT, 0.5) - time_of_share(p, SUBJECT, 0.5))
        for p in (Parameters(epsilon=q) for q in (0.2, 0.1, 0.05))
    ]
    assert errors[0] > 3 * errors[1] > 9 * errors[2] > 0


@pytest.mark.parametrize("sizes", [(8, 2, 4), (4, 2, 4), (8, 4, 4), (8, 2, 8)])
def test_plateau_grows_with_the_logarithm_of_the_start(sizes):
    """What the exact times add between two tiny starts is what the leading logarithm
    adds; the rest does not depend on the start.
    """
    lengths = []
    for epsilon in (1e-80, 1e-60):
        p = Parameters(**dict(zip("SRD", sizes, strict=True)), epsilon=epsilon)
        relation, subject = (time_of_share(p, part, 0.5) for part in PARTS)
        rates = {
            f"lambda_{part.name[0]}": EQ[f"growth_{part.name}"].evaluate(p.values())
            for part in PARTS
        }
        lead = EQ["plateau_length"].evaluate({"epsilon": epsilon, **rates})
        lengths.append((subject - relation, lead))
    (exact, lead), (sooner, less) = lengths
    assert exact - sooner == pytest.approx(
        lead - less, rel=1e-9
    )  # quadrature, 1e-12 of the times
    assert lead > less > 0


@pytest.mark.parametrize("share", [0.9, 0.5, 0.1])
@pytest.mark.parametrize("sizes", [(8, 2, 4), (4, 2, 4), (8, 4, 4), (8, 2, 8)])
def test_shares_of_the_loss_at_hitting_times(sizes, share):
    """Along the integrated flow;
    rates off by 5% move the loss there by more than 5%.
    """
    p = Parameters(**dict(zip("SRD", sizes, strict=True)), epsilon=0.01)
    for part in PARTS:
        time = time_of_share(p, part, share)
        loss = float(flow().solve(p, t=1.05 * time, at=[time])[f"loss_{part.name}"][0])
        # The integrator's 1e-9 of the weights, times the steepness of the drop.
        assert loss / np.log(constants(p, part)["K"]) == pytest.approx(share, rel=1e-6)


def test_late_decay():
    """Losses of both parts approach (K-1)/(2 lambda K t ln(2 lambda K t)), corrections
    of order ln ln t / ln t; they are the whole loss, which vanishes.
    """
    p = Parameters(epsilon=0.1)
    times = [1e5, 1e7]
    curve = flow().solve(p, t=times[-1], at=times)
    assert (np.diff(curve.loss) < 0).all() and curve.loss[-1] < 1e-5
    np.testing.assert_allclose(
        curve.loss, curve.loss_relation + curve.loss_subject, rtol=1e-9
    )
    for part in PARTS:
        v = constants(p, part)
        law = np.array([EQ["late_loss"].evaluate(v | {"t": time}) for time in times])
        gaps = np.abs(curve[f"loss_{part.name}"].values / law - 1)
        assert gaps[1] < gaps[0] < 0.4, part.name
        # Far out, where no integrator gets: the loss ln(1 + (K - 1) e^-X) at the time
        # of gain X.
        X = mpmath.mpf(10) ** 4
        time = EQ["hitting_time"].evaluate(v | {"X_gain": X}, modules="mpmath")
        law = EQ["late_loss"].evaluate(v | {"t": time}, modules="mpmath")
        left = mpmath.log1p((v["K"] - 1) * mpmath.exp(-X))
        assert float(law / left) == pytest.approx(1, abs=2 * np.log(1e4) / 1e4), (
            part.name
        )


def test_descent_tends_to_the_flow():
    """The Euler map's distance to the flow halves with the learning rate."""
    gaps = []
    for eta in (0.4, 0.2):
        p = Parameters.small().replace(eta=eta)
        steps = round(80 / eta)
        gaps.append(
            abs(
                float(flow().descend(p, eta, steps).loss[-1])
                - float(flow().solve(p, t=80.0).loss[-1])
            )
        )
    assert gaps[0] / gaps[1] == pytest.approx(2, abs=0.2)


def test_command(capsys, tmp_path):
    """Flat keys at the top level, one JSON object; a figure; a note where there is no
    plateau; wrong input in one line.
    """
    assert (
        command.main(
            ["associative_memory", "--json", "--plot", str(tmp_path / "o.png")]
        )
        == 0
    )
    found = json.loads(capsys.readouterr().out)
    assert {name: round(found[name]) for name in REFERENCE} == REFERENCE
    assert (
        found["plateau"] == pytest.approx(np.log(8)) and found["learning_rate"] == 0.1
    )
    assert (
        found["initial_loss"] == pytest.approx(np.log(32))
        and (tmp_path / "o.png").stat().st_size > 10_000
    )
    assert (
        command.main(
            [
                "associative_memory.factual_recall",
                "--set",
                "S=2",
                "--set",
                "D=2",
                "--set",
                "R=8",
            ]
        )
        == 0
    )
    assert "no plateau at ln D" in capsys.readouterr().err
    for words, message in (
        (["--set", "S=10"], "S = 10: must be a multiple of D = 8"),
        (["--set", "epsilon=0"], "epsilon = 0.0: must be >= 1e-100"),
    ):
        with pytest.raises(ParameterError, match=message):
            command.main(["associative_memory", *words])


def test_systems_without_an_onset_say_so():
    """One line instead of a traceback; unknown systems name the nearest."""
    with pytest.raises(
        ParameterError, match="theory.onset: not for associative_memory.superposition"
    ):
        command.main(["associative_memory.superposition"])
    with pytest.raises(ParameterError, match="did you mean 'associative_memory.k_hop'"):
        command.main(["associative_memory.khop"])
    assert factual_recall.Parameters is not None


def test_onset_reads_the_curve_that_it_shows():
    """Each crossing where the curve is at that share; the curve ends 1.6 times the last
    of them, or where it was asked to.
    """
    p = Parameters.small()
    found = onset(p)
    curve, last = found.curves()["flow"], 0.0
    for part in ("relation", "subject"):
        loss = curve[f"loss_{part}"] / curve[f"loss_{part}"][0]
        for label in ("90", "50", "10"):
            at = found.numbers[f"steps_{part}_{label}"]
            # Between the times of the curve: linear, to the square of their distance.
            assert np.interp(at, curve.step, loss) == pytest.approx(
                int(label) / 100, abs=2e-3
            )
            last = max(last, at)
    assert curve.step[-1] == pytest.approx(1.6 * last, rel=1e-12)
    assert onset(p, until=5.0).curves()["flow"].t[-1] == 5.0
