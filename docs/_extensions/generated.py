"""Directives whose content the toolkit itself writes: equations, ledgers, evidence,
commands, API.

Each makes MyST Markdown from the registry, the stored evidence, the ledgers or the
parsers, so that no page types what the code knows.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import figures
import interface
import pages
from cells import anchor, below, code, filtered, linked, mark, table, text
from docutils.parsers.rst import directives
from sphinx.application import Sphinx
from sphinx.util.docutils import SphinxDirective

from papers import claims, evidence
from theory.equations.equation import STATUSES
from theory.models import registry
from verify.checks.verdict import VERDICTS

ROOT = Path(__file__).parents[2]


# ---- What is derived


def statuses(model: str) -> str:
    """How many equations a model has in each section, by status."""
    rows, total = [], Counter[str]()
    for name, equations in registry.find(model).wing("theory").sections().items():
        counts = Counter(e.status for e in equations)
        total += counts
        rows.append([text(name), *(counts[s] or "" for s in STATUSES)])
    rows.append(["**all**", *(f"**{total[s]}**" if total[s] else "" for s in STATUSES)])
    return table(("section", *STATUSES), rows)


def equations(model: str) -> str:
    """Every equation of a model: name, reference, status, assumptions, formula."""
    out, met = [], set()
    for name, listed in registry.find(model).wing("theory").sections().items():
        out.append(f"## {text(name)}\n")
        for e in listed:
            assumed = (
                f" Assumes: {text('; '.join(e.assumptions))}." if e.assumptions else ""
            )
            head = f"{code(e.name)}: {text(e.reference)}; *{e.status}*.{assumed}"
            target = anchor("equation", model, e.name)
            place = (
                "" if target in met else f"({target})=\n"
            )  # two names may differ in case
            met.add(target)
            out.append(f"{place}{head}\n\n$$\n{e.latex()}\n$$\n")
    return "\n".join(out)


# ---- What is verified


def number(value: Any) -> str:
    """A number of a check, or nothing."""
    return "" if value is None else f"{value:.6g}"


def verified(model: str, commands: Sequence[str] = ()) -> str:
    """Stored evidence of a model, one table per ``verify`` command (all, or some), one
    row per kind of check.
    """
    system, out = registry.find(model), []
    stored = evidence.load(system)
    for command in commands or system.checks:
        said = f"`python -m verify.{command} {system.name}`"
        record = stored.get(command)
        if record is None:
            out.append(
                f"**{said}**: no result is stored with this version; `python -m papers"
                f" {system.paper} --claims --run {command}` stores one.\n"
            )
            continue
        counts = Counter(row["verdict"] for row in record["checks"])
        summary = ", ".join(f"{counts[v]} {v}" for v in VERDICTS if counts[v])
        out.append(
            f"**{said}**: {summary} ({record['seconds']} s, commit"
            f" `{record['commit']}`).\n"
        )
        groups: dict[str, list[dict[str, Any]]] = {}
        for row in record["checks"]:
            groups.setdefault(row["id"], []).append(row)
        rows = []
        for same in groups.values():
            worst = max(same, key=lambda row: VERDICTS.index(row["verdict"]))
            error = worst["standard_error"]
            detectable = worst["detectable"]
            tested = sorted(
                {n for row in same for n in re.split(r",\s*", row["equation"])}
            )
            name = text(
                worst["name"].partition(",")[0] if len(same) > 1 else worst["name"]
            )
            if (
                not commands
            ):  # the page of the model has all its checks, and is where links lead
                name = (
                    f"[{name}]{{#{anchor('check', system.name, command, worst['id'])}}}"
                )
            rows.append(
                [
                    name + below(text(worst.get("why", "")), linked(system, tested)),
                    len(same),
                    number(worst["predicted"]),
                    number(worst["measured"]) + (f" ± {error:.1e}" if error else ""),
                    mark(worst["verdict"]),
                    (
                        ""
                        if worst["verdict"] == "exact" or detectable is None
                        else f"{detectable:.1%}"
                        if detectable < 10
                        else "nothing"
                    ),
                ]
            )
        header = (
            "check",
            "rows",
            "predicted",
            "measured",
            "verdict (worst)",
            "detectable",
        )
        out.append(filtered(table(header, rows)))
    return "\n".join(out)


def _ledger(paper: str) -> tuple[registry.Model, list[claims.Claim], claims.Found]:
    model = next(m for m in registry.MODELS.values() if m.paper == paper)
    return model, claims.load(claims.place(model)), evidence.found(evidence.load(model))


def coverage(paper: str) -> str:
    """How many claims of a paper have each verdict, as computed from the stored
    evidence.
    """
    _, ledger, results = _ledger(paper)
    counts = claims.coverage(ledger, results)
    shown = [v for v in counts if counts[v]]
    return (
        f"{len(ledger)} claims: "
        + " &ensp;".join(f"{mark(v)} {counts[v]}" for v in shown)
        + "\n"
    )


def ledger(paper: str, kinds: Sequence[str] = (), words: Sequence[str] = ()) -> str:
    """Claims of a paper with computed verdicts: all, of some kinds, or those that name
    a word.
    """
    model, listed, results = _ledger(paper)
    rows = []
    for c in listed:
        if (kinds and c.kind not in kinds) or (
            words and not any(w in f"{c.id} {c.says} {c.note}" for w in words)
        ):
            continue
        checks = [a for a in c.evidence("check") if a in results.verdicts]
        links = [f"[{code(a)}](#{anchor('check', model.name, a)})" for a in checks]
        on = " · ".join(
            filter(None, (linked(model, c.evidence("equation")), ", ".join(links)))
        )
        said = text(c.says) + below(text(c.note), on)
        rows.append([text(c.id), said, mark(claims.computed(c, results))])
    return filtered(table(("where", "what it says", "verdict"), rows), "ledger")


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


def setup(app: Sphinx) -> dict[str, bool]:
    """Register one directive per maker."""
    makers = (
        statuses,
        equations,
        verified,
        coverage,
        ledger,
        interface.commands,
        interface.api,
    )
    drawn = (figures.gallery, figures.picture, figures.thumbnails)
    for maker in (*makers, pages.explorers, *drawn):
        kind = type(maker.__name__, (Generated,), {"make": staticmethod(maker)})
        app.add_directive(maker.__name__, kind)
    # What directives are made of is no file that Sphinx watches: all pages follow this
    # hash.
    app.add_config_value("sources_hash", "", "env")
    return {"parallel_read_safe": True, "parallel_write_safe": True}
