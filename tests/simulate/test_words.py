"""Word problems from a file: teachers read off, students trained on its words, theory
that counts them; anything else is refused in one line.
"""

import numpy as np
import pytest

from simulate import __main__ as command
from simulate.state_tracking import Parameters, train
from theory import state_tracking as st
from theory.call.refusal import ParameterError
from theory.state_tracking.model import groups, task
from theory.state_tracking.single_students.realisation import Realisation

SMALL = Parameters(n_train=200, n_test=40, d_h=8, epochs=40, eval_every=20)
ALONE = dict(progress=False, workers=1)


def file_of(name="S_3_regular", count=240, L=4):
    """A file as the suites have it; the identity, where words start, is left out."""
    table, rng = groups.table(name), np.random.default_rng(0)
    lines = ["seed,input,target"]
    for _ in range(count):
        word, state, passed = rng.integers(len(table), size=L), 0, []
        for a in word:
            state = table[a, state]
            passed.append(state)
        lines.append(f"0,{' '.join(map(str, word))},{' '.join(map(str, passed))}")
    return "\n".join(lines) + "\n"


@pytest.fixture(scope="module")
def read():
    return task.read(SMALL, file_of())


def test_teachers_and_words_are_the_files(read):
    p, found = read
    assert (p.N, p.d_g, p.L) == (6, 6, 4)
    assert (found.permutations == groups.table("S_3_regular")).all()
    assert len(found.train.actions) == 200 and len(found.test.actions) == 40
    assert (found.train.states[:, 0] == 0).all()


def test_students_learn_the_words_and_theory_counts_them(read, tmp_path):
    """Starting always at the identity, its columns of M are seen most: the theory of
    these words follows, that of drawn ones does not.
    """
    p, found = read
    runs = train(p, seeds=[0, 1], words=found, store=tmp_path, **ALONE)
    given = Realisation.of_seeds(p, [0, 1], words=found)
    curve = st.predict(p, runs, level="fixed_disorder", given=given)
    other = st.predict(
        p,
        runs,
        level="fixed_disorder",
        given=Realisation.of_seeds(p, [0, 1], found.permutations),
    )
    off, off_other = (float(abs(c.loss - runs.loss).max()) for c in (curve, other))
    assert off < 0.02 and off_other > 3 * off, (off, off_other)
    for ask, message in (
        (lambda: st.predict(p, runs), "trained on a file's words"),
        (lambda: st.predict(p, runs, level="cavity"), "given by the user"),
        (
            lambda: train(p.replace(L=5), words=found, store=tmp_path, **ALONE),
            "L = 5: must be 4",
        ),
        (
            lambda: train(p, words=found, permutations=found.permutations, **ALONE),
            "must not be given with words",
        ),
    ):
        with pytest.raises(ParameterError, match=message):
            ask()


def test_the_command_reads_a_file(tmp_path, capsys):
    (tmp_path / "S3=4.csv").write_text(file_of())
    asked = [
        f"--set={k}={getattr(SMALL, k)}" for k in ("n_train", "n_test", "d_h", "epochs")
    ]
    main = ["state_tracking", f"--data={tmp_path / 'S3=4.csv'}", "--quiet", *asked]
    assert command.main([*main, f"--out={tmp_path / 'runs'}", "--workers=1"]) == 0
    assert "students at epoch 40" in capsys.readouterr().out
    with pytest.raises(ParameterError, match="only for state_tracking"):
        command.main(["linear_attention", f"--data={tmp_path / 'S3=4.csv'}"])


BROKEN = [
    (lambda t: t.replace("target", "aim"), "column target is missing"),
    (lambda t: "", "column input is missing"),
    (lambda t: "\n".join(t.splitlines()[:100]), "has 99 words, must have n_train"),
    (lambda t: t.replace("0,", "0,x ", 1), "whole numbers"),
    (lambda t: t.replace("0,", "0,1 ", 1), "whole numbers"),
    (lambda t: t.replace("\n0,", "\n0,-"), "numbers from 0 to"),
    (lambda t: t.replace("0,1 2", "0,99999 2"), "from 0|never|different"),
    (lambda t: t[:-2] + str((int(t[-2]) + 1) % 6) + "\n", "to different states"),
]


@pytest.mark.parametrize(("change", "message"), BROKEN, ids=range(len(BROKEN)))
def test_broken_files_are_refused(change, message):
    with pytest.raises(ParameterError, match=message) as caught:
        task.read(SMALL, change(file_of()), "--data a.csv")
    assert "\n" not in str(caught.value) and str(caught.value).startswith(
        "--data a.csv"
    )


def test_what_a_file_does_not_show_is_refused():
    few = SMALL.replace(n_train=8, n_test=1)
    with pytest.raises(ParameterError, match="never shows where action"):
        task.read(few, file_of())
    one = "input,target\n" + "0 1,0 0\n" * 9
    with pytest.raises(ParameterError, match="never shows|different states"):
        task.read(few, one.replace("0 1,0 0", "0 1,0 1") + "1 1,0 0\n")
    with pytest.raises(ParameterError, match="permutations = 'Z_5': must be iid"):
        task.read(Parameters(N=5, d_g=5, permutations="Z_5"), file_of())
