"""Arrays that take long: once for the same arguments and code, and never in memory
alone.
"""

import numpy as np

from theory.state_tracking import Parameters
from verify.checks import report_store
from verify.compare import emergence

made = []


@report_store.kept
def doubled(p: Parameters, seeds: list[int], **training) -> np.ndarray:
    """Something that depends on both."""
    made.append(p)
    return 2 * p.eta * np.array(seeds)


def test_an_array_is_made_once(tmp_path, monkeypatch):
    """By arguments and code; without a store each time."""
    p = Parameters.demo()
    monkeypatch.setattr(report_store, "_code", lambda function: "now")
    for _ in range(2):
        doubled(p, [1, 2])
    assert len(made) == 2
    with report_store.arrays(tmp_path):
        first, again = (doubled(p, range(3), progress=x) for x in (False, True))
        assert len(made) == 3 and (first == again).all() and first[2] == 4 * p.eta
        assert (
            doubled(p, [1])[0] == 2 * p.eta
            and doubled(p.replace(eta=0.25), [1])[0] == 0.5
        )
        assert len(made) == 5
        monkeypatch.setattr(report_store, "_code", lambda function: "later")
        doubled(p, range(3))
        assert len(made) == 6
    doubled(p, range(3))
    assert len(made) == 7 and len(list(tmp_path.rglob("doubled-*.npy"))) == 4
    assert not list(tmp_path.rglob(".doubled*"))


def test_the_code_of_an_array():
    """The digest of a function, from its file."""
    codes = {
        report_store._code(f)
        for f in (emergence.first_crossing, emergence.smooth_crossing)
    }
    assert len(codes) == 2 and all(len(c) == 16 for c in codes)
