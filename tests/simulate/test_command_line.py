"""The command line of the students: output, files,
and one clear line for wrong input.
"""

import json
import math
import resource
import signal
import sys

import pytest
import torch

from simulate.state_tracking import __main__ as command
from simulate.state_tracking import train
from simulate.store import runs, storage
from theory.call.refusal import ParameterError
from theory.runtime import cli

SMALL = [
    "--workers=1",
    "--quiet",
    "--set=N=6",
    "--set=L=4",
    "--set=d_g=5",
    "--set=d_h=8",
    "--set=n_train=64",
    "--set=n_test=32",
    "--set=epochs=4",
    "--set=eval_every=2",
]


@pytest.fixture
def small(tiny):
    """Parameters that SMALL stands for."""
    return tiny.replace(epochs=4, eval_every=2)


@pytest.fixture
def program(monkeypatch, capsys):
    """Run the command as ``python -m`` would; exit code, stdout and stderr."""

    def run(*arguments: str) -> tuple[int, str, str]:
        before = signal.getsignal(signal.SIGPIPE)
        try:
            with pytest.raises(SystemExit) as ended:
                cli.run(lambda: command.main(list(arguments)))
        finally:
            signal.signal(signal.SIGPIPE, before)
        out, err = capsys.readouterr()
        return ended.value.code, out, err

    return run


def test_table(program, tmp_path):
    code, out, err = program(*SMALL, "--seeds=3,1", f"--out={tmp_path / 'runs'}")
    assert (code, err) == (0, "")
    first, header, _, *rows = out.splitlines()
    assert str(tmp_path / "runs") in first
    assert "alpha = 0.1333" in first  # 4/30
    assert header.split() == [
        "seed",
        "A",
        "R",
        "S",
        "loss",
        "accuracy",
        "rollout_accuracy",
    ]
    assert [row.split()[0] for row in rows] == ["3", "1"]
    stored = runs.open(tmp_path / "runs").isel(alpha=-1)
    for row in rows:
        seed, *values = row.split()
        for name, value in zip(header.split()[1:], values, strict=True):
            assert float(value) == pytest.approx(
                stored[name].sel(seed=int(seed)).item(), abs=5e-5
            )  # four digits shown


def test_json(program, tmp_path, small):
    code, out, err = program(
        *SMALL, "--seeds=2", "--json", f"--out={tmp_path / 'runs'}"
    )
    assert (code, err) == (0, "")
    found = json.loads(out)
    assert found["model"] == "state_tracking"
    assert found["seeds"] == [0, 1]
    assert found["alpha"] == 4 / 30
    assert found["parameters"] == small.stored(training_only=True)
    stored = runs.open(tmp_path / "runs").isel(alpha=-1)
    assert {name: stored[name].values.tolist() for name in found["final"]} == found[
        "final"
    ]


def test_json_has_null_where_there_is_no_number(program):
    code, out, _ = program(*SMALL, "--set=d_g=1", "--json")
    assert code == 0
    assert "NaN" not in out
    assert json.loads(out)["final"]["S"] == [None]


def test_out_as_a_file_holds_the_ensemble(program, tmp_path, small):
    code, _, _ = program(*SMALL, "--seeds=2", f"--out={tmp_path / 'all.nc'}")
    assert code == 0
    assert runs.read(tmp_path / "all.nc").equals(
        train(small, seeds=[0, 1], store=tmp_path / "own", progress=False, workers=1)
    )
    assert (
        len(list(storage.default_store().rglob("seed-*.nc"))) == 2
    )  # the runs themselves stay in the store


def test_out_as_a_folder_is_the_store(program, tmp_path, small):
    assert program(*SMALL, f"--out={tmp_path / 'runs'}")[0] == 0
    assert runs.open(tmp_path / "runs").equals(
        train(small, store=tmp_path / "own", progress=False, workers=1)
    )
    assert not storage.default_store().exists()


def test_without_out_the_default_store_is_used(program):
    code, out, _ = program(*SMALL)
    assert code == 0
    assert str(storage.default_store()) in out
    assert runs.open(storage.default_store()).sizes["seed"] == 1


def test_a_second_call_trains_nothing(program, monkeypatch):
    _, first, _ = program(*SMALL, "--seeds=2")
    monkeypatch.setattr("simulate.training.plan.train_stack", None)
    assert program(*SMALL, "--seeds=2")[1] == first


@pytest.mark.parametrize(
    ("text", "expected"),
    [(None, [0]), ("2", [0, 1]), ("2:4", [2, 3]), ("5,3", [5, 3]), ("7,", [7])],
)
def test_seeds(program, text, expected):
    code, out, _ = program(
        *SMALL,
        "--set=epochs=1",
        "--json",
        *([] if text is None else [f"--seeds={text}"]),
    )
    assert code == 0
    assert json.loads(out)["seeds"] == expected


def test_alpha_is_the_length(program):
    """In place of `epochs`; both are refused."""
    code, _, err = program(*SMALL, "--alpha=0.2")
    assert code == 2 and "--set epochs says it, too" in err
    _, out, _ = program(
        *[w for w in SMALL if "epochs" not in w], "--json", "--alpha=0.2"
    )
    found = json.loads(out)
    assert found["alpha"] == 0.2
    assert found["parameters"]["epochs"] == 6  # 0.2 * 5 * 6


def test_preset_then_set(program):
    _, out, _ = program("--preset=table_2", *SMALL, "--json")
    found = json.loads(out)["parameters"]
    assert (found["rope"], found["N"]) == ("plain", 6)


def test_precision(program, tmp_path):
    for dtype in ("float32", "float64"):
        program(*SMALL, f"--dtype={dtype}", f"--out={tmp_path / dtype}.nc")
    single, double = (
        runs.read(tmp_path / f"{dtype}.nc") for dtype in ("float32", "float64")
    )
    difference = abs(single.loss - double.loss).max()
    assert 0 < difference < 1e-6  # rounding of single precision after four steps


def test_progress_goes_to_stderr_and_quiet_silences_it(program, tmp_path, monkeypatch):
    """On a terminal; a file gets a line a minute, so nothing of what takes a second."""
    loud = [argument for argument in SMALL if argument != "--quiet"]
    assert program(*loud, f"--out={tmp_path / 'file'}")[2] == ""
    monkeypatch.setattr(sys.stderr, "isatty", lambda: True)
    code, out, err = program(*loud, f"--out={tmp_path / 'a'}")
    assert code == 0
    assert "4/4" in err
    assert "training" not in out
    assert program(*SMALL, f"--out={tmp_path / 'b'}")[2] == ""


WRONG = [
    (["--seeds=x"], "--seeds"),
    (["--seeds=0"], "--seeds"),
    (["--seeds=-1"], "--seeds"),
    (["--seeds=3:1"], "--seeds"),
    (["--seeds=1,1"], "--seeds"),
    (["--seeds="], "--seeds"),
    (["--seeds=1:2:3"], "--seeds"),
    (["--seeds=1.5"], "--seeds"),
    (["--alpha=0"], "alpha"),
    (["--alpha=-1"], "alpha"),
    (["--alpha=nan"], "alpha"),
    (["--alpha=inf"], "alpha"),
    (["--alpha=x"], "alpha"),
    (["--set=N=1"], "N = 1"),
    (["--set=N"], "NAME=VALUE"),
    (["--set=n_tran=5"], "n_train"),
    (["--set=N=many"], "whole number"),
    (["--set=d_h=7"], "multiple of 2"),
    (["--set=optimizer=sdg"], "sgd, adam"),
    (["--set=batch_size=65"], "batch_size"),
    (["--set=permutations=distinct", "--set=N=2"], "d_g = 5"),
    (["--preset=table_3"], "table_1"),
    (["--dtype=float16"], "float32"),
    (["--workers=0"], "--workers"),
    (["--workers=-2"], "--workers"),
    (["--workers=two"], "--workers"),
    (["--device=tpu"], "device"),
    (["--device="], "device"),
    (["--device=meta"], "device"),
    (["--device=hpu"], "device"),
    (["--nonsense"], "--nonsense"),
    (["state_tracking"], "state_tracking"),
]


@pytest.mark.parametrize(
    ("arguments", "named"),
    WRONG,
    ids=lambda x: " ".join(x) if isinstance(x, list) else "",
)
def test_wrong_input_is_one_line_and_exit_code_2(program, arguments, named):
    code, out, err = program(*SMALL, *arguments)
    assert code == 2
    assert out == ""
    assert err.startswith("error: ")
    assert err.count("\n") == 1
    assert named in err


@pytest.mark.skipif(torch.cuda.is_available(), reason="there is one")
@pytest.mark.parametrize("name", ["cuda", "cuda:0"])
def test_a_gpu_that_is_not_there_is_refused(program, name):
    code, out, err = program(*SMALL, f"--device={name}")
    assert (code, out) == (2, "")
    assert err == f"error: device = {name!r}: not here; there are cpu\n"


def test_a_store_that_cannot_be_is_one_line(program, tmp_path):
    (tmp_path / "file").write_text("in the way")
    code, out, err = program(*SMALL, f"--out={tmp_path / 'file'}")
    assert (code, out) == (2, "")
    assert err.startswith("error: ")
    assert err.count("\n") == 1


@pytest.mark.parametrize("name", ["--help", "-h"])
def test_help(program, name):
    code, out, _ = program(name)
    assert code == 0
    assert all(
        flag in out
        for flag in (
            "--seeds",
            "--alpha",
            "--set",
            "--preset",
            "--out",
            "--json",
            "--device",
            "--quiet",
        )
    )


def test_main_returns_to_a_program(capsys):
    assert command.main([*SMALL, "--json"]) == 0
    assert math.isfinite(json.loads(capsys.readouterr().out)["final"]["loss"][0])
    with pytest.raises(ParameterError):
        command.main([*SMALL, "--seeds=x"])


def test_as_a_process_wrong_input_is_one_line(forked):
    done = forked("simulate.state_tracking", *SMALL, "--set=N=0")
    assert (done.returncode, done.stdout) == (2, "")
    assert done.stderr == "error: N = 0: must be >= 2\n"


def test_as_a_process_on_a_full_disk_it_says_so_and_leaves_nothing(tmp_path, forked):
    def limited():
        resource.setrlimit(resource.RLIMIT_FSIZE, (4096, 4096))  # of any file, in bytes
        cli.run(lambda: command.main([*SMALL, f"--out={tmp_path / 'runs'}"]))

    done = forked(limited)
    assert (done.returncode, done.stdout) == (2, "")
    assert done.stderr.startswith("error: ")
    assert done.stderr.count("\n") == 1
    assert not [f for f in tmp_path.rglob("*") if f.is_file() and f.suffix != ".lock"]
