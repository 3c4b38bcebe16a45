"""Sources of the site: links, required content, and the output of the directives."""

import importlib
import json
import re
import sys
import types
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from papers import evidence
from theory.models import registry

ROOT = Path(__file__).parents[2]
PAGES = sorted((ROOT / "docs").rglob("*.md"))
LINK = re.compile(r"\]\(([^)\s#]*)(?:#[^)]*)?\)")


def prose(path):
    """A page without its code."""
    return re.sub(r"^```.*?^```", "", path.read_text(), flags=re.DOTALL | re.MULTILINE)


@pytest.mark.parametrize("page", PAGES, ids=lambda p: str(p.relative_to(ROOT / "docs")))
def test_links_of_a_page(page):
    """Every file a page links to is there."""
    missing = [
        target
        for target in LINK.findall(prose(page))
        if target and "://" not in target and not (page.parent / target).exists()
    ]
    assert missing == []


def test_every_page_is_in_a_table_of_contents():
    """Every page is reachable from a table of contents."""
    listed = {ROOT / "docs" / "index.md"}
    for page in PAGES:
        for tree in re.findall(
            r"^```\{toctree\}\n(.*?)^```", page.read_text(), re.M | re.S
        ):
            names = [x for x in tree.split("\n") if x and not x.startswith(":")]
            listed |= {page.parent / f"{name}.md" for name in names}
    assert listed == set(PAGES)


def test_pictures_have_alternative_texts():
    """Every cell that draws a figure has an alternative text."""
    for page in PAGES:
        cells = re.findall(r"^```\{code-cell\}.*?^```", page.read_text(), re.M | re.S)
        for cell in cells:
            drawn = re.search(
                r"^(figure, |figure$|figure = |Image\(|[a-z.]*result\.plot\()",
                cell,
                re.MULTILINE,
            )
            assert not drawn or "alt: " in cell, (page.name, cell[:80])


def test_a_picture_that_an_executed_page_lacks_fails_the_build(monkeypatch, tmp_path):
    """A warning for each, which the build turns into an error; none for a page that did
    not run.
    """
    pytest.importorskip("sphinx", reason="Sphinx is not installed (extra docs)")
    monkeypatch.syspath_prepend(ROOT / "docs/_extensions")
    pages = importlib.import_module("pages")
    (tmp_path / "a.md").write_text("    alt: 'One: \"rises\"'\n  alt: Two\n")
    warnings, body = (
        [],
        '<img class="x" src="a.png" alt="One: &quot;rises&quot;"/> alt="Two"',
    )
    monkeypatch.setattr(
        pages.logger, "warning", lambda text, alt, location: warnings.append(alt)
    )
    for ran, missing in ((True, ["Two"]), (False, [])):
        app = types.SimpleNamespace()
        app.env = types.SimpleNamespace(
            nb_metadata={"a": {"exec_data": {"runtime": 1} if ran else None}}
        )
        app.env.doc2path = lambda page: tmp_path / f"{page}.md"
        warnings.clear()
        pages.pictured(app, "a", "page.html", {"body": body}, None)
        assert warnings == missing


def test_every_model_and_system_has_a_page():
    """The models by name; the systems through the table that lists them all."""
    text = "".join(prose(page) for page in PAGES)
    assert all(f"`{name}`" in text for name in registry.MODELS)
    family = (ROOT / "docs/models/associative_memory.md").read_text()
    assert "family.systems" in family and registry.find("associative_memory").systems


def test_readme_is_short():
    """Under 100 lines of at most 120 characters, every system named, links there."""
    text = (ROOT / "README.md").read_text()
    lines = text.splitlines()
    assert len(lines) < 100
    assert [x for x in lines if len(x) > 120] == []
    assert [
        m.name for m in registry.TABLE.values() if m.name.split(".")[-1] not in text
    ] == []
    targets = [t for t in LINK.findall(text) if "://" not in t]
    assert targets and [t for t in targets if not (ROOT / t).exists()] == []


def test_copies_of_figures_are_of_figures():
    """Every small copy has a commit, and is of a figure that some paper still has."""
    kept = ROOT / "docs/_static/kept"
    commits = json.loads((kept / "commits.json").read_text())
    files = {
        f"{p.parent.name}/{p.stem.removeprefix('figure_')}" for p in kept.glob("*/*")
    }
    figures = {
        f"{m.paper}/{name}"
        for m in registry.MODELS.values()
        for name in m.ledger().FIGURES
    }
    assert set(commits) == files <= figures


def test_a_copy_is_small_and_names_its_commit(monkeypatch, tmp_path):
    """One figure of a paper, drawn by hand here."""
    monkeypatch.syspath_prepend(ROOT / "docs/_extensions")
    import figures

    def make(figure, paper, folder, scale):
        path = folder / f"figure_{figure.name}.png"
        Image.new("RGB", (1400, 700), "white").save(path, dpi=(200, 200))
        return path, figure.name == "law"

    monkeypatch.setattr(figures, "KEPT", tmp_path)
    monkeypatch.setattr(figures, "make", make)
    monkeypatch.setattr(figures, "SLOW", {("musat2025", "law")})
    figures.keep(["musat2025"])
    commit = json.loads((tmp_path / "commits.json").read_text())
    assert commit == {"musat2025/law": evidence.commit(Path(__file__))}
    (copy,) = tmp_path.rglob("*.png")
    with Image.open(copy) as small:
        assert small.size == (7 * figures.DPI, 3.5 * figures.DPI)
        assert small.info["dpi"] == pytest.approx(
            (figures.DPI, figures.DPI), rel=1e-3
        )  # per metre


def test_a_thumbnail_is_the_first_panel(monkeypatch, tmp_path):
    """With its title and labels, without the line above the panels and the panel beside
    it; the copy that is kept has the same.
    """
    monkeypatch.syspath_prepend(ROOT / "docs/_extensions")
    monkeypatch.setenv("DOCS_SOURCES", "here")
    import figures

    from papers.source import Figure, Source
    from theory.runtime import plotting

    def draw(source):
        drawn, (left, right) = plotting.figure(1, 2)
        left.plot([0, 1], "C0")
        left.set(title="left", ylabel="number")
        right.plot([0, 1], "r")
        plotting.headline(drawn, "parameters of all panels; in one line above them")
        return drawn

    path = Figure("law", "", draw).write(Source("small", [0]), tmp_path)
    monkeypatch.setattr(figures, "DRAWN", tmp_path)
    monkeypatch.setattr(figures, "KEPT", tmp_path / "kept")
    monkeypatch.setattr(figures, "make", lambda f, *a: (path, f.name == "law"))
    figures.keep(["musat2025"])
    kept = tmp_path / "kept/musat2025/figure_law.png"
    for file in (path, kept):
        whole = Image.open(file).convert("RGB")
        part = Image.open(figures.thumbnail(file, "paper")).convert("RGB")
        assert part.width < 0.52 * whole.width and part.height < whole.height - 8
        colours = np.asarray(part).reshape(-1, 3).astype(int)
        assert not (colours @ [1, -1, -1] > 200).any()  # red of the panel beside it
        edge = np.asarray(part.convert("L")) < 128
        edge[1:-1, 1:-1] = False
        assert not edge.any()  # no letter is cut


def test_figures_that_differ_in_numbers_are_one_entry(monkeypatch, tmp_path):
    """All are named, and linked."""
    monkeypatch.syspath_prepend(ROOT / "docs/_extensions")
    monkeypatch.setenv("DOCS_SOURCES", "here")
    import figures

    monkeypatch.setattr(figures, "DRAWN", tmp_path)
    monkeypatch.setattr(figures, "draw", lambda figure, paper, scale: None)
    made = figures.thumbnails("musat2025")
    named = set(re.findall(r"\(#figure-musat2025-([\w-]+)\)", made))
    assert named == {n.replace("_", "-") for n in figures.of_paper("musat2025")[0]}
    assert made.count("Weights after") == 1 and "[14](#figure-musat2025-14)" in made


def test_a_copy_of_a_table_is_text(monkeypatch, tmp_path):
    """Kept as it is, and shown as a block, not as a picture."""
    monkeypatch.syspath_prepend(ROOT / "docs/_extensions")
    import figures

    def make(figure, paper, folder, scale):
        path = folder / f"{figure.name}.txt"
        path.write_text("solution  accuracy")
        return path, figure.name == "table_1"

    monkeypatch.setattr(figures, "KEPT", tmp_path)
    monkeypatch.setattr(figures, "make", make)
    figures.keep(["cui2024"])
    assert (tmp_path / "cui2024/table_1.txt").read_text() == "solution  accuracy"
    shown = figures.shown(
        None, "", figures.of_paper("cui2024")[0]["table_1"], "cui2024"
    )
    assert "```text\nsolution  accuracy\n```" in shown and "figure}" not in shown


def extension(name):
    """A module of `docs/_extensions`."""
    for package in ("sphinx", "latex2mathml"):
        pytest.importorskip(package, reason=f"{package} is not installed (extra docs)")
    sys.path.insert(0, str(ROOT / "docs/_extensions"))
    try:
        return importlib.import_module(name)
    finally:
        sys.path.pop(0)


@pytest.fixture(scope="module")
def generated():
    """Equations, evidence and ledgers."""
    return extension("generated")


@pytest.fixture(scope="module")
def interface():
    """Commands and API."""
    return extension("interface")


@pytest.fixture(scope="module")
def cells():
    """Markdown of tables."""
    return extension("cells")


def test_commands_know_their_flags(interface):
    """Every module that is a command is listed, with flags its parser has."""
    text = interface.commands()
    assert "`python -m theory.onset`" in text and "`python -m verify.laws`" in text
    assert text.count("\n## ") == len(interface.modules()) > 10
    assert "`--grid NAME=V1,V2`" in text and "SUPPRESS" not in text


def test_api_lists_every_module(interface):
    """Each public module of the wings stands in exactly one group, and each group has a
    page.
    """
    index = (ROOT / "docs/api/index.md").read_text()
    for wing in interface.WINGS:
        groups = interface._listed(wing)
        names = [name for group in groups.values() for name in group]
        assert len(names) == len(set(names)) and f"{wing}" in groups
        for group in groups:
            assert f"\n{group.replace('.', '_')}\n" in index
            assert (ROOT / f"docs/api/{group.replace('.', '_')}.md").is_file()


def test_ledger_has_every_claim(generated):
    """One row per claim, and a verdict in each."""
    made = generated.ledger("cui2024")
    _, listed, _ = generated._ledger("cui2024")
    assert made.count("{.verdict .") == len(listed) > 20
    errata = generated.ledger("cui2024", kinds=["erratum"]).count("{.verdict .")
    assert 0 < errata < len(listed)


def test_pages_of_the_api_open_with_what_is_called(interface):
    """Predictions and training before the rest, and modules that define them before
    others.
    """
    theory, students = (
        interface.api(f"{wing}.state_tracking") for wing in ("theory", "simulate")
    )
    calls = theory[: theory.index("## `theory.state_tracking`")]
    assert (
        calls.index("`Parameters <")
        < calls.index("`predict <")
        < calls.index("`c_omega <")
    )
    assert "`train <simulate.training.plan.System.train>`" in students
    assert theory.index(".predict`\n") < theory.index(".cavity`\n")
    assert all(
        f"`{name} <" in interface.called("verify")
        for name in ("ensembles", "compare.times.exponents")
    )


def test_evidence_shows_why(generated, monkeypatch):
    """Where it is stored; and each row leads to the formulas that it tests."""
    check = {
        "id": "late",
        "name": "late",
        "equation": "(15), dA_dalpha",
        "predicted": 1.0,
    }
    check |= {
        "measured": 1.2,
        "standard_error": None,
        "detectable": 0.2,
        "verdict": "limit",
    }
    record = {"commit": "c", "seconds": 1, "checks": [check | {"why": "off by *much*"}]}
    monkeypatch.setattr(
        generated.evidence, "load", lambda model: {"trajectories": record}
    )
    made = generated.verified("state_tracking")
    assert r"[off by \*much\*]{.note}" in made and "[limit]{.verdict .limit}" in made
    assert "[late]{#check-state-tracking-trajectories-late}" in made
    assert "[`dA_dalpha`](#equation-state-tracking-da-dalpha)" in made


def test_cells_survive_what_is_in_them(cells):
    """A bar, a star or a dollar does not break a table."""
    made = cells.table(("a",), [[cells.text("|z| <= 4 * x_1 $y$ [b](c)")]])
    assert made.splitlines()[2].count("|") - made.splitlines()[2].count(r"\|") == 2
    assert r"\$y\$" in made and r"\[b\]" in made


def test_mathematics_becomes_mathml():
    """A flow's block has rows, no command is left, and an unknown one is named."""
    from theory import state_tracking

    mathml = extension("mathml")
    stacked = mathml.mathml(
        r"{W^{(1)}}_{m,n} \overline{C} \left(N - 1\right)", "inline", None
    )
    assert (
        "<msubsup>" in stacked
        and "\u203e" in stacked
        and 'stretchy="true" fence' not in stacked
    )
    tall = mathml.mathml(r"\left(\frac{a}{b}\right)", "inline", None)
    assert tall.count('stretchy="true"') == 2
    made = mathml.mathml(state_tracking.flow().latex(), "block", None)
    assert made.count("<mtr>") >= 3 and "\\" not in made
    said = []
    mathml.LOG.warning = lambda text, *rest, **_: said.append(rest)
    try:
        mathml.mathml(r"\nosuchcommand x", "inline", None)
    finally:
        del mathml.LOG.warning
    assert said and r"\nosuchcommand" in said[0][0]


CONF = """
import time
from types import SimpleNamespace
import pages

def page(model, p):
    if model.name == "BAD":
        time.sleep(2)  # longer than all else takes: the build waits
        raise ValueError("no page of this model")
    return model.name

pages.explorable = lambda: [SimpleNamespace(name=name) for name in ("one", "two", "three")]
pages.curves = SimpleNamespace(charts=lambda model: "tables" if model.name == "two" else None)
pages.explorer = SimpleNamespace(page=page, opening=lambda model: None)
extensions = ["sphinx.ext.autodoc", "pages"]
"""


@pytest.mark.parametrize("bad", ["", "two"])
def test_a_page_of_the_explorer_that_fails_fails_the_build(
    tmp_path, bad, forked, monkeypatch
):
    """Otherwise all are there when the build ends,
    however many processes write them.
    """
    pytest.importorskip("sphinx", reason="sphinx is not installed (extra docs)")
    (tmp_path / "conf.py").write_text(CONF.replace("BAD", bad))
    (tmp_path / "index.rst").write_text("Page\n====\n")
    monkeypatch.syspath_prepend(ROOT / "docs/_extensions")
    built = forked("sphinx", "-j", "2", "-q", str(tmp_path), str(tmp_path / "html"))
    assert (built.returncode != 0) is bool(bad), built.stderr[-2000:]
    assert ("no page of this model" in built.stderr) is bool(bad)
    pages = {
        path.stem: path.read_text()
        for path in (tmp_path / "html/explore").glob("*.html")
    }
    assert bad or pages == {name: name for name in ("one", "two", "three")}
