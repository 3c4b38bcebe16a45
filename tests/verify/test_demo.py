"""What `make demo` prints: one message, in few lines, each of which says what was measured."""

import re

import pytest

from simulate import runs as store
from theory.state_tracking.levels import LEVELS
from verify import check_table, demo, ensemble, ensembles
from verify.check import estimated
from verify.state_tracking import climb
from verify.trajectories import compare


@pytest.fixture(scope="module")
def four():
    """Students that come with the code, those that the demo trains."""
    p, runs = ensembles("demo")
    return p, runs.isel(seed=slice(4))


@pytest.fixture(scope="module")
def printed(four, tmp_path_factory):
    """Lines of the demo and the files of its folder."""
    folder, said = tmp_path_factory.mktemp("demo"), []
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(demo.students, "main", lambda words: store.write(four[1], words[-1]))
        patch.setattr(demo.progress, "say", lambda text: said.extend(text.splitlines()))
        assert demo.main(["--folder", str(folder)]) == 0
    return said, {path.name for path in folder.iterdir()}


def test_thirty_lines_that_fit(printed):
    """Hundred columns; nothing undecided, no negative zero; every file that a line names is there."""
    lines, files = printed
    assert len(lines) <= 30 and max(map(len, lines)) <= 100
    text = "\n".join(lines)
    assert "undecided" not in text and not re.search(r"-0(\.0+)?(?![\d.])", text)
    named = set(re.findall(r"\w+\.(?:nc|tex|txt|png)", text))
    assert len(named) >= 5 and named <= files


def test_result_first_and_last(printed, four):
    """Who learned when: the times of the students, and errors of both theories, as in the table."""
    lines, _ = printed
    first, last = (k for k, line in enumerate(lines) if line.startswith("RESULT"))
    assert first <= 3 and last == len(lines) - 2
    p, runs = four
    times = demo.first_crossing(runs.A, 0.5).values
    rows = [line.split() for line in lines[first:last] if re.match(r" +\d+ +\d+\.\d\d ", line)]
    assert [row[1] for row in rows] == [f"{t:.2f}" for t in times]
    off = [climb.rms(climb.half_times(p, runs, level), times) for level in ("flow", climb.BEST)]
    assert off[0] > 0.2 and off[1] < 0.005
    assert all(f"{x:.1%}" in lines[last] for x in off)


def test_the_level_that_explains(four):
    """S: the levels one after the other, to the first within 5%; its neighbours are not."""
    p, runs = four
    up = climb.climb(p, runs, "S", "cavity")
    assert list(up) == ["disorder_drawn", "disorder_counts"]
    assert abs(up["disorder_counts"]) < 0.05 < abs(up["disorder_drawn"])
    every = climb.climb(p, runs, "S", every=True)
    assert list(every) == list(LEVELS) and abs(every[climb.BEST]) < 0.002
    assert climb.reason(up).startswith(f"{climb.EXPLAINED} disorder_counts (off by +")
    assert climb.reason({"cavity": -0.3}) == f"{climb.UNKNOWN}: no level of theory describes it"
    assert "weights" not in climb.climb(p, runs, "no such curve")


def test_report_names_that_level(four, tmp_path):
    """In the result, before the table."""
    p, runs = four
    store.write(runs, tmp_path / "students.nc")
    model = demo.registry.find("state_tracking")
    made = demo.report.collect(
        demo.report.Request(model, runs=tmp_path / "students.nc"), "trajectories"
    )
    result, _, table = made.text().partition("\n\n")
    assert len(result.splitlines()) <= 10 and result.startswith("result: ")
    assert "the level disorder_counts" in result.replace("\n  ", " ")
    assert "undecided" not in table.split("\n\n")[0].replace("18 undecided rows are not shown", "")
    assert "-0.0 " not in made.text(wide=True)
    (why,) = {c.band.why for c in made.checks if c.name.startswith("S by our theory")}
    assert why.startswith(climb.EXPLAINED)


def test_how_many_samples_decide():
    """Half, nine in ten and all undecided rows; what no number decides is not promised."""
    rows = [estimated(f"x{k}", "e", 1.0, 1.0, 0.01 * k, 4) for k in range(1, 21)]
    needed = sorted(c.samples_needed for c in rows if c.verdict == "undecided")
    assert len(needed) > check_table.MOST_UNDECIDED
    sizes = check_table.enough(rows)
    assert sizes == {needed[k - 1]: k for k in (len(needed) // 2, 18, len(needed))}
    text = check_table.table(rows)
    assert f"{needed[-1]} for {len(needed)}" in " ".join(text.split())
    assert not any(line.endswith("undecided") for line in text.splitlines())
    never = [estimated("x", "e", 0.0, 0.0, 0.1, 4)]
    assert check_table.enough(never) == {} and "no number does" in check_table.table(never)


def test_where_a_deviation_was_found_has_a_column(four):
    """Not part of the name, which fits beside it."""
    p, runs = four
    made = compare(demo.st.predict(p, runs, accuracies=False)[["A", "R"]].assign_attrs({}), runs)
    head, _, *rows = check_table.rows(made.checks)
    assert head.split()[:2] == ["check", "where"]
    assert rows[0].split()[:4] == ["A", "alpha", "=", made.checks[0].name.rpartition("= ")[2]]
    assert ensemble.SEEDS == demo.SEEDS


def test_rounding_to_zero_has_no_sign():
    """Neither in deviations nor in z."""
    assert check_table.percent(-4e-4) == "+0.0%"
    assert check_table._row(estimated("x", "e", 1.0, 1.0, 0.1, 4))[4] == "0.0"
