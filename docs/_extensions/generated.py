"""Directives whose content the toolkit itself writes: equations, ledgers, evidence, commands, API.

Each makes MyST Markdown from the registry, the stored evidence, the ledgers or the parsers, so that
no page types what the code knows.
"""

from __future__ import annotations

import argparse
import functools
import importlib
import os
import re
from collections import Counter
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

import figures
from docutils.parsers.rst import directives
from sphinx.application import Sphinx
from sphinx.util.docutils import SphinxDirective

from papers import claims, evidence
from theory import explorer, registry
from theory.equation import STATUSES
from theory.runtime import cli
from verify.check import VERDICTS

ROOT = Path(__file__).parents[2]
WINGS = ("theory", "simulate", "verify", "papers")
# What users call, in the order in which the pages of the API open with it.
FIRST = (
    *("Parameters", "predict", "train", "emergence_times", "thresholds"),
    *("flow", "onset", "equations"),
)
# The same of wings, whose packages export little.
CALLED = {
    "theory": ("theory.equation.Equation", "theory.flow.Flow", "theory.registry.find"),
    "simulate": ("simulate.runs.open", "simulate.runs.ensemble"),
    "verify": (
        *("verify.trajectories.compare", "verify.times.emergence_times", "verify.times.exponents"),
        *("verify.check.Check", "verify.check_table.table"),
    ),
}
EXPLORERS = os.environ.get("DOCS_EXECUTION") not in ("off", "stored")  # seconds each


def text(words: object) -> str:
    """Plain words made safe for a cell of a Markdown table; code in backticks passes through."""
    parts = re.split(r"(`[^`]*`)", " ".join(str(words).split()))
    return "".join(
        p.replace("|", r"\|") if p.startswith("`") else re.sub(r"([\\*_|<>\[\]$#~^{}])", r"\\\1", p)
        for p in parts
    )


def table(header: Sequence[str], rows: Iterable[Sequence[object]]) -> str:
    """Markdown table; cells are Markdown."""
    lines = [header, ["---"] * len(header), *rows]
    return "\n".join("| " + " | ".join(map(str, line)) + " |" for line in lines) + "\n"


def code(words: object) -> str:
    """Words as code, in a cell."""
    return f"`{words}`".replace("|", r"\|")


def anchor(kind: str, *names: str) -> str:
    """Name of a place in a page, of an equation or a check."""
    return re.sub(r"[^a-z0-9]+", "-", " ".join((kind, *names)).lower())


def linked(model: registry.Model, names: Iterable[str]) -> str:
    """Names of equations, each a link to its formula where there is one."""
    known = [n for n in names if n in found_equations(model.name)]
    return ", ".join(f"[{code(n)}](#{anchor('equation', model.name, n)})" for n in known)


@functools.cache
def found_equations(model: str) -> frozenset[str]:
    """Names of a model's equations."""
    return frozenset(registry.find(model).wing("theory").equations())


def mark(verdict: str) -> str:
    """A verdict with the class that colours it, and gives it a sign of its own."""
    return f"[{verdict}]{{.verdict .{verdict.lower().replace(' ', '-')}}}"


def below(*notes: str) -> str:
    """Notes of a row, each on a line below what it says."""
    return "".join(f" [{note}]{{.note}}" for note in notes if note)


# ---- What is derived


def statuses(model: str) -> str:
    """How many equations a model has in each section, by status."""
    rows, total = [], Counter[str]()
    for name, equations in registry.find(model).wing("theory").sections().items():
        found = Counter(e.status for e in equations)
        total += found
        rows.append([text(name), *(found[s] or "" for s in STATUSES)])
    rows.append(["**all**", *(f"**{total[s]}**" if total[s] else "" for s in STATUSES)])
    return table(("section", *STATUSES), rows)


def equations(model: str) -> str:
    """Every equation of a model: name, reference, status, assumptions, formula."""
    out, met = [], set()
    for name, found in registry.find(model).wing("theory").sections().items():
        out.append(f"## {text(name)}\n")
        for e in found:
            assumed = f" Assumes: {text('; '.join(e.assumptions))}." if e.assumptions else ""
            head = f"{code(e.name)}: {text(e.reference)}; *{e.status}*.{assumed}"
            target = anchor("equation", model, e.name)
            place = "" if target in met else f"({target})=\n"  # two names may differ in case
            met.add(target)
            out.append(f"{place}{head}\n\n$$\n{e.latex()}\n$$\n")
    return "\n".join(out)


# ---- What is verified


def number(value: Any) -> str:
    """A number of a check, or nothing."""
    return "" if value is None else f"{value:.6g}"


def verified(model: str, commands: Sequence[str] = ()) -> str:
    """Stored evidence of a model, one table per ``verify`` command (all, or some), one row per kind
    of check.
    """
    found, out = registry.find(model), []
    stored = evidence.load(found)
    for command in commands or found.checks:
        said = f"`python -m verify.{command} {found.name}`"
        record = stored.get(command)
        if record is None:
            out.append(
                f"**{said}**: no result is stored with this version; "
                f"`python -m papers {found.paper} --claims --run {command}` stores one.\n"
            )
            continue
        counts = Counter(row["verdict"] for row in record["checks"])
        summary = ", ".join(f"{counts[v]} {v}" for v in VERDICTS if counts[v])
        out.append(f"**{said}**: {summary} ({record['seconds']} s, commit `{record['commit']}`).\n")
        groups: dict[str, list[dict[str, Any]]] = {}
        for row in record["checks"]:
            groups.setdefault(row["id"], []).append(row)
        rows = []
        for same in groups.values():
            worst = max(same, key=lambda row: VERDICTS.index(row["verdict"]))
            error = worst["standard_error"]
            detectable = worst["detectable"]
            tested = sorted({n for row in same for n in re.split(r",\s*", row["equation"])})
            name = text(worst["name"].partition(",")[0] if len(same) > 1 else worst["name"])
            if not commands:  # the page of the model has all its checks, and is where links lead
                name = f"[{name}]{{#{anchor('check', found.name, command, worst['id'])}}}"
            rows.append(
                [
                    name + below(text(evidence.reason(worst)), linked(found, tested)),
                    len(same),
                    number(worst["predicted"]),
                    number(worst["measured"]) + (f" ± {error:.1e}" if error else ""),
                    mark(worst["verdict"]),
                    ""
                    if worst["verdict"] == "exact" or detectable is None
                    else f"{detectable:.1%}"
                    if detectable < 10
                    else "nothing",
                ]
            )
        header = ("check", "rows", "predicted", "measured", "verdict (worst)", "detectable")
        out.append(filtered(table(header, rows)))
    return "\n".join(out)


def filtered(made: str, kind: str = "") -> str:
    """A table that `_static/filter.js` gives a field for words and a button per verdict."""
    return f":::::{{container}} filtered {kind}\n{made}:::::\n"


def _ledger(paper: str) -> tuple[registry.Model, list[claims.Claim], claims.Found]:
    model = next(m for m in registry.MODELS.values() if m.paper == paper)
    return model, claims.load(claims.place(model)), evidence.found(evidence.load(model))


def coverage(paper: str) -> str:
    """How many claims of a paper have each verdict, as computed from the stored evidence."""
    _, ledger, found = _ledger(paper)
    counts = claims.coverage(ledger, found)
    shown = [v for v in counts if counts[v]]
    return (
        f"{len(ledger)} claims: " + " &ensp;".join(f"{mark(v)} {counts[v]}" for v in shown) + "\n"
    )


def ledger(paper: str, kinds: Sequence[str] = (), words: Sequence[str] = ()) -> str:
    """Claims of a paper with computed verdicts: all, of some kinds, or those that name a word."""
    model, listed, found = _ledger(paper)
    rows = []
    for c in listed:
        if (kinds and c.kind not in kinds) or (
            words and not any(w in f"{c.id} {c.says} {c.note}" for w in words)
        ):
            continue
        checks = [a for a in c.evidence("check") if a in found.verdicts]
        links = [f"[{code(a)}](#{anchor('check', model.name, a)})" for a in checks]
        on = " · ".join(filter(None, (linked(model, c.evidence("equation")), ", ".join(links))))
        said = text(c.says) + below(text(c.note), on)
        rows.append([text(c.id), said, mark(claims.computed(c, found))])
    return filtered(table(("where", "what it says", "verdict"), rows), "ledger")


# ---- Commands


class _Asked(Exception):
    """Carries a parser out of the command that made it."""


def modules() -> list[str]:
    """Every module that is a command, but for the names that models give ``simulate``."""
    found = []
    for wing in WINGS:
        for path in sorted((ROOT / wing).rglob("*.py")):
            name = ".".join(path.relative_to(ROOT).with_suffix("").parts).removesuffix(".__main__")
            if "cli.run(" in path.read_text() and not (
                name.startswith("simulate.") and path.name == "__main__.py"
            ):
                found.append(name)
    return sorted(found, key=lambda name: (WINGS.index(name.partition(".")[0]), name))


def parser_of(module: str) -> argparse.ArgumentParser:
    """The parser of a command, as its ``main`` makes it."""
    made = importlib.import_module(module)
    if not hasattr(made, "main"):
        made = importlib.import_module(f"{module}.__main__")

    def ask(self: argparse.ArgumentParser, *_: Any) -> None:
        raise _Asked(self)

    kept, cli.Parser.parse_args = cli.Parser.parse_args, ask  # type: ignore[assignment, method-assign]
    try:
        made.main([])
    except _Asked as asked:
        return asked.args[0]
    finally:
        cli.Parser.parse_args = kept  # type: ignore[method-assign]
    raise RuntimeError(f"{module}: parsed nothing")


def commands() -> str:
    """Every command with its arguments."""
    out = []
    for module in modules():
        parser = parser_of(module)
        out.append(f"({module}-command)=\n## `{parser.prog}`\n\n{text(parser.description or '')}\n")
        rows = []
        for action in parser._actions:
            if action.help == argparse.SUPPRESS or action.dest == "help":
                continue
            value = str(action.metavar or "|".join(action.choices or ()))
            takes = not isinstance(action, argparse._StoreTrueAction)
            flag = " ".join(filter(None, (", ".join(action.option_strings), value * takes)))
            rows.append([code(flag), text((action.help or "").replace("%%", "%"))])
        out.append(table(("argument", "what it is"), rows) if rows else "No arguments.\n")
    return "\n".join(out)


# ---- API


def _listed(wing: str) -> dict[str, list[str]]:
    """Modules of a wing by package: the wing's own, then those of each model."""
    groups: dict[str, list[str]] = {}
    for path in sorted((ROOT / wing).rglob("*.py")):
        parts = path.relative_to(ROOT).with_suffix("").parts
        if parts[-1] == "__main__" or any(p.startswith("_") and p != "__init__" for p in parts):
            continue
        name = ".".join(parts).removesuffix(".__init__")
        group = ".".join(name.split(".")[:2])
        if not (ROOT / Path(*group.split("."))).is_dir():
            group = wing
        groups.setdefault(group, []).append(name)
    return groups


def offered(group: str) -> dict[str, Any]:
    """What a group is imported for, by name: what its package exports, and of a wing `CALLED`."""
    module = importlib.import_module(group)
    names = sorted(set(getattr(module, "__all__", ())) - {"__version__"}, key=_rank)
    found = {name: getattr(module, name) for name in names}
    for path in CALLED.get(group, ()):
        place, _, name = path.rpartition(".")
        found[path.removeprefix(f"{group}.")] = getattr(importlib.import_module(place), name)
    return {name: value for name, value in found.items() if callable(value)}


def _rank(name: str) -> tuple[int, str]:
    return FIRST.index(name) if name in FIRST else len(FIRST), name


def called(group: str) -> str:
    """Table of what a group is imported for, each with the first sentence of its docstring."""
    rows = []
    for name, value in offered(group).items():
        said = re.split(r"\.\s+(?=[A-Z])|\n\n", value.__doc__ or "")[0].rstrip(".")
        place = f"{value.__module__}.{getattr(value, '__qualname__', name)}"
        link = code(name) if "<locals>" in place else f"{{py:obj}}`{name} <{place}>`"
        rows.append([link, text(said.replace("``", "`"))])
    return f"## What it is imported for\n\n{table(('call', 'what it is'), rows)}" if rows else ""


def api(group: str) -> str:
    """What a group is imported for; then ``automodule`` of all modules, first those it is from."""
    wing = group.partition(".")[0]
    made = {value.__module__ for value in offered(group).values()}
    out = [called(group)]
    for name in sorted(_listed(wing)[group], key=lambda n: (n != group, n not in made)):
        out.append(
            f"## `{name}`\n\n```{{eval-rst}}\n.. automodule:: {name}\n   :members:\n"
            f"   :ignore-module-all:\n   :show-inheritance:\n```\n"
        )
    return "\n".join(out)


def explorable() -> list[registry.Model]:
    """Models of this package with something to explore."""
    own = [m for m in registry.TABLE.values() if not m.package and not m.systems]
    return [m for m in own if explorer.offers(m)]


def explorers() -> str:
    """Links to the explorer's pages, where they are made."""
    if not EXPLORERS:
        return "Left out of this quick build."
    made = [f'<li><a href="explore/{m.name}.html">{m.title}</a></li>' for m in explorable()]
    return f"<ul>{''.join(made)}</ul>"


class Generated(SphinxDirective):
    """A directive that parses the Markdown its maker returns."""

    optional_arguments = 8
    option_spec = dict.fromkeys(("kinds", "words", "commands"), directives.unchanged)
    make: Any

    def run(self) -> list[Any]:
        """Make the Markdown and parse it in place."""
        if type(self).make in (figures.gallery, figures.picture, figures.thumbnails):
            self.env.note_reread()  # there may be more figures than last time
        options = {name: words.split() for name, words in self.options.items()}
        made = type(self).make(*self.arguments, **options)
        return self.parse_text_to_nodes(made, allow_section_headings=True)


def direct(app: Sphinx, *makers: Any) -> None:
    """Register one directive per maker."""
    for maker in makers:
        kind = type(maker.__name__, (Generated,), {"make": staticmethod(maker)})
        app.add_directive(maker.__name__, kind)


def setup(app: Sphinx) -> dict[str, bool]:
    """Register the directives."""
    direct(app, statuses, equations, verified, coverage, ledger, commands, api, explorers)
    direct(app, figures.gallery, figures.picture, figures.thumbnails)
    # What directives are made of is no file that Sphinx watches: all pages follow this hash.
    app.add_config_value("sources_hash", "", "env")
    return {"parallel_read_safe": True, "parallel_write_safe": True}
