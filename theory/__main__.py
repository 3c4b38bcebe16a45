"""List the models, or the equations of one: ``python -m theory [MODEL]``."""

import argparse
import contextlib
import itertools
from pathlib import Path
from typing import Any

import sympy as sp
from sympy.core.alphabets import greeks
from sympy.printing.pretty.pretty import PrettyPrinter
from sympy.printing.pretty.pretty_symbology import pretty_symbol, pretty_use_unicode
from sympy.printing.pretty.stringpict import prettyForm

from theory.equations.equation import Equation
from theory.models import command_line, model, plugins, registry
from theory.runtime import cli, output

TALLEST = 12  # lines of a formula drawn in two dimensions
LONGEST = 3000  # parts of a formula that is drawn, and whose terms are sorted


class Drawing(PrettyPrinter):
    """SymPy's drawing of formulas, in which a word below a letter is not made of small
    letters.
    """

    def _print_Symbol(self, symbol: sp.Symbol, bold_name: bool = False) -> prettyForm:
        head, *below = symbol.name.split("_")
        if any(len(x) > 2 and x not in greeks and not x.endswith("bar") for x in below):
            return prettyForm("_".join([pretty_symbol(head), *below]))
        return super()._print_Symbol(symbol, bold_name)


def formula(equation: Equation, room: int) -> list[str]:
    """Lines of an equation as SymPy draws it; one that is too wide or too tall, as it
    types it.
    """
    parts = sp.preorder_traversal(equation.rhs)
    long = any(True for _ in itertools.islice(parts, LONGEST, None))
    if not long:
        sides = sp.Eq(equation.lhs, equation.rhs, evaluate=False)
        pretty_use_unicode(True)
        pretty = Drawing({"use_unicode": True, "wrap_line": False}).doprint(sides)
        drawn = [line.rstrip() for line in pretty.split("\n")]
        if len(drawn) <= TALLEST and max(map(len, drawn)) <= room:
            return drawn
    typed = sp.sstr(equation.rhs, order="none" if long else None)
    return output.wrapped(f"{equation.lhs} = {typed}", room)


def spoken(equation: Equation, room: int) -> str:
    """Text of an equation: name, reference, status and assumptions, with the formula
    below.
    """
    notes = "; ".join([equation.reference, equation.status, *equation.assumptions])
    head = output.wrapped(f"{equation.name}  ({notes})", room)
    return "\n".join(
        [*head, *(f"    {line}" for line in formula(equation, room - 4)), ""]
    )


def main(argv: list[str] | None = None) -> int:
    """Command line."""
    parser = command_line.parser(
        "theory",
        "Models and their equations: reference, status, assumptions, LaTeX.",
        "json",
        "wide",
        "latex",
        model="all",
    )
    args = parser.parse_args(argv)
    if not (args.model or args.json or args.latex or args.wide):
        rows = [(m.name, m.title) for m in registry.TABLE.values()]
        print(output.table(("model", "title"), rows, wide=False))
        print(
            "\nequations of one: python -m theory MODEL; of all: --wide, --latex,"
            " --json"
        )
        return 0
    models = [args.model] if args.model else list(registry.MODELS.values())
    listing: dict[str, Any] = {}
    for m in models:
        with contextlib.nullcontext() if args.model else plugins.skip_on_error(m):
            listing[m.name] = _as_json(m) if args.json else _lines(m, args)
    if args.json:
        print(output.to_json(listing))
        return 0
    text = "\n".join(itertools.chain.from_iterable(listing.values()))
    output.write_text(Path(args.latex) if args.latex not in (None, "-") else None, text)
    return 0


def _as_json(m: model.Model) -> dict[str, Any]:
    """A model and its equations as a dictionary for JSON."""
    equations = []
    for e in m.wing("theory").equations().values():
        equations.append(
            {
                "name": e.name,
                "reference": e.reference,
                "status": e.status,
                "assumptions": e.assumptions,
                "latex": e.latex(),
            }
        )
    return {
        "title": m.title,
        "paper": m.paper,
        "checks": m.checks,
        "equations": equations,
    }


def _lines(m: model.Model, args: argparse.Namespace) -> list[str]:
    """A model's equations as tables; with formulas if only one model is listed."""
    lines = [f"{m.name}: {m.title}\n"]
    derived = getattr(m.wing("theory"), "derived", None)
    if args.model and callable(derived):  # of a statement
        known = [
            f"{c.symbol}: entries of {c.weight}, {c.means}" for c in derived().classes
        ]
        lines += [*known, ""]
    for section, equations in m.wing("theory").sections().items():
        if args.model and args.latex is None:
            lines.append(f"{section}\n{'-' * len(section)}")
            lines += [
                spoken(e, 10**6 if args.wide else output.width()) for e in equations
            ]
            continue
        rows = [
            (e.name, e.reference, e.status, "; ".join(e.assumptions)) for e in equations
        ]
        header = ("equation", "reference", "status", "assumptions")
        lines.append(f"{section}\n{output.table(header, rows, wide=args.wide)}\n")
        if args.latex is not None:
            lines.append("\n".join(f"{e.name}:  {e.latex()}" for e in equations) + "\n")
    return lines


if __name__ == "__main__":
    cli.run(main)
