"""LaTeX documents of a model's equations: ``python -m theory.latex``."""

from __future__ import annotations

import re
from collections.abc import Iterable
from typing import TYPE_CHECKING

from theory import cli, notation, output

if TYPE_CHECKING:
    from theory.equation import Equation


def escape(text: str) -> str:
    """Plain text made safe for LaTeX; ``$...$`` passes through."""
    parts = re.split(r"(\$[^$]*\$)", text)
    table = {
        "$": r"\$",
        "&": r"\&",
        "%": r"\%",
        "#": r"\#",
        "_": r"\_",
        "{": r"\{",
        "}": r"\}",
        "~": r"\textasciitilde{}",
        "^": r"\^{}",
        "\\": r"\textbackslash{}",
        "<": r"\textless{}",
        ">": r"\textgreater{}",
    }
    return "".join(
        p
        if len(p) > 1 and p.startswith("$") and p.endswith("$")
        else "".join(table.get(c, c) for c in p)
        for p in parts
    )


PREAMBLE = r"""\documentclass[11pt]{article}
\usepackage[a4paper,margin=22mm]{geometry}
\usepackage{amsmath,amssymb,graphicx}
\newsavebox{\formulabox}
% A formula wider than the line is scaled down to fit it.
\newcommand{\fitformula}[1]{\sbox{\formulabox}{$\displaystyle #1$}%
  \ifdim\wd\formulabox>0.98\linewidth\resizebox{0.98\linewidth}{!}{\usebox{\formulabox}}\else\usebox{\formulabox}\fi}
% A picture keeps its own size unless it is wider than the line.
\newcommand{\fitpicture}[1]{\sbox{\formulabox}{\includegraphics{#1}}%
  \ifdim\wd\formulabox>\linewidth\resizebox{\linewidth}{!}{\usebox{\formulabox}}\else\usebox{\formulabox}\fi}
\setlength{\parindent}{0pt}
"""


def display(equation: Equation) -> str:
    """One equation as a display with its name, source, status and assumptions."""
    notes = [escape(equation.reference), f"\\emph{{{equation.status}}}"]
    if equation.assumptions:
        notes.append(escape("; ".join(equation.assumptions)))
    return (
        f"\\par\\medskip\\noindent\\textbf{{\\texttt{{{escape(equation.name)}}}}} ({'. '.join(notes)})\n"
        f"\\begin{{equation}}\n\\fitformula{{{equation.latex()}}}\n\\end{{equation}}\n"
    )


def document(title: str, sections: dict[str, Iterable[Equation]]) -> str:
    """Complete LaTeX document that compiles with ``pdflatex`` and AMS packages alone."""
    body = "\n".join(
        f"\\section{{{escape(name)}}}\n" + "\n".join(display(e) for e in equations)
        for name, equations in sections.items()
    )
    return f"{PREAMBLE}\\begin{{document}}\n\\title{{{escape(title)}}}\\date{{}}\\maketitle\n{body}\\end{{document}}\n"


def main(argv: list[str] | None = None) -> int:
    """Command line: print or write a model's equations as LaTeX."""
    parser = cli.parser(
        "theory.latex", "The equations of a model as a LaTeX document.", "out", model=True
    )
    parser.add_argument(
        "--fragment", action="store_true", help="only the aligned block, for \\input"
    )
    parser.add_argument("--equation", metavar="NAME", help="one equation as a plain string")
    args = parser.parse_args(argv)
    theory = args.model.wing("theory")
    equations = theory.equations()
    if args.equation is not None:
        text = cli.choose("equation", args.equation, equations).latex()
    elif args.fragment:
        text = notation.aligned(equations.values())
    else:
        text = document(args.model.title, theory.sections())
    output.write_text(args.out, text)
    return 0


if __name__ == "__main__":
    cli.run(main)
