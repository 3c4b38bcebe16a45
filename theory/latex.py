"""LaTeX documents of a model's equations: ``python -m theory.latex``."""

from __future__ import annotations

from theory.equations.equation import Equation, by_number
from theory.equations.renaming import Renaming
from theory.models import command_line
from theory.models.write_up import document, fragment, symbols
from theory.runtime import cli, output


def main(argv: list[str] | None = None) -> int:
    """Command line: print or write a model's equations as LaTeX."""
    parser = command_line.parser(
        "theory.latex",
        "The equations of a model as a LaTeX document.",
        "out",
        model=True,
    )
    parser.add_argument(
        "--fragment", action="store_true", help="only a numbered align, for \\input"
    )
    parser.add_argument(
        "--symbols", action="store_true", help="only the table of symbols"
    )
    parser.add_argument(
        "--equation",
        action="append",
        metavar="NAME",
        help=(
            "this equation, by name or by number in the paper: c_omega, 15, 'Eq. (15)'"
            " (repeatable); printed one per line unless with --fragment or --symbols"
        ),
    )
    parser.add_argument(
        "--rename",
        action="append",
        default=[],
        metavar="OLD=NEW",
        help="print a symbol under another name: N=T, alpha=tau, d_g=d_k (repeatable)",
    )
    args = parser.parse_args(argv)
    output.writable(str(args.out or "-"))
    theory = args.model.wing("theory")
    equations = theory.equations()
    chosen = list(equations.values())
    if args.equation is not None:
        named: dict[str, Equation] = {}
        for text in args.equation:
            named |= {e.name: e for e in by_number(text, equations, "--equation")}
        chosen = list(named.values())
    renaming = Renaming.read(args.rename, chosen)
    renamed = [renaming.equation(e) for e in chosen]
    if args.fragment or args.symbols:
        parts = []
        if args.fragment:
            parts.append(fragment(renamed))
        if args.symbols:
            parts.append(symbols(args.model, chosen, renaming))
        text = "\n".join(parts)
    elif args.equation is not None:
        text = "\n".join(e.latex() for e in renamed)
    else:
        table = f"\\section{{Symbols}}\n{symbols(args.model, chosen, renaming)}\n"
        sections = {}
        for name, part in theory.sections().items():
            sections[name] = [renaming.equation(e) for e in part]
        text = document(args.model.title, sections, table)
    output.write_text(args.out, text)
    return 0


if __name__ == "__main__":
    cli.run(main)
