"""Sign changes of a function of time, by subdivision: on every part the function is a Chebyshev
series, which excludes a zero, shows at most one, or is halved.
"""

from collections.abc import Callable, Iterator, Sequence

import numpy as np

from theory.parameters import ParameterError

DEGREE = 8  # of the series
NODES = -np.cos(np.pi * np.arange(DEGREE + 1) / DEGREE)  # from -1 to 1
COEFFICIENTS = np.linalg.inv(np.polynomial.chebyshev.chebvander(NODES, DEGREE)).T
SLOPES = np.array([np.polynomial.chebyshev.chebder(row, axis=0) for row in np.eye(DEGREE + 1)])
NARROWEST = 2.0**-48  # of the whole, a part that is not halved any more
MOST_PARTS = 20_000
LARGEST = 1e300
POLE = 1e6  # growth towards a sign change that is none through zero
Function = Callable[[np.ndarray], np.ndarray]


class NoSign(ParameterError):
    """A function that is no real number at a time, or changes its sign too often there."""

    def __init__(self, why: str, time: float) -> None:
        super().__init__(why)
        self.why, self.time = why, time


def _excluded(values: np.ndarray) -> np.ndarray:
    """Whether there is no zero between the first and last node, for every row."""
    size = np.abs(values @ COEFFICIENTS)
    return size[..., 0] > size[..., 1:].sum(-1) + _remainder(size)


def _monotone(values: np.ndarray) -> bool:
    """Whether the slope has no zero between the first and last node."""
    series = values @ COEFFICIENTS
    size = np.abs(series @ SLOPES)
    # the remainder of a slope is larger by the square of the degree
    return bool(size[0] > size[1:].sum() + DEGREE**2 * _remainder(np.abs(series)))


def _remainder(size: np.ndarray) -> np.ndarray:
    """Bound for what the series leaves out, by its last three coefficients."""
    return 4 * size[..., -3:].sum(-1)


def sign_changes(
    of: Function, edges: Sequence[float] | np.ndarray, noise: Function
) -> Iterator[tuple[float, float]]:
    """Brackets of the sign changes of a function, in order.

    Parameters
    ----------
    of : callable
        Function of an array of times, smooth between the edges unless it jumps.
    edges : array
        Increasing times.
    noise : callable
        Size of the function's errors at times; a value below is no sign.

    Raises
    ------
    NoSign
        If it changes too often, or is not a number at a time.
    """
    edges = np.asarray(edges, float)
    low, high = edges[:-1], edges[1:]
    times = low[:, None] + (high - low)[:, None] * (NODES + 1) / 2
    times[:, -1] = high
    values = of(times.ravel()).reshape(times.shape)
    typical = np.nanmedian(np.abs(values))
    before: tuple[float, float] | None = None  # the last time with a sign, and the value there
    narrow, count = NARROWEST * (edges[-1] - edges[0]), 0

    for k in range(len(low)):
        if before is not None and _excluded(values[k]):
            before = (times[k, -1], values[k, -1])
            continue
        parts = [(times[k], values[k])]
        while parts:
            t, v = parts.pop()
            count += 1
            if np.isnan(v).any():
                raise NoSign("is no real number", t[np.isnan(v)][0])
            if count > MOST_PARTS:
                raise NoSign("changes its sign too often", t[0])
            v = np.clip(v, -LARGEST, LARGEST)
            tiny = t[-1] - t[0] <= narrow
            quiet = not tiny and not _excluded(v) and np.abs(v).max() <= noise(t[[4]])[0]
            if not (tiny or quiet or _excluded(v) or _monotone(v)):
                middle = (t[0] + t[-1]) / 2
                for a, b in ((middle, t[-1]), (t[0], middle)):
                    inner = a + (b - a) * (NODES + 1) / 2
                    inner[-1] = b
                    parts.append((inner, of(inner)))
                continue
            for at, value in ((t[0], v[0]), (t[-1], v[-1])):
                if quiet or not abs(value) > noise(np.array([at]))[0]:
                    continue
                if before is not None and (value > 0) != (before[1] > 0):
                    near = min(abs(value), abs(before[1]))
                    if not (tiny and near > POLE * max(typical, np.abs(values[k, [0, -1]]).min())):
                        yield before[0], at
                before = (at, value)
