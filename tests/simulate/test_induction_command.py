"""``python -m simulate.induction_heads``: tables, JSON, files, one line for wrong
input.
"""

import json

import pytest

from simulate.induction_heads import __main__ as command
from simulate.store import runs
from theory.call.refusal import ParameterError

TINY = [
    "--quiet",
    "--workers=1",
    "--device=cpu",
    "--set=N=2",
    "--set=D=4",
    "--set=steps=4",
    "--set=batch_size=4",
]


def test_table(capsys, tmp_path):
    assert command.main([*TINY, "--seeds=2", f"--out={tmp_path / 'e.nc'}"]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert lines[0].startswith("students at step 4, t = 0.25") and lines[1].split()[
        :4
    ] == ["seed", "alpha", "beta", "gamma"]
    assert runs.read(tmp_path / "e.nc").sizes["seed"] == 2


def test_json_of_the_standard_transformer(capsys, tmp_path):
    sizes = [
        "--set=D=8",
        "--set=steps=2",
        "--set=batch_size=4",
        "--quiet",
        "--workers=1",
        "--device=cpu",
    ]
    assert (
        command.main(["--system", "standard", *sizes, "--json", "--out", str(tmp_path)])
        == 0
    )
    found = json.loads(capsys.readouterr().out)
    assert found["system"] == "standard" and set(found["final"]) == {"loss", "accuracy"}


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["--set", "N=0"], "N = 0: must be >= 1"),
        (["--set", "data=orthonormal", "--set", "D=8"], "D = 8: must be >= 2 N = 32"),
        (["--preset", "demoo"], "did you mean 'demo'"),
        (["--system", "standard", "--alpha", "3"], "--alpha"),
        (["--system", "standard", "--set", "N=3"], "N: unknown parameter"),
        (["--alpha", "-1"], "--alpha -1: must be positive"),
        (["--system", "stand"], "did you mean 'standard'"),
        (["--device", "nowhere"], "device = 'nowhere': not here"),
        (["--seeds", "0"], "--seeds 0"),
    ],
)
def test_wrong_input(words, message, tmp_path):
    with pytest.raises(ParameterError, match=message) as caught:
        command.main([*words, "--quiet", "--out", str(tmp_path)])
    assert "\n" not in str(caught.value) and not list(tmp_path.iterdir())
