"""A network with three trainable pseudo-parameters: Euler integration of the flow, and its times as
the step decreases.
"""

from collections.abc import Iterator
from typing import Any

import numpy as np
import xarray as xr

from simulate.induction_heads import train
from theory import induction_heads as ih
from theory.induction_heads import Parameters
from theory.induction_heads.numbers import emergence
from verify.check import Check, identity, near, with_notes
from verify.induction_heads import flow_laws
from verify.induction_heads.students import HALF, crossings

SIZE = 4
THRESHOLD = 0.1  # threshold of alpha and beta in Fig. 5
RATES = (0.4, 0.2, 0.1, 0.05)


def constrained(N: int, rate: float, length: float, **more: Any) -> xr.Dataset:
    """Train the three-parameter network with a given step size in ``t`` on Haar-random orthonormal
    sequences, one per step.
    """
    p = Parameters.emergence(N=N, D=2 * N).replace(
        eta=rate * 2 * N, batch_size=1, eval_every=1, steps=int(np.ceil(length / rate))
    )
    return train(p, seeds=[0], dtype="float64", **more)


@with_notes
def network(**more: Any) -> Iterator[Check | str]:
    """The network against Euler integration, and its times against the flow as the step size
    decreases.
    """
    exact, path = flow_laws.times(SIZE), emergence.Path(SIZE)
    length = 1.4 * max(exact.values())
    trained = {r: constrained(SIZE, r, length, **more) for r in RATES}
    runs = trained[0.2].isel(seed=0)
    euler = ih.flow().descend(Parameters.emergence(N=SIZE, D=2 * SIZE), 0.2, runs.sizes["t"] - 1)
    three = ["alpha", "beta", "gamma"]
    yield identity(
        "constrained network, every step",
        "flow (B.5), Euler",
        euler[three].to_array(),
        runs[three].to_array(),
        1e-11,
        f"rounding of {euler.sizes['t']} steps, float64",
    )
    times, early = (
        {r: {k: v[0] for k, v in crossings(trained[r], level).items()} for r in RATES}
        for level in (HALF, THRESHOLD)
    )
    yield from (
        "",
        f"constrained network at N = {SIZE}, step in t -> times (flow in the last row):",
    )
    for label, reached in (*((f"{r:<6g}", times[r]) for r in RATES), ("flow  ", exact)):
        yield f"  {label}" + "  ".join(f"{name} {reached[name]:.5f}" for name in exact)
    limits = [(name, exact[name], [times[r][name] for r in RATES]) for name in exact]
    for name, flow, measured in limits:
        error = np.abs(np.array(measured) - flow)
        yield near(
            f"order of convergence of {name} in the rate",
            "flow (B.5)",
            1.0,
            float(np.polyfit(np.log(RATES), np.log(error), 1)[0]),
            0.15,
            "Euler is of order 1; second-order terms at rate 0.4",
        )
    for name, flow in (("T_beta", path.of_beta(THRESHOLD)), ("T_alpha", path.of_alpha(THRESHOLD))):
        label = f"{name} at threshold {THRESHOLD:g}"
        limits.append((label, flow, [early[r][name] for r in RATES]))
    for name, flow, (*_, large, small) in limits:
        yield identity(
            f"{name} extrapolated to rate 0",
            "flow (B.5)",
            flow,
            2 * small - large,
            2e-3,
            "second-order term, and linear interpolation between steps",
        )
