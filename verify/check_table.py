"""Checks as text: the result, a table, and what its words mean."""

import re
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
    """Result, then all checks as a table (`result`, `rows`)."""
    return "\n".join([*result(checks), "", *rows(checks, wide=wide)])


def result(checks: Sequence[Check]) -> list[str]:
    """Result of a report, in at most ten lines: number of checks with each verdict, the rows that
    fail, the largest known deviation, and how many samples the undecided rows need.
    """
    lines = [f"result: {summary(checks)}"]
    wrong = [c for c in checks if c.verdict == "FAIL"]
    lines += [_quoted("FAIL", c) for c in wrong[:NAMED]]
    lines += [f"  and {len(wrong) - NAMED} more rows FAIL"] * (len(wrong) > NAMED)
    limits = [c for c in checks if c.verdict == "limit"]
    if limits:
        lines.append(_quoted("largest known deviation", max(limits, key=_size)))
    open_ones = [c for c in checks if c.verdict == "undecided"]
    if open_ones:
        lines.append(_samples(open_ones))
    return [part for line in lines for part in output.wrapped(line, output.width())]


def rows(checks: Sequence[Check], *, wide: bool = False) -> list[str]:
    """Checks as a text table, with deviations in per cent, and z for sampled values, and what its
    words mean.

    Unless ``wide``, the table fits the terminal, long names and the reasons of verdicts continue on
    lines below, and of more than `MOST_UNDECIDED` undecided rows none is shown.
    """
    if wide:
        return [output.table(WIDE, [[*_row(c), *_more(c)] for c in checks]), *_words(checks)]
    hidden = sum(c.verdict == "undecided" for c in checks)
    hidden = hidden if hidden > MOST_UNDECIDED else 0
    shown = [c for c in checks if not hidden or c.verdict != "undecided"]
    placed, plain = [_placed(c) for c in shown], [(NARROW[0], *NARROW[2:]), *map(_row, shown)]
    for head, *cells in ([NARROW, *placed], plain):
        widths = [max(map(len, column)) for column in zip(head, *cells, strict=True)]
        room = output.width() - sum(widths[1:]) - 2 * len(head) + 2
        if room >= NARROWEST and any(row[1] for row in placed):
            break  # otherwise the place stays in the name
    widths[0] = min(widths[0], max(NARROWEST, room))
    lines = [_line(head, widths), _line(["-" * w for w in widths], widths)]
    for c, (name, *others) in zip(shown, cells, strict=True):
        first, *further = output.wrapped(name, widths[0])
        lines += [_line([first, *others], widths), *further]
        if c.verdict not in PLAIN:
            lines += output.wrapped(f"    {_trouble(c)}", output.width())
    more = [f"{hidden} undecided rows are not shown (commands: --wide shows them)"] * bool(hidden)
    return [*lines, *more, *_words(shown)]


NARROW = ("check", "where", "predicted", "measured", "off", "z", "verdict")


WIDE = ("check", *NARROW[2:], "equation", "error", "tolerance", "detectable", "why")


NARROWEST = 20  # smallest width of the column of names


PLAIN = ("exact", "agrees", "undecided")  # verdicts shown without a reason


NAMED = 2  # failing rows quoted in the result


MOST_UNDECIDED = 9  # undecided rows; more are counted only


PLACE = re.compile(r"(.*?)(?:, largest deviation)?, at (\w+ = [^,]+)")


AGREES = "agrees: within its tolerance; an error of 5% or more would have been noticed."


OFF = "off: measured - predicted, relative to the prediction (of a curve: to its largest value)."


Z_SENTENCE = f"z: distance in standard errors. Above {Z_MAX:g} the row fails; by chance, once in 16,000 rows."


def _quoted(what: str, c: Check) -> str:
    off = f", off by {percent(c.deviation)}" if np.isfinite(c.deviation) else ""
    return (
        f"  {what}: {c.name.strip()}: predicted {_row(c)[1]}, "
        f"measured {uncertain(c.measured, c.standard_error)}{off}"
    )


def _size(c: Check) -> float:
    return abs(c.deviation) if np.isfinite(c.deviation) else 0.0


def enough(checks: Sequence[Check]) -> dict[int, int]:
    """Numbers of samples that decide half of the undecided rows, nine in ten, and all, as far as
    they exist; and how many rows each decides.
    """
    n = sum(c.verdict == "undecided" for c in checks)
    needed = sorted(
        c.samples_needed for c in checks if c.verdict == "undecided" and c.samples_needed
    )
    counts = sorted({-(-n // 2), -(-9 * n // 10), n})
    return {needed[k - 1]: k for k in counts if 0 < k <= len(needed)}


def _samples(checks: Sequence[Check]) -> str:
    """How many samples undecided rows need."""
    numbers = ", ".join(f"{size} for {k}" for size, k in enough(checks).items())
    least = min(c.required for c in checks)
    return (
        f"undecided: in {len(checks)} rows an error of {least:.0%} could go unnoticed; "
        f"samples (seeds) that decide: {numbers or 'no number does'}"
    )


def _placed(c: Check) -> list[str]:
    """Cells of a narrow row: where along a curve a deviation was found has a column."""
    name, *cells = _row(c)
    place = PLACE.fullmatch(name)
    return [*(place.groups() if place else (name, "")), *cells]


def _words(checks: Sequence[Check]) -> list[str]:
    """What the words of a table mean."""
    lines = [OFF] * any(np.isfinite(c.deviation) for c in checks)
    lines += [Z_SENTENCE] * any(c.standard_error is not None for c in checks)
    lines += [AGREES] * any(c.verdict == "agrees" for c in checks)
    return [part for line in lines for part in textwrap.wrap(line, max(60, output.width()))]


def _line(cells: Sequence[str], widths: Sequence[int]) -> str:
    return "  ".join(c.ljust(w) for c, w in zip(cells, widths, strict=True)).rstrip()


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
    if error is None or not np.isfinite(error) or error == 0 or not 1e-4 < abs(value) < 1e6:
        return f"{value:.5g}" + ("" if error is None else f" +- {error:.1e}")
    places = max(0, 1 - int(np.floor(np.log10(error))))
    return (
        f"{value:.{places}f} +- {error:.{places}f}" if places < 7 else f"{value:.5g} +- {error:.1e}"
    )


def _row(c: Check) -> list[str]:
    z = f"{c.error:z.1f}" if c.statistic == "z" else ""
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
