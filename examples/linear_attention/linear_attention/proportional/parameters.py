"""Parameters of linear attention fitted in the proportional limit."""

from dataclasses import dataclass
from typing import Any

import scipy.optimize

from theory.parameters import BaseParameters, Preset, parameter


@dataclass(frozen=True)
class Parameters(BaseParameters):
    """Sizes of task and training set in units of the dimension d, which is that of students alone.

    Raises
    ------
    ParameterError
        For an unknown name or a value out of range.
    """

    PRESETS = {
        "reference": Preset("As published beside the authors' code."),
        "peak": Preset("Near the peak of the error.", tau=1.1, alpha=10.0, kappa=0.5),
        "few_tasks": Preset("Fewer tasks than dimensions.", kappa=0.5, alpha=20.0, tau=20.0),
    }
    alpha: float = parameter(1.0, "pairs in the context over d", low=1e-3, high=1e6)
    kappa: float = parameter(1.0, "training tasks over d", low=1e-3, high=1e6)
    tau: float = parameter(5.0, "training sequences over d^2", low=1e-3, high=1e6)
    rho: float = parameter(0.01, "variance of label noise, that of labels being 1", low=0, high=1e3)
    ridge: float = parameter(0.0, "ridge, per training sequence", low=0, high=1e3)
    d: int = parameter(40, "dimension of tokens, of students", low=4)
    draws: int = parameter(8, "independent training sets", low=2)

    def quantities(self) -> dict[str, Any]:
        """Numbers by symbol name, with the effective ridge and the error on trained tasks."""
        from linear_attention.proportional.errors import equations

        table = equations()
        known = {n: getattr(self, n) for n in ("alpha", "kappa", "tau", "rho")}

        def number(name: str, **more: Any) -> float:
            return float(table[name].evaluate({**known, **more}))

        def at(z: float) -> tuple[float, float]:
            M = number("mp_transform", z=z)
            return M, number("mp_slope", z=z, M_z=M)

        known |= {"ridge": self.ridge, "x_star": (x := number("shown"))}
        known["M_x"], known["dM_x"] = at(x)
        xi = number("xi_below") if self.tau < 1 else 0.0
        if self.ridge:
            off = lambda y: number("effective_ridge", xi=y, M_z=at(x + y)[0]) - self.ridge  # noqa: E731
            xi = scipy.optimize.brentq(off, xi, self.ridge + (1 + x) / self.tau, xtol=1e-15)
        known["xi"], (known["M_z"], known["dM_z"]) = xi, at(x + xi)
        known["s"] = (self.kappa - 1) / x**0.5
        at_peak = self.tau == 1 and not self.ridge
        return known | {"error_trained": float("inf") if at_peak else number("error_trained")}
