"""Checks as text: a summary line, a table, and what to read below it."""

import textwrap
from collections import Counter
from collections.abc import Sequence

import numpy as np

from theory.runtime import output
from verify.check import VERDICTS, Z_REASON, Check
from verify.significance import Z_MAX


def summary(checks: Sequence[Check]) -> str:
    """Number of checks with each verdict, as text."""
    counts = Counter(c.verdict for c in checks)
    return ", ".join(f"{counts[v]} {v}" for v in VERDICTS if counts[v] or v == "FAIL")


def table(checks: Sequence[Check], *, wide: bool = False) -> str:
    """Checks as a text table, with deviations in per cent, and z for sampled values.

    Unless ``wide``, the table fits the terminal: long names and the reasons of verdicts continue on
    lines below.
    """
    if wide:
        return _ended(output.table(WIDE, [[*_row(c), *_more(c)] for c in checks]), checks)
    rows = [_row(c) for c in checks]
    widths = [max(len(r[i]) for r in [NARROW, *rows]) for i in range(len(NARROW))]
    widths[0] = min(
        widths[0], max(NARROWEST, output.width() - sum(widths[1:]) - 2 * len(NARROW) + 2)
    )
    lines = [_line(NARROW, widths), _line(["-" * w for w in widths], widths)]
    for c, (name, *cells) in zip(checks, rows, strict=True):
        first, *others = output.wrapped(name, widths[0])
        lines += [_line([first, *cells], widths), *others]
        if c.verdict not in PLAIN:
            lines += output.wrapped(f"    {_trouble(c)}", output.width())
    return _ended("\n".join(lines), checks)


NARROW = ("check", "predicted", "measured", "off", "z", "verdict")


WIDE = (*NARROW, "equation", "error", "tolerance", "detectable", "why")


NARROWEST = 20  # smallest width of the column of names


PLAIN = ("exact", "agrees")  # verdicts shown without a reason


AGREES = "agrees: within its tolerance, and 5% off or more would have been flagged."


Z_SENTENCE = (
    f"z: standard errors between prediction (or band) and mean, as unlikely as a normal z; beyond {Z_MAX:g} a row fails,"
    " a true statement once in 16,000 times."
)


def _line(cells: Sequence[str], widths: Sequence[int]) -> str:
    return "  ".join(c.ljust(w) for c, w in zip(cells, widths, strict=True)).rstrip()


def _trouble(c: Check) -> str:
    """Reason shown for a verdict; for a failure without sampling error, the size of the
    deviation.
    """
    if c.verdict == "FAIL" and c.statistic == "error" and c.band is None:
        return f"error {c.error:.1e}, allowed {c.tolerance:.2g}: {c.why}"
    return c.why


def _ended(text: str, checks: Sequence[Check]) -> str:
    sampled_ones = any(c.standard_error is not None for c in checks)
    sentence = textwrap.wrap(Z_SENTENCE, max(60, output.width())) if sampled_ones else []
    agree = [AGREES] if any(c.verdict == "agrees" for c in checks) else []
    return "\n".join([text, *sentence, *agree, summary(checks)])


def percent(deviation: float) -> str:
    """Relative deviation in per cent; empty if there is none."""
    if not np.isfinite(deviation):
        return ""
    if abs(deviation) < 5e-5:
        return f"{100 * deviation:+.0e}%" if deviation else "0%"
    return f"{100 * deviation:+.{0 if abs(deviation) >= 1 else 1}f}%"


def uncertain(value: float, error: float | None) -> str:
    """Number with its standard error to two digits, both to the same decimal place."""
    if error is None or not np.isfinite(error) or error == 0 or not 1e-4 < abs(value) < 1e6:
        return f"{value:.5g}" + ("" if error is None else f" +- {error:.1e}")
    places = max(0, 1 - int(np.floor(np.log10(error))))
    return (
        f"{value:.{places}f} +- {error:.{places}f}" if places < 7 else f"{value:.5g} +- {error:.1e}"
    )


def _row(c: Check) -> list[str]:
    z = f"{c.error:.1f}" if c.statistic == "z" else ""
    return [
        c.name,
        f"{c.bound} {c.predicted:.5g}".strip(),
        uncertain(c.measured, c.standard_error),
        percent(c.deviation),
        z,
        c.verdict,
    ]


def _more(c: Check) -> list[str]:
    detectable = (
        "" if c.verdict == "exact" else f"{c.detectable:.1%}" if c.detectable < 10 else "nothing"
    )
    error = f"{c.error:.1e}" if c.statistic == "error" else ""
    why = "" if c.why == Z_REASON else c.why
    return [c.equation, error, f"{c.tolerance:.2g}", detectable, why]
