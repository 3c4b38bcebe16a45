"""What there is and what it weighs: the feature table of CONTRIBUTING.md against the
tree. ``python -m tests.features`` prints what is wrong with it, and with ``--write``
types the weights anew.

A weight is the number of nodes of the syntax trees (`ast`) of the Python files of a
feature, without its tests. A file belongs to the row that names it most closely: a
file before a pattern, a pattern before its folder, an inner folder before an outer one.
"""

import argparse
import ast
import re
from collections.abc import Iterable
from dataclasses import dataclass
from fnmatch import fnmatch
from pathlib import Path, PurePosixPath

ROOT = Path(__file__).parents[1]
PLACE = ROOT / "CONTRIBUTING.md"
FOLDERS = ("theory", "simulate", "verify", "papers", "examples", "benchmarks")
HEAD = "| feature | where | who asked | nodes |"
TOLERANCE = 0.1  # share by which a weight may be off
DIGITS = 2  # of a weight, as it is written


@dataclass(frozen=True)
class Feature:
    """A row of the table.

    Attributes
    ----------
    name, asked : str
        What it is, and who asked for it.
    where : tuple of str
        Files, folders and patterns, from the root.
    nodes : int
        Weight as it is written.
    line : str
        The row itself.
    """

    name: str
    where: tuple[str, ...]
    asked: str
    nodes: int
    line: str


def table(text: str) -> list[Feature]:
    """Rows of the table in the text of a page."""
    _, _, below = text.partition(f"{HEAD}\n")
    rows = []
    for line in below.splitlines()[1:]:
        if not line.startswith("|"):
            break
        name, where, asked, nodes = (cell.strip() for cell in line.split("|")[1:-1])
        places = tuple(re.findall(r"`([^`]+)`", where))
        number = int(nodes.replace(",", "") or 0)
        rows.append(Feature(name, places, asked, number, line))
    return rows


def files(root: Path = ROOT) -> list[str]:
    """Python files of the toolkit and of the examples, tests left out."""
    found = []
    for folder in FOLDERS:
        for file in sorted((root / folder).rglob("*.py")):
            if not file.name.startswith("test_"):
                found.append(file.relative_to(root).as_posix())
    return found


def closeness(place: str, file: str) -> tuple[int, int]:
    """How closely a place names a file; zeros if it does not."""
    depth = len(PurePosixPath(place).parts)
    if place == file:
        return depth, 2
    same_depth = depth == len(PurePosixPath(file).parts)
    if "*" in place and same_depth and fnmatch(file, place):
        return depth, 1
    if file.startswith(f"{place.rstrip('/')}/"):
        return depth, 1
    return 0, 0


def owner(features: Iterable[Feature], file: str) -> Feature | None:
    """The row that a file belongs to; None if no row names it."""
    best, closest = None, (0, 0)
    for feature in features:
        for place in feature.where:
            if closeness(place, file) > closest:
                best, closest = feature, closeness(place, file)
    return best


def nodes(path: Path) -> int:
    """Nodes of the syntax tree of a file."""
    return sum(1 for _ in ast.walk(ast.parse(path.read_text(encoding="utf-8"))))


def weights(features: list[Feature], root: Path = ROOT) -> dict[str, int]:
    """What each row weighs, by its name."""
    found = dict.fromkeys([feature.name for feature in features], 0)
    for file in files(root):
        feature = owner(features, file)
        if feature is not None:
            found[feature.name] += nodes(root / file)
    return found


def rounded(weight: int) -> str:
    """A weight with two digits, as it is written."""
    places = max(len(str(weight)) - DIGITS, 0)
    return f"{round(weight, -places):,}"


def faults(text: str, root: Path = ROOT) -> list[str]:
    """What is wrong with the table, a line each."""
    features = table(text)
    wrong = []
    for file in files(root):
        if owner(features, file) is None:
            wrong.append(f"{file}: in no row; who asked for it?")
    for name, weight in weights(features, root).items():
        feature = next(f for f in features if f.name == name)
        if not feature.asked:
            wrong.append(f"{name}: does not say who asked")
        if not weight:
            wrong.append(f"{name}: {', '.join(feature.where)} holds no code")
        elif abs(feature.nodes / weight - 1) > TOLERANCE:
            wrong.append(f"{name}: weighs {rounded(weight)}, not {feature.nodes:,}")
    return wrong


def written(text: str, root: Path = ROOT) -> str:
    """The page with the weights of the tree."""
    features = table(text)
    found = weights(features, root)
    for feature in features:
        cells = feature.line.split("|")
        cells[-2] = f" {rounded(found[feature.name])} "
        text = text.replace(feature.line, "|".join(cells))
    return text


def main() -> int:
    """Command line."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n\n")[0])
    parser.add_argument("--write", action="store_true", help="type the weights anew")
    if parser.parse_args().write:
        PLACE.write_text(written(PLACE.read_text()))
    wrong = faults(PLACE.read_text())
    print("\n".join(wrong) or "the table is the tree's")
    return int(bool(wrong))


if __name__ == "__main__":
    raise SystemExit(main())
