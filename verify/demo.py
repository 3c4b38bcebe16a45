"""Summary of the results of ``make demo``: ``python -m verify.demo``."""

from pathlib import Path

import numpy as np

from simulate.state_tracking.learner import SYSTEM
from theory import state_tracking as st
from theory.parameters import ParameterError
from theory.runtime import cli
from theory.state_tracking import Parameters, per_seed
from theory.state_tracking.levels import own_start
from verify import ensemble
from verify.emergence import first_crossing

FIGURES = {
    "onset.png": "when attention emerges: the flow, exact, against early-time and onset forms",
    "students.png": "every student, the paper's Eq. (15), and our theory from each student's start",
}


def lines(folder: Path) -> list[str]:
    """Summary lines from the files in the demo's folder.

    Raises
    ------
    ParameterError
        If a file is missing.
    """
    for name in ("equations.tex", "students.nc", *FIGURES):
        if not (folder / name).exists():
            raise ParameterError(f"{folder / name}: no such file; run make demo")
    p, runs = ensemble.Source(SYSTEM, Parameters.demo(), "8", {}).read(folder / "students.nc")
    measured = first_crossing(runs.A, 0.5).values
    start, end = per_seed.Start.measured(runs), int(runs.epoch[-1])
    predicted = {
        "one curve by the paper's Eq. (15)": np.full(
            measured.shape, st.numbers.quadrature.emergence_time(p)
        ),
        "Eq. (15) from each student's own start": first_crossing(own_start(p, runs).A, 0.5).values,
        "our theory, from each student's own start": per_seed.half_times(
            per_seed.Cavity(p, start), end
        ),
        "and from its teachers, initial weights and training set": per_seed.half_times(
            per_seed.FixedDisorder(p, start, per_seed.Realisation.of(p, runs)), end
        ),
    }
    summary = [
        f"derived   {len(st.equations())} equations of state tracking (Forner et al., arXiv:2606.18164), each from",
        f"          the ones before it: {folder / 'equations.tex'}",
        f"trained   {runs.sizes['seed']} students of {p.n_train} sequences for {int(runs.epoch[-1])} "
        f"epochs: {folder / 'students.nc'}",
        f"found     they attend (A = 1/2) at alpha = {measured.min():.2f} to {measured.max():.2f}; "
        "predicted, rms error:",
    ]
    for name, times in predicted.items():
        off = np.sqrt(np.nanmean((times / measured - 1) ** 2))
        summary.append(f"          {off:6.1%}  {name}")
    summary += [f"figure    {folder / name}: {text}" for name, text in FIGURES.items()]
    return [*summary, "next      python -m verify.trajectories: the same against twenty students"]


def main(argv: list[str] | None = None) -> int:
    """Command line."""
    parser = cli.parser(
        "verify.demo", "What make demo has derived, trained and found.", model=False
    )
    parser.add_argument(
        "--folder", type=Path, default=Path("output/demo"), help="where make demo wrote its results"
    )
    print("\n".join(lines(parser.parse_args(argv).folder)))
    return 0


if __name__ == "__main__":
    cli.run(main)
