"""The exponent with which a difference shrinks with a step, fitted together with next
orders.
"""

from dataclasses import dataclass, replace

import numpy as np

from verify.checks.check import Check, estimated
from verify.checks.verdict import Z_MAX, detectable_effect, normal_z, samples_needed

APART = 0.5  # orders differ by as much
CLOSE = APART / 8  # never another order
NEARER = (
    0.8  # refined exponents of a right theory are nearer to the order at least by this
)
WHY = "exponents between smaller steps approach the order"


@dataclass(frozen=True)
class Rate:
    """How a difference shrinks with a step: ``difference ~ step**exponent``.

    Attributes
    ----------
    order : float or None
        Expected exponent; None if there must be no difference.
    exponent, error : float
        At step zero: the next orders are fitted, too. NaN where every difference is
        zero.
    steps : tuple of float
        Falling.
    differences, errors : tuple of float
        Root mean square of measured - theory over all values, each in units of the
        largest value of its variable, and standard error: of rounding and of seeds.
    local : tuple of float
        Exponents between neighbouring steps.
    allowed : float
        Largest distance of the exponent from the order: by chance, as far as next
        orders are seen to take it, or 1/16.
    offset : float
        Smallest constant error of the theory, in the units of `differences`, with which
        the verdict would not have been *agrees*; infinite if it is not.
    seeds : float
        Number of seeds behind the errors; infinite where there are none.
    """

    order: float | None
    exponent: float
    error: float
    steps: tuple[float, ...]
    differences: tuple[float, ...]
    errors: tuple[float, ...]
    local: tuple[float, ...]
    allowed: float
    offset: float
    seeds: float

    @property
    def verdict(self) -> str:
        """*none*: no difference at all (or, without order, none beyond its errors).
        *FAIL*: the exponent is another one, or a difference should not be. *undecided*:
        the difference drowns in its errors, or steps are too large. Otherwise *agrees*.
        """
        if self.order is None:
            far = float(np.max(np.array(self.differences) / self.errors))
            return "none" if normal_z(far, self.seeds) <= Z_MAX else "FAIL"
        if not any(
            d > e / 2 for d, e in zip(self.differences, self.errors, strict=True)
        ):
            return "none"
        if abs(self.exponent - self.order) > self.allowed:
            return "FAIL"
        sharp = detectable_effect(self.seeds) * self.error <= APART
        near = abs(self.exponent - self.order) <= APART / 2
        return "agrees" if sharp and near else "undecided"

    def check(self, name: str, equation: str = "") -> Check:
        """A row of a report."""
        if self.order is None:
            pairs = zip(self.differences, self.errors, strict=True)
            worst = max(pairs, key=lambda pair: pair[0] / pair[1])
            return estimated(name, equation, 0.0, *worst, self.seeds, scale=1.0)
        spread = self.error * np.sqrt(self.seeds)
        needed = samples_needed(spread, APART) if np.isfinite(spread) else None
        z = abs(self.exponent - self.order) / self.error
        return Check(
            name,
            equation,
            self.order,
            self.exponent,
            z,
            self.allowed / self.error,
            WHY,
            standard_error=self.error,
            resolution=self.offset,
            samples_needed=needed,
        )

    def __str__(self) -> str:
        """Steps with their differences, and the result in a line."""
        rows = zip(self.steps, self.differences, (np.nan, *self.local), strict=True)
        lines = ["step        difference  exponent"]
        for h, difference, exponent in rows:
            line = f"{h:<12.6g}{difference:<12.3e}{exponent:.4f}"
            lines.append(line.removesuffix("nan"))
        result = f"{self.exponent:.4f} +- {self.error:.1e}, expected {self.order}"
        result += f": {self.verdict}"
        if np.isfinite(self.offset):
            result += f"; a constant error of {self.offset:.1e} would have been noticed"
        return "\n".join([*lines, result])


def fitted(
    h: np.ndarray, order: float | None, gaps: list[np.ndarray], floors: np.ndarray
) -> Rate:
    """The exponent of differences."""
    n, seeds = len(h), len(gaps[0])
    samples = float(seeds) if seeds > 1 else np.inf

    def logs(parts: list[np.ndarray]) -> np.ndarray:
        """Logarithms of root mean squares."""
        means = [np.sqrt((x.mean(0) ** 2).mean()) for x in parts]
        return np.log(np.maximum(means, floors / 2))

    def without(seed: int) -> list[np.ndarray]:
        return [np.delete(x, seed, 0) for x in gaps]

    fewer = np.array([logs(gaps)])
    if seeds > 1:
        fewer = np.array([logs(without(seed)) for seed in range(seeds)])
    # Without the share of noise.
    log_sizes = seeds * logs(gaps) - (seeds - 1) * fewer.mean(0)
    sizes = np.exp(log_sizes)

    def scatter(of: np.ndarray) -> np.ndarray:
        """Standard errors of linear combinations of the logarithms."""
        squares = ((fewer - fewer.mean(0)) @ of.T) ** 2
        scattered = (1 - 1 / len(fewer)) * squares.sum(0)
        return np.sqrt(scattered + ((of * floors / sizes) ** 2).sum(1))

    noise = [x.var(0, ddof=min(1, seeds - 1)).mean() / seeds for x in gaps]
    fits = np.zeros((n - 1, n))  # of the exponent: so many next orders, as combinations
    for k in range(n - 1):
        used = slice(0 if seeds > 1 else n - k - 2, None)
        columns = [np.ones(n), np.log(h), *((h / h[0]) ** j for j in range(1, k + 1))]
        w = 1 / scatter(np.eye(n))[used] if seeds > 1 else np.ones(k + 2)
        fits[k, used] = np.linalg.pinv(np.stack(columns, 1)[used] * w[:, None])[1] * w
    changes = np.diff(fits @ log_sizes)
    best = int(np.argmin(np.hypot(scatter(fits)[1:], changes))) + 1
    chance = float(scatter(fits)[best])

    def result(x: np.ndarray) -> Rate:
        local = np.diff(x) / np.diff(np.log(h))
        first, power = (float(fits[k] @ x) for k in (0, best))
        spread = abs(power - first) if seeds > 1 else abs(float(local[-1] - local[-2]))
        nearer = NEARER * abs(first - (order or 0))
        further = (1 + (seeds < 2)) * spread
        allowed = max(detectable_effect(samples) * chance, nearer, further, CLOSE)
        columns = h, np.exp(logs(gaps)), np.sqrt(floors**2 + noise), local
        steps, apart, errors, between = (
            tuple(map(float, column)) for column in columns
        )
        error = float(np.hypot(chance, spread))
        return Rate(
            order, power, error, steps, apart, errors, between, allowed, np.inf, samples
        )

    def shifted(by: float) -> Rate:
        return result(np.log(np.maximum(abs(sizes + by), floors)))

    rate, unseen = result(log_sizes), [0.0]
    for x in sizes.max() * np.geomspace(1e-9, 1, 361):
        if any(shifted(by).verdict == "agrees" for by in (x, -x)):
            unseen.append(x)
    return replace(rate, offset=max(unseen)) if rate.verdict == "agrees" else rate
