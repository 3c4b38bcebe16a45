"""The equations of a model as LaTeX: documents that compile by themselves, fragments,
and tables of symbols with their meanings.
"""

from __future__ import annotations

import dataclasses
import re
from collections.abc import Iterable, Mapping
from typing import Any

import sympy as sp
from sympy.core.function import AppliedUndef, UndefinedFunction

from theory.equations import printing
from theory.equations.equation import Equation
from theory.equations.renaming import Renaming
from theory.models import registry
from theory.models.model import Model
from theory.symbols import notation
from theory.symbols.reading import sympified

ESCAPES = str.maketrans(
    {
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
        "|": r"\textbar{}",
    }
)


def escape(text: str) -> str:
    """Plain text made safe for LaTeX; ``$...$`` passes through."""
    parts = []
    for part in re.split(r"(\$[^$]*\$)", text):
        formula = len(part) > 1 and part.startswith("$") and part.endswith("$")
        parts.append(part if formula else part.translate(ESCAPES))
    return "".join(parts)


PREAMBLE = r"""\documentclass[11pt]{article}
\usepackage[a4paper,margin=22mm]{geometry}
\usepackage{longtable}
\usepackage{amsmath,amssymb,graphicx}
\allowdisplaybreaks
\newsavebox{\picturebox}
% A picture keeps its own size unless it is wider than the line.
\newcommand{\fitpicture}[1]{\sbox{\picturebox}{\includegraphics{#1}}%
  \ifdim\wd\picturebox>\linewidth\resizebox{\linewidth}{!}{\usebox{\picturebox}}\else\usebox{\picturebox}\fi}
\setlength{\parindent}{0pt}
"""
UNCHANGED = Renaming()


def rows(equation: Equation) -> list[str]:
    """Rows of an alignment; a single row if the equation fits on one line."""
    left = printing.expression(equation.lhs)
    right = printing.expression(equation.rhs)
    return printing.rows(left, right)


def display(equation: Equation) -> str:
    """One equation as a numbered display with its name, source,
    status and assumptions.
    """
    notes = [escape(equation.reference), f"\\emph{{{equation.status}}}"]
    if equation.assumptions:
        notes.append(escape("; ".join(equation.assumptions)))
    lines = rows(equation)
    body = " \\\\\n".join(lines)
    if len(lines) == 1:
        body = body.replace(" &= ", " = ", 1)
    else:
        body = f"\\begin{{split}}\n{body}\n\\end{{split}}"
    return (
        f"\\par\\medskip\\noindent\\textbf{{\\texttt{{{escape(equation.name)}}}}}"
        f" ({'. '.join(notes)})\n"
        f"\\begin{{equation}}\\label{{eq:{equation.name}}}\n{body}\n\\end{{equation}}\n"
    )


def fragment(equations: Iterable[Equation]) -> str:
    """One ``align`` environment with page breaks and one number and label per equation.
    It needs amsmath only.
    """
    displays = []
    for e in equations:
        first, *others = rows(e)
        if not first.startswith("&"):  # left-aligned, to save width
            first = "&" + first.replace(" &= ", " = ", 1)
        lines = " \\notag \\\\*\n  ".join([first, *others])
        displays.append(f"  {lines} \\label{{eq:{e.name}}}")
    body = " \\\\\n".join(displays)
    align = f"\\begin{{align}}\n{body}\n\\end{{align}}"
    return f"\\begingroup\\allowdisplaybreaks\n{align}\n\\endgroup"


def symbols(
    model: Model, equations: Iterable[Equation], renaming: Renaming = UNCHANGED
) -> str:
    """Table of symbols in order of appearance: printed form, meaning (as given in the
    code), and the equation that defines it or uses it first. Equations are given under
    their own names.
    """
    listed = list(equations)
    defined = {str(e.lhs): e.name for e in reversed(listed)}
    rows: dict[tuple[str, str], list[str]] = {}
    for part in model.systems or [model]:
        meanings = Meanings(part)
        of_part = (
            part.wing("theory").equations()
            if model.systems
            else {e.name: e for e in listed}
        )
        for equation in (e for e in listed if e.name in of_part):
            for x in occurring(equation):
                name = str(x)
                printed = printing.expression(renaming.expression(x))
                means = renaming.words("; ".join(meanings.of(x)))
                where = (
                    f"by {defined[name]}"
                    if name in defined
                    else f"first in {equation.name}"
                )
                row = [f"${printed}$", escape(means), escape(where)]
                rows.setdefault((printed, means), row)
    head = r"\textbf{symbol} & \textbf{meaning} & \textbf{where} \\ \hline \endhead"
    body = "\n".join(" & ".join(row) + r" \\" for row in rows.values())
    columns = "{lp{68mm}p{46mm}}"
    table = f"\\begin{{longtable}}{columns}\n{head}\n{body}\n\\end{{longtable}}"
    return f"{{\\small\n{table}}}"


def occurring(equation: Equation) -> list[Any]:
    """Symbols, arrays and undefined functions in an equation, without bound ones."""
    symbols: set[sp.Basic] = set()
    arrays: set[sp.IndexedBase] = set()
    functions: set[UndefinedFunction] = set()
    for side in (sympified(equation.lhs), sympified(equation.rhs)):
        arrays |= side.atoms(sp.IndexedBase)
        functions |= {f.func for f in side.atoms(AppliedUndef)}
        symbols |= {s for s in side.free_symbols if isinstance(s, sp.Symbol)}
        # SymPy treats the time in dA/dt as bound, but it is printed.
        for derivative in side.atoms(sp.Derivative):
            symbols |= {s for s in derivative.variables if s.is_Symbol}
    symbols -= {a.label for a in arrays}
    return [
        *sorted(symbols, key=str),
        *sorted(arrays, key=str),
        *sorted(functions, key=str),
    ]


class Meanings:
    """Meanings of a model's symbols. They are taken from the modules that define the
    symbols, otherwise from the parameters, otherwise from modules that a system shares
    with its family.
    """

    def __init__(self, model: Model) -> None:
        room = model.path("theory")
        family = room.rpartition(".")[0]
        kind = getattr(model.wing("theory"), "Parameters", None)
        fields = dataclasses.fields(kind) if kind else ()
        beside = tuple(
            f"{room}.{m.name.rpartition('.')[2]}."
            for m in registry.TABLE.values()
            if m.beside
        )
        self._own = notation.meanings(
            lambda name: (
                f"{name}.".startswith(f"{room}.") and not f"{name}.".startswith(beside)
            )
        )
        self._fields = {
            f.name: [f.metadata["doc"]] for f in fields if f.metadata.get("doc")
        }
        if model.stated:
            meanings = model.wing("theory").derived().meanings
            self._fields = {k: [v] for k, v in meanings.items()} | self._fields
        systems = {m.path("theory") for m in registry.TABLE.values()}
        self._shared = notation.meanings(
            lambda name: (
                name.rpartition(".")[0] in (family, "theory.dynamics")
                and name not in systems
            )
        )

    def of(self, x: Any) -> list[str]:
        """Meanings of a symbol, array or function: usually one; several if modules
        differ; none if no module states one.
        """
        # A(D) has the meaning of A unless the function has its own.
        alike = (
            [y for y in self._own if str(y) == str(x)]
            if isinstance(x, UndefinedFunction)
            else []
        )
        meaning = next((self._own[y] for y in (x, *alike) if y in self._own), None)
        return meaning or self._fields.get(str(x)) or self._shared.get(x, [])


def document(
    title: str, sections: Mapping[str, Iterable[Equation]], end: str = ""
) -> str:
    """Complete LaTeX document that compiles with ``pdflatex`` and AMS packages only;
    ``end`` is appended after the sections.
    """
    parts = []
    for name, equations in sections.items():
        displays = "\n".join(map(display, equations))
        parts.append(f"\\section{{{escape(name)}}}\n{displays}")
    body = "\n".join(parts)
    return (
        f"{PREAMBLE}\\begin{{document}}\n\\title{{{escape(title)}}}\\date{{}}\\maketitle\n"
        f"{body}{end}\\end{{document}}\n"
    )
