"""Checks as text: the result, a table, and what its words mean."""

import re
import textwrap
from collections import Counter
from collections.abc import Iterable, Sequence

import numpy as np

from theory.runtime import output
from verify.checks.check import SEEN, Z_REASON, Check
from verify.checks.verdict import VERDICTS, Z_MAX

NARROW = ("check", "where", "predicted", "measured", "off", "z", "verdict")
WIDE = ("check", *NARROW[2:], "equation", "error", "tolerance", "detectable", "why")
PLAIN = ("exact", "agrees", "undecided")  # verdicts shown without a reason
NAMED = 2  # failing rows quoted in the result
TOO_FEW = "too few samples to decide; check units and parameters"
MOST_UNDECIDED = 9  # undecided rows; more are counted only
PLACE = re.compile(r"(.*?)(?:, largest deviation)?, at (\w+ = [^,]+)")
AGREES = "agrees: within its tolerance; an error of 5% or more would have been noticed."
OFF = (
    "off: measured - predicted, relative to the prediction (of a curve: to its largest"
    " value)."
)
IN_BAND = "known"  # in place of z
Z_SENTENCE = (
    "z: distance in standard errors, corrected for few samples and for the worst of"
    f" many times. Above {Z_MAX:g} the row fails; by chance, once in 16,000 rows."
    f" {IN_BAND}: within the known error of this theory."
)


def summary(checks: Sequence[Check]) -> str:
    """Number of checks with each verdict, as text."""
    counts = Counter(c.verdict for c in checks)
    return ", ".join(f"{counts[v]} {v}" for v in VERDICTS if counts[v] or v == "FAIL")


def table(checks: Sequence[Check], *, wide: bool = False) -> str:
    """Result, then all checks as a table (`result`, `rows`)."""
    return "\n".join([*result(checks), "", *rows(checks, wide=wide)])


def result(checks: Sequence[Check]) -> list[str]:
    """Result of a report in a few lines: number of checks with each verdict, the first
    rows that fail, undecided ones that are further off than a single curve may be, and
    how many samples the undecided rows need.
    """
    lines = [f"result: {summary(checks)}"]
    wrong = [_row(c) for c in checks if c.verdict == "FAIL"]
    lines += [
        "  FAIL: {}: predicted {}, measured {}".format(*row) for row in wrong[:NAMED]
    ]
    far = [c for c in checks if c.verdict == "undecided" and abs(c.deviation) > SEEN]
    lines += [f"  {c.name}: off by {c.deviation:+.0%}, {TOO_FEW}" for c in far[:NAMED]]
    least, size, decided = enough(checks)
    if decided:
        undecided = sum(c.verdict == "undecided" for c in checks)
        rows = f"{decided} of {undecided} undecided rows"
        lines.append(f"{size} samples (seeds) would decide {rows}")
        lines[-1] += f", {least} the first of them" * (least < size)
    return _wrapped(lines)


def rows(checks: Sequence[Check], *, wide: bool = False) -> list[str]:
    """Checks as a text table, with deviations in per cent, and z for sampled values,
    and what its words mean.

    Unless ``wide``, the table fits the terminal, and reasons of verdicts stand below.
    Columns without an entry are not shown, nor more than `MOST_UNDECIDED` undecided
    rows.
    """
    if wide:
        return [
            output.table(WIDE, [[*_row(c), *_more(c)] for c in checks]),
            *_words(checks),
        ]
    hidden = sum(c.verdict == "undecided" for c in checks)
    hidden *= hidden > MOST_UNDECIDED
    shown = [c for c in checks if not hidden or c.verdict != "undecided"]
    more = []
    if hidden:
        more = [f"{hidden} undecided rows are not shown (commands: --wide shows them)"]
    if not shown:
        return more
    cells = [NARROW, *map(_placed, shown)]
    columns = [x for x in zip(*cells, strict=True) if any(x[1:]) or x[0] == NARROW[0]]
    head, *lines = zip(*columns, strict=True)
    troubled = [c for c in shown if c.verdict not in PLAIN]
    reasons = [f"{c.name.strip()}: {_trouble(c)}" for c in troubled]
    table = output.table(head, lines, wide=False)
    return [table, *more, *_wrapped(reasons), *_words(shown)]


def _wrapped(lines: Iterable[str]) -> list[str]:
    """Lines wrapped to the width of the terminal."""
    parts = []
    for line in lines:
        parts += output.wrapped(line, output.width())
    return parts


def enough(checks: Sequence[Check]) -> tuple[int, int, int]:
    """Numbers of samples that decide the first undecided row, and nine in ten of those
    that any number decides; and how many these are.
    """
    needed = sorted(
        c.samples_needed
        for c in checks
        if c.verdict == "undecided" and c.samples_needed
    )
    decided = -(-9 * len(needed) // 10)
    return (needed[0], needed[decided - 1], decided) if needed else (0, 0, 0)


def _placed(c: Check) -> list[str]:
    """Cells of a narrow row: where along a curve a deviation was found has a column if
    the line has room for it.
    """
    name, *cells = _row(c)
    place = PLACE.fullmatch(name) if output.width() >= output.WIDTH else None
    return [*(place.groups() if place else (name, "")), *cells]


def _words(checks: Sequence[Check]) -> list[str]:
    """What the words of a table mean."""
    lines = [OFF] * any(np.isfinite(c.deviation) for c in checks)
    lines += [Z_SENTENCE] * any(c.standard_error is not None for c in checks)
    lines += [AGREES] * any(c.verdict == "agrees" for c in checks)
    parts = []
    for line in lines:
        parts += textwrap.wrap(line, max(60, output.width()))
    return parts


def _trouble(c: Check) -> str:
    """Reason shown for a verdict; for a failure without sampling error, the size of the
    deviation.
    """
    if c.verdict == "FAIL" and c.statistic == "error" and c.band is None:
        return f"error {c.error:.1e}, allowed {c.tolerance:.2g}: {c.why}"
    return c.why


def percent(deviation: float) -> str:
    """Relative deviation in per cent; empty if there is none."""
    if not np.isfinite(deviation):
        return ""
    if abs(deviation) < 5e-5:
        return f"{100 * deviation:+.0e}%" if deviation else "0%"
    return f"{100 * deviation:+z.{0 if abs(deviation) >= 1 else 1}f}%"


def uncertain(value: float, error: float | None) -> str:
    """Number with its standard error to two digits, both to the same decimal place."""
    if (
        error is None
        or not np.isfinite(error)
        or error == 0
        or not 1e-4 < abs(value) < 1e6
    ):
        return f"{value:.5g}" + ("" if error is None else f" +- {error:.1e}")
    places = max(0, 1 - int(np.floor(np.log10(error))))
    return (
        f"{value:.{places}f} +- {error:.{places}f}"
        if places < 7
        else f"{value:.5g} +- {error:.1e}"
    )


def _row(c: Check) -> list[str]:
    z = f"{c.error:z.1f}" if c.statistic == "z" else ""
    if z and c.band and not c.error:
        z = IN_BAND
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
        ""
        if c.verdict == "exact"
        else f"{c.detectable:.1%}"
        if c.detectable < 10
        else "nothing"
    )
    error = f"{c.error:.1e}" if c.statistic == "error" else ""
    why = "" if c.why == Z_REASON else c.why
    return [c.equation, error, f"{c.tolerance:.2g}", detectable, why]
