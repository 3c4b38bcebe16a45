"""What `make demo` prints: one message, in few lines, each of which says what was
measured.
"""

import re
import warnings

import pytest

from simulate.store import runs as store
from theory import state_tracking
from theory.state_tracking.single_students.levels import LEVELS
from verify import demo, ensembles
from verify.checks import check_table
from verify.checks.check import estimated
from verify.state_tracking import fidelity, gradients
from verify.trajectories import compare


@pytest.fixture(scope="module")
def four():
    """Students that come with the code, those that the demo trains."""
    p, runs = ensembles("demo")
    return p, runs.isel(seed=slice(4))


@pytest.fixture(scope="module")
def printed(four, tmp_path_factory):
    """Lines of the demo, the files of its folder, and its report of trajectories."""
    folder, said, made = tmp_path_factory.mktemp("demo"), [], []
    collect = demo.report.collect
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(
            demo.students, "main", lambda words: store.write(four[1], words[-1])
        )
        patch.setattr(
            gradients, "GRADIENTS", gradients.GRADIENTS[:2]
        )  # which has its own tests
        patch.setattr(demo.progress, "say", lambda text: said.extend(text.splitlines()))
        patch.setattr(
            demo.report, "collect", lambda *of: made.append(collect(*of)) or made[-1]
        )
        assert demo.main(["--folder", str(folder)]) == 0
    return said, {path.name for path in folder.iterdir()}, made[-1]


def test_what_the_table_tells_is_no_warning(four):
    """How far the paper's curve is from the students."""
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        demo.result(*four)


def test_thirty_lines_that_fit(printed):
    """Hundred columns; nothing undecided, no negative zero; files that lines name are
    there.
    """
    lines, files, _ = printed
    assert len(lines) <= 30 and max(map(len, lines)) <= 100
    text = re.sub(
        r"in /\S+", "", "\n".join(lines)
    )  # without the folder, whose name may be any
    assert "undecided" not in text and not re.search(r"-0(\.0+)?(?![\d.])", text)
    named = set(re.findall(r"\w+\.(?:nc|tex|txt|png)", text))
    assert len(named) >= 5 and named <= files


def test_result_first_and_last(printed, four):
    """Who learned when: the times of the students, and errors of both theories, as in
    the table.
    """
    lines, *_ = printed
    first, last = (k for k, line in enumerate(lines) if line.startswith("RESULT"))
    assert first <= 3 and last == len(lines) - 2
    p, runs = four
    times = fidelity.half_times(runs)
    rows = [
        line.split()
        for line in lines[first:last]
        if re.match(r" +\d+ +\d+\.\d\d ", line)
    ]
    assert [row[1] for row in rows] == [f"{t:.2f}" for t in times]
    off = [
        fidelity.rms(
            fidelity.half_times(
                state_tracking.predict(p, runs, level=x, accuracies=False)
            ),
            times,
        )
        for x in ("flow", fidelity.BEST)
    ]
    assert off[0] > 0.2 and off[1] < 0.005
    assert all(f"{x:.1%}" in lines[last] for x in off)


def test_the_level_that_explains(four):
    """S: off by tens of per cent where the training set is known by its size alone; the
    best level is right in all. Levels that do not describe the students are left out.
    """
    p, runs = four
    off = fidelity.climb(p, runs)
    assert list(off) == list(LEVELS)
    assert abs(off["cavity"]["S"]) > 0.2
    assert max(map(abs, off[fidelity.BEST].values())) < 0.005
    with_batches = runs.assign_attrs(
        parameters=p.replace(batch_size=64, unit="step").as_json()
    )
    assert fidelity.climb(p, with_batches) == {}


def test_report_shows_the_levels(printed):
    """The result comes first, then the levels;
    undecided rows are counted, not shown.
    """
    *_, made = printed
    result, levels, *rest = made.text().split("\n\n")
    assert len(result.splitlines()) <= 10 and result.startswith("result: ")
    assert levels.startswith(fidelity.TITLE) and fidelity.BEST in levels
    undecided = sum(c.verdict == "undecided" for c in made.checks)
    assert undecided > check_table.MOST_UNDECIDED
    assert f"{undecided} undecided rows are not shown" in rest[0]
    assert not any(line.endswith("undecided") for line in rest[0].splitlines())
    assert "-0.0 " not in made.text(wide=True)


def test_how_many_samples_decide():
    """Nine in ten of the undecided rows; what no number decides is not promised."""
    rows = [estimated(f"x{k}", "e", 1.0, 1.0, 0.01 * k, 4) for k in range(1, 21)]
    needed = sorted(c.samples_needed for c in rows if c.verdict == "undecided")
    assert len(needed) > check_table.MOST_UNDECIDED
    least, size, decided = check_table.enough(rows)
    assert decided == -(-9 * len(needed) // 10) and size == needed[decided - 1]
    assert least == needed[0] < size
    text = check_table.table(rows)
    words = (
        f"decide {decided} of {len(needed)} undecided rows, {least} the first of them"
    )
    assert f"{size} samples (seeds) would {words}" in " ".join(text.split())
    assert not check_table.rows(rows)[0].startswith("check")  # a table without a row
    assert not any(line.endswith("undecided") for line in text.splitlines())
    never = [estimated("x", "e", 0.0, 0.0, 0.1, 4)]
    assert check_table.enough(never) == (
        0,
        0,
        0,
    ) and "would decide" not in check_table.table(never)


def test_where_a_deviation_was_found_has_a_column(four, monkeypatch):
    """Not part of the name, which fits beside it."""
    monkeypatch.setenv("COLUMNS", "100")
    p, runs = four
    made = compare(
        state_tracking.predict(p, runs, accuracies=False)[["A", "R"]].assign_attrs({}),
        runs,
    )
    head, _, *rows = check_table.rows(made.checks)[0].splitlines()
    assert head.split()[:2] == ["check", "where"]
    assert rows[0].split()[:4] == [
        "A",
        "alpha",
        "=",
        made.checks[0].name.rpartition("= ")[2],
    ]


def test_rounding_to_zero_has_no_sign():
    """Neither in deviations nor in z."""
    assert check_table.percent(-4e-4) == "+0.0%"
    assert check_table._row(estimated("x", "e", 1.0, 1.0, 0.1, 4))[4] == "0.0"
