"""Saad and Solla, On-line learning in soft committee machines (1995): ledger, and one figure."""

from typing import Any

from committee import dynamics
from committee.simulate import train
from committee.theory import Parameters, flow
from papers.source import Figure, Source
from theory.runtime import plotting


@plotting.panels(1, 2)
def plateau(source: Source, left: Any, right: Any) -> None:
    """Generalisation error and overlaps of students and of the flow."""
    p = Parameters(K=2, N=1000, eta=1.0, R_0=0.2, steps=60_000, eval_every=500)
    runs = source.train(train, p)
    curve = flow().solve(p, alpha=60.0)
    left.semilogy(runs.alpha, runs.loss.transpose("alpha", "seed"), "C0", lw=0.7, alpha=0.6)
    left.semilogy(curve.alpha, curve.loss, "k--", label="flow")
    level = dynamics.phases()["plateau_error"].number(p.values())
    left.axhline(level, color="0.6", ls=":", label="plateau, small $\\eta$")
    left.set(xlabel="examples over N, $\\alpha$", ylabel="generalisation error")
    for k, name in enumerate("RSQC"):
        right.plot(runs.alpha, runs[name].transpose("alpha", "seed"), f"C{k}", lw=0.7, alpha=0.6)
        right.plot(curve.alpha, curve[name], f"C{k}", ls="--", label=f"${name}$, flow")
    right.set(xlabel="examples over N, $\\alpha$", ylabel="overlap")


FIGURES = {
    "plateau": Figure("plateau", "Students on the flow: plateau and specialisation.", plateau)
}
