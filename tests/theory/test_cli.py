"""Commands of the theory wing: output, files, and one-line errors for invalid input."""

from __future__ import annotations

import json
import os
import re
import signal
import sys
import warnings

import matplotlib
import numpy as np
import pytest

from theory import __main__ as listing
from theory import latex, onset
from theory.call.refusal import ParameterError
from theory.models import registry
from theory.runtime import cli
from theory.state_tracking.onset import ONE_TIME as NOTE

matplotlib.use("Agg")
ONE_TIME = f"note: {NOTE}\n"
PNG = b"\x89PNG\r\n\x1a\n"


@pytest.fixture
def call(capsys, tmp_path, monkeypatch):
    """Run a command's main as the shell would, in an empty working directory: (exit
    code, stdout, stderr).

    Warnings would appear on stderr, so they are errors here.
    """
    monkeypatch.chdir(tmp_path)
    before = signal.getsignal(signal.SIGPIPE)

    def command(main, *arguments):
        with pytest.raises(SystemExit) as caught, warnings.catch_warnings():
            warnings.simplefilter("error")
            # Of matplotlib 3.9 alone, about its own parser.
            warnings.filterwarnings("ignore", message="'.*' (argument is )?deprecated")
            cli.run(lambda: main(list(arguments)))
        out = capsys.readouterr()
        return caught.value.code, out.out, out.err

    yield command
    signal.signal(signal.SIGPIPE, before)


def test_onset_table(call):
    """Quantity, value, meaning; nothing on stderr."""
    code, out, err = call(onset.main)
    assert (code, err) == (0, ONE_TIME)
    values = dict(re.findall(r"^(\w+)  +(\S+)", out, re.MULTILINE))
    head, row = (
        line for line in out.splitlines() if re.match("quantity|alpha_half", line)
    )
    columns = dict(zip(head.split(), re.split("  +", row), strict=True))
    assert (
        float(columns["value"]) == float(values["alpha_half"])
        and columns["unit"] == "alpha"
    )
    assert float(values["c_omega"]) == pytest.approx(
        2.28348746823, rel=1e-9
    )  # printed to ten digits
    assert float(values["alpha_half"]) == pytest.approx(2.452067489993, rel=1e-9)
    assert float(values["T_alpha"]) == pytest.approx(
        np.sqrt(2 / 2.28348746823) / 0.5, rel=1e-9
    )


@pytest.mark.parametrize(
    "words", ["--set N=8 L=4", "--set N=8,L=4", "--set N=8 --set L=4"]
)
def test_several_parameters_in_the_ways_that_people_type_them(call, words):
    """All are the same; the model may stand before or after."""
    printed = {
        call(onset.main, *order, "--json")[1]
        for order in ((*words.split(), "--quiet", "state_tracking"), (*words.split(),))
    }
    found = [json.loads(text)["parameters"] for text in printed]
    assert {(p["N"], p["L"]) for p in found} == {(8, 4)}


def test_a_file_without_its_ending_is_named(call, tmp_path, monkeypatch):
    """As a model it is unknown, and is there."""
    monkeypatch.chdir(tmp_path)
    (tmp_path / "copying.py").write_text("")
    code, _, err = call(onset.main, "copying")
    assert code == 2 and "did you mean the file copying.py?" in err


def test_onset_json(call):
    """One object with the numbers at the top level and
    the parameters they belong to.
    """
    code, out, err = call(
        onset.main,
        "state_tracking",
        "--json",
        "--preset",
        "table_2",
        "--set",
        "eta=0.25",
    )
    found = json.loads(out)
    assert (code, err, found["model"]) == (0, ONE_TIME, "state_tracking")
    assert found["c_omega"] == pytest.approx(
        0.98982727567, rel=1e-10
    )  # digits on record
    assert found["T_alpha"] == pytest.approx(
        np.sqrt(2 / found["c_omega"]) / 0.25, rel=1e-14
    )  # rounding
    assert 0 < found["alpha_half"] < 100 and found["notes"] == [NOTE]
    kind = registry.find("state_tracking").wing("theory").Parameters
    assert kind(**found["parameters"]) == kind.table_2().replace(eta=0.25)


@pytest.mark.parametrize(
    "settings", [["S_0=1"], ["d_g=1"], ["d_h=2"], ["zeta=-1e6"], ["R_0=1e4"]], ids=str
)
def test_never_emerges(call, settings):
    """JSON null, words in the table, and one line on stderr that says so."""
    assigned = [a for s in settings for a in ("--set", s)]
    code, out, err = call(onset.main, "--json", *assigned)
    assert code == 0 and json.loads(out)["alpha_half"] is None
    assert err.startswith("note: ") and err.count("\n") == 1
    code, out, err = call(onset.main, *assigned)
    assert code == 0 and re.search(r"^alpha_half +never emerges", out, re.MULTILINE)
    assert err.count("\n") == 1


@pytest.mark.parametrize(
    "end", ["1e6", *(pytest.param(x, marks=pytest.mark.slow) for x in ("0.5", "100"))]
)
def test_run_length(call, end):
    """--alpha sets the length of the curves, however long; the numbers do not depend on
    it.
    """
    code, out, err = call(onset.main, "--alpha", end, "--plot", "figure.png")
    assert (code, err) == (0, ONE_TIME)
    assert re.search(r"^alpha_half +2\.45206749 ", out, re.MULTILINE)


def test_json_with_a_plot(call, tmp_path):
    """Whatever else is asked for, --json leaves one JSON object on stdout."""
    code, out, _ = call(onset.main, "--json", "--plot", "figure.png")
    assert code == 0 and (tmp_path / "figure.png").exists()
    assert json.loads(out)["model"] == "state_tracking"


def test_plot_into_a_file(call, tmp_path):
    """A PNG, its path on stdout after the table, nothing else left behind."""
    code, out, err = call(
        onset.main, "--plot", "deep/er/figure.png", "--set", "N=8", "--set", "d_g=8"
    )
    assert (code, err) == (0, ONE_TIME) and out.splitlines()[-1] == "deep/er/figure.png"
    target = tmp_path / "deep" / "er" / "figure.png"
    assert target.read_bytes()[:8] == PNG and target.stat().st_size > 10_000
    assert [f for f in tmp_path.rglob("*") if f.is_file()] == [target]


@pytest.mark.parametrize(
    "settings",
    [["d_g=1"], *(pytest.param(x, marks=pytest.mark.slow) for x in ([], ["A_0=0.6"]))],
    ids=str,
)
def test_plot_without_a_display(call, tmp_path, settings):
    """Without a file name and a display, a file of a fixed name in the working
    directory.
    """
    code, out, _ = call(
        onset.main,
        "state_tracking",
        "--plot",
        *(a for s in settings for a in ("--set", s)),
    )
    assert code == 0 and out.splitlines()[-1] == "onset_state_tracking.png"
    assert (tmp_path / "onset_state_tracking.png").read_bytes()[:8] == PNG


WRONG = {
    "a model after --plot": (
        ["--plot", "state_tracking"],
        "--plot state_tracking: is a model, not a file",
    ),
    "an unknown picture format": (
        ["--plot", "figure.xyz"],
        "--plot figure.xyz: must end in one of",
    ),
    "an unknown model": (["state_trackin"], "no model named 'state_trackin'"),
    "an unknown preset": (
        ["--preset", "tabel_2"],
        (
            "--preset tabel_2: must be one of table_1, table_2, demo, words_a5,"
            " words_s5; did"
        ),
    ),
    "an unknown parameter": (
        ["--set", "etta=1"],
        "etta: unknown parameter; did you mean 'eta'",
    ),
    "a value out of range": (["--set", "N=1"], "N = 1: must be >= 2"),
    "a value of the wrong kind": (
        ["--set", "N=many"],
        "N = 'many': must be a whole number",
    ),
    "a very long number": (["--set", "N=" + "9" * 400], "N = 999"),
    "no value": (["--set", "N"], "--set N: must be NAME=VALUE"),
    "a missing argument": (["--set"], "--set: expected one argument"),
    "too many actions": (
        ["--set", "permutations=distinct", "--set", "N=3"],
        "d_g = 32: must be <= N! = 6",
    ),
    "a run of no length": (["--alpha", "0"], "--alpha 0: must be positive and finite"),
    "a run of no length in time": (
        ["--until", "0"],
        "--until 0: must be positive and finite",
    ),
    "two lengths of a run": (
        ["--until", "1", "--alpha", "1"],
        "says the same as --until",
    ),
    "a run of no number": (
        ["--alpha", "nan"],
        "--alpha nan: must be positive and finite",
    ),
    "a run of no sense": (["--alpha", "long"], "invalid float value: 'long'"),
    "an unknown flag": (["--jsno"], "unknown flag --jsno"),
}


@pytest.mark.parametrize("arguments", WRONG.values(), ids=WRONG)
def test_wrong_input(call, tmp_path, arguments):
    """Exit code 2, exactly one line on stderr, no file and no half answer."""
    given, message = arguments
    code, out, err = call(onset.main, *given)
    assert code == 2 and out == ""
    assert err.startswith("error: ") and message in err and err.count("\n") == 1
    assert list(tmp_path.iterdir()) == []


def test_unwritable_target(call, tmp_path):
    """A folder in the place of the file: one line, nothing left in it."""
    (tmp_path / "figure.png").mkdir()
    code, _, err = call(onset.main, "--plot", "figure.png")
    assert code == 2 and err.startswith("error: ") and err.count("\n") == 1
    assert [f for f in tmp_path.rglob("*") if f.is_file()] == []


@pytest.mark.parametrize("every", [False, pytest.param(True, marks=pytest.mark.slow)])
def test_listing(call, every, monkeypatch):
    """All models with all equations; of two models in short."""
    if not every:
        some = {
            n: registry.MODELS[n] for n in ("state_tracking", "positional_semantic")
        }
        monkeypatch.setattr(registry, "MODELS", some)
    code, out, err = call(listing.main, "--wide")
    assert (code, err) == (0, "")
    for model in registry.MODELS.values():
        assert f"{model.name}: {model.title}" in out
        for e in model.wing("theory").equations().values():
            assert re.search(
                rf"^{e.name} +{re.escape(e.reference)} +{e.status}", out, re.MULTILINE
            )
    assert (
        max(len(line.rstrip()) - len(line) for line in out.splitlines()) == 0
    )  # no trailing blanks


def test_words_stay_words(call, tmp_path):
    """In drawn formulas; letters below letters are small."""
    path = tmp_path / "noise.py"
    path.write_text(
        'from theory.statement import *\nN, noise_level = sizes("N"),'
        ' number("noise_level")\nletter = sort("letter", N)\nx, w = draw(letter),'
        ' weight("w", letter)\nloss = (w[x] - noise_level) ** 2\nstated ='
        ' statement(loss, name="noise", title="Noise", values=dict(N=3,'
        " noise_level=1.0))\n"
    )
    code, out, _ = call(listing.main, str(path))
    assert code == 0 and "population_loss = " in out and "noise_level" in out
    code, out, _ = call(listing.main, "state_tracking")
    assert (
        code == 0
        and "α_star = " in out
        and "c_ω" in out
        and "zₖ" in out
        and "z_k̅" in out
    )


def test_listing_in_latex(call):
    """One line per equation."""
    code, out, _ = call(listing.main, "state_tracking", "--latex")
    assert code == 0 and r"dR_dalpha:  \frac{d}{d \alpha} R = " in out


@pytest.mark.parametrize(
    "models",
    [["positional_semantic"], pytest.param([], marks=pytest.mark.slow)],
    ids=str,
)
def test_listing_as_json(call, models):
    """What the table shows, and the LaTeX; of all models, where none is named."""
    code, out, err = call(listing.main, *models, "--json")
    found = json.loads(out)
    assert (code, err) == (0, "") and set(found) == set(models or registry.MODELS)
    for name, model in found.items():
        equations = registry.find(name).wing("theory").equations()
        assert [e["name"] for e in model["equations"]] == list(equations)
        assert all(
            e["latex"] == equations[e["name"]].latex() for e in model["equations"]
        )
    assert call(listing.main, "nosuch")[0] == 2


def test_processes(forked):
    """The commands as typed, with clean stderr; wrong input ends in exit code 2 and one
    line.
    """
    done = forked("theory.onset", "--json", "--set", "R_0=1e4")
    assert done.returncode == 0 and json.loads(done.stdout)["alpha_half"] is None
    assert done.stderr.startswith("note: ") and done.stderr.count("\n") == 1
    done = forked("theory.onset", "--set", "L=0")
    assert (done.returncode, done.stdout, done.stderr) == (
        2,
        "",
        "error: L = 0: must be >= 1\n",
    )


def test_reader_that_stops_early(forked):
    """A closed pipe ends the command quietly."""
    reader, writer = os.pipe()
    os.close(reader)

    def closed():
        os.dup2(writer, 1)
        cli.run(lambda: listing.main(["associative_memory.noisy_bigram", "--latex"]))

    done = forked(closed)
    os.close(writer)
    assert (done.returncode, done.stderr) == (141, "")


def test_an_empty_word_is_no_missing_flag(call):
    """``--preset ''`` and ``--equation ''`` name nothing."""
    assert "--preset : must be one of" in call(onset.main, "--preset=")[2]
    assert "--equation : there is none" in call(latex.main, "--equation=")[2]


def test_nonsense_is_not_repeated_whole(call, monkeypatch):
    """Eighty characters of what was typed are enough; a path that exists is left as it
    is.
    """
    monkeypatch.setattr(sys, "argv", ["theory.onset", "--set", "x" * 10_000])
    code, _, err = call(onset.main, "--set", "x" * 10_000)
    assert (
        code == 2
        and err == f"error: --set {'x' * cli.LONGEST_ECHO}...: must be NAME=VALUE\n"
    )


@pytest.mark.parametrize("command", ["laws", "thresholds", "fidelity", "gradients"])
def test_a_bare_command_takes_a_model_that_has_an_answer(command, monkeypatch):
    """The first of the registry that does; for another it says which."""
    run, report = (
        pytest.importorskip(f"verify.checks.{x}") for x in ("command", "report")
    )
    asked = []
    monkeypatch.setattr(
        run, "collect", lambda r, _: asked.append(r.model) or report.Report([])
    )
    run.main(command, "", ("quiet",), [])
    assert command in asked[0].checks
    for model in registry.MODELS.values():
        if command not in model.checks:
            with pytest.raises(
                ParameterError, match=f"not for {model.name}.*{asked[0].name}"
            ):
                run.main(command, "", ("quiet",), [model.name])
