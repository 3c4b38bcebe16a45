"""What no statement can be ends in one line that names the place; a file is a model."""

from __future__ import annotations

import json
import subprocess
import sys
import textwrap

import pytest

from theory import __main__ as listing
from theory import latex, onset
from theory.call.refusal import ParameterError
from theory.models import registry
from theory.statement import (
    eq,
    exp,
    gauss,
    model,
    sizes,
    sort,
    statement,
    teacher,
    total,
    weight,
)
from theory.statement.derivation.derived import derive
from theory.statement.words.language import draw

HEAD = "from theory.statement import *\nN = sizes('N')\ntoken = sort('token', N)\n"
TABLE = HEAD + "W, z = weight('W', token, token), draw(token)\n"
GOOD = (
    TABLE
    + "table = statement(cross_entropy(lambda y: W[z, y], over=token, target=z),\n"
    "                  name='table', title='Which token is it?', values={'N': 5})\n"
)
WRONG = {
    "W[z]": "weight W: takes 2 indices",
    "W[z, draw(sort('place', 3))]": "of sort place, must be of sort token",
    "W[z, 1]": "weight W: index 2 = 1: must be an index of sort token",
    "z": "is an index, with which nothing is computed",
    "'three'": "must be a number",
    "2 * N": "loss: reads no weight",
    "eq(z, 3) * W[z, z]": "must be an index of sort token",
    "total(lambda i: W[z, i], 7)": "total over 7: must be a sort",
    "total(lambda i: W[z, i], token, below=z)": "only one ordered sort can be masked",
    "W[z, total(lambda i: keep.append(i) or W[i, i], token) and keep[0]]": (
        "outside of its sum"
    ),
    "cross_entropy(lambda y: W[z, y], over=token, target=(z, z))": "takes 1 indices",
    "W[z, teacher('f', (token,), sort('few', 2))(z)]": (
        "of sort few, must be of sort token"
    ),
    "W[z, z] * weight('W', token)[z]": "two of its weights are called W",
    "W[z, z] * weight('N', token)[z]": "weight N: its name is that of something else",
    "W[z, z] * weight('a b', token)[z]": "must be a name",
    "W[z, z] > 1": "cannot be less or more than something; eq(i, j) compares",
    "eq(z, z) * (z < z)": "eq(i, j) compares",
    "W[z, z] * gauss('x', sort('dim', 3, vector=True))(z)": (
        "gauss x: is read with [...]"
    ),
    "W[z, z] * weight('a')": (
        "a: is an array; its entries, read with [...], or [()] without indices"
    ),
    "W[z, teacher('f', (token,), token)[z]]": "teacher f: is read with (...)",
    "W[fixed(token, 0), z]": "place = 0: must lie in 1..N",
    "W[fixed(sort('dim', N, vector=True), 1), z]": (
        "directions of a vector have no places"
    ),
}
MADE = {
    "sort('empty', 0)": "size = 0: must be a positive whole number",
    "sort('half', N / 2)": "must be a positive whole number",
    "weight('P', sort('place', 3, ordered=True))": "absolute positions",
    "teacher('f', (sort('many', 5),), sort('few', 3), injective=True)": (
        "cannot be one-to-one"
    ),
    "teacher('f', (token,), token, injective=(sort('other', 2),))": (
        "must be among its arguments"
    ),
    "sample('x', (token,), token, injective='mostly')": "'leading order'",
    "teacher('f', (token,), sort('choice', 2, of=sort('relation', 2)))": (
        "must be an argument"
    ),
    "gauss('x', token)": "must be a vector: sort(..., vector=True)",
    "gauss('x', (), token)": "must be a vector: sort(..., vector=True)",
    "teacher('u', (), token)": "needs at least one argument; one element is draw(sort)",
    "fixed('u', token)": "fixed 'u': must be of a sort",
    "fixed(token, 'u')": "'u': must be a number",
    "draw('u')": "draw of 'u': must be of a sort",
    "statement(W[z, z], values={'N': 0.2})": "a real number is number('N')",
    "draw(sort('choice', 2, of=token))": "must be the token that it belongs to",
    "draw(token, distinct=3)": "must be a token",
    "statement(W[z, z], version=2)": "version = 2: must be 1",
    "statement(W[z, z], closure='annealed')": "must be 'mean logits'",
}


@pytest.mark.parametrize("text", [*WRONG, *MADE])
def test_what_is_wrong_is_named(text, tmp_path):
    """One line with the file and its line."""
    file = tmp_path / "model.py"
    made = f"statement({text})" if text in WRONG else text
    file.write_text(f"{TABLE}keep = []\nwrong = {made}\n")
    with pytest.raises(ParameterError) as caught:
        registry.find(str(file))
    said = str(caught.value)
    assert (
        f"{file}, line 6: " in said
        and {**WRONG, **MADE}[text] in said
        and "\n" not in said
    )


@pytest.mark.parametrize(
    ("more", "said"),
    [
        ("U = weight('U', token)", "weight U: is read by no statement"),
        ("w = draw(token)", "draw w of token: is used by no statement"),
        ("V = {'a': weight('V_a', token)}", "weight V_a: is read by no statement"),
        ("f = teacher('f', (token,), token)", "teacher f: is read by no statement"),
        ("other = statement(W[z, z])", "states several models"),
        ("1 +", "line 7: SyntaxError"),
        ("import no_such_package", "line 7: ModuleNotFoundError"),
        ("del table", "states nothing"),
    ],
)
def test_files_that_state_no_model(more, said, tmp_path):
    """What is made and not read, several statements, none, and what Python refuses."""
    file = tmp_path / "model.py"
    file.write_text(f"{GOOD}{more}\n")
    with pytest.raises(ParameterError) as caught:
        registry.find(str(file))
    assert said in str(caught.value) and "\n" not in str(caught.value)


def test_a_file_is_a_model(tmp_path, capsys):
    """Listing, LaTeX and onset of a file; no torch is imported."""
    file = tmp_path / "model.py"
    file.write_text(GOOD)
    assert listing.main([str(file)]) == 0
    said = capsys.readouterr().out
    assert (
        "Which token is it?" in said and "translation_1" in said and "N⋅(N - 1)" in said
    )
    assert latex.main([str(file), "--equation", "ddelta_W_dt"]) == 0
    assert r"\frac{1}{N + e^{\delta_{W}} - 1}" in capsys.readouterr().out
    assert onset.main([str(file), "--json", "--set", "N=7"]) == 0
    found = json.loads(capsys.readouterr().out)
    assert (
        found["parameters"]["N"] == 7
        and 0 < found["t_10"] < found["t_50"] < found["t_90"]
    )
    loaded = (
        "import sys; from theory import onset; onset.main(sys.argv[1:]); assert 'torch'"
        " not in sys.modules"
    )
    subprocess.run(
        [sys.executable, "-c", loaded, str(file)], check=True, capture_output=True
    )


def test_numbers_that_are_missing_or_do_not_fit(tmp_path):
    """A size without a value, and sizes that leave a sort empty or do not fit a
    teacher.
    """
    file = tmp_path / "model.py"
    file.write_text(GOOD.replace(", values={'N': 5}", ""))
    made = registry.find(str(file)).wing("theory")
    with pytest.raises(ParameterError, match="N: has no value"):
        made.onset(made.Parameters())
    A, D = sizes("A D")
    item, label = sort("item", A - 2), sort("label", D)
    from theory.statement import cross_entropy, teacher

    f, V, x = teacher("f", (item,), label), weight("V", item, label), draw(item)
    stated = statement(cross_entropy(lambda d: V[x, d], over=label, target=f(x)))
    kind = model.parameters(stated)
    assert kind(A=8, D=3).A == 8
    with pytest.raises(ParameterError, match="sort item: A = 2: A - 2 = 0"):
        kind(A=2)
    with pytest.raises(
        ParameterError, match="teacher f: A - 2 = 5: must be such that D = 3"
    ):
        kind(A=7, D=3)
    with pytest.raises(ParameterError, match="B: there are A, D"):
        model.parameters(statement(V[x, f(x)], values={"B": 1}))


def test_a_statement_in_a_package_is_a_registered_model(tmp_path, forked):
    """An entry point may offer the statement itself."""
    (tmp_path / "stranger.py").write_text(GOOD)
    info = tmp_path / "stranger-1.dist-info"
    info.mkdir()
    (info / "METADATA").write_text(
        "Metadata-Version: 2.1\nName: stranger\nVersion: 1\n"
    )
    (info / "entry_points.txt").write_text(
        "[solvable_transformers.models]\nlookup = stranger:table\n"
    )
    code = f"""
        import sys; sys.path.insert(0, {str(tmp_path)!r})
        from theory import __main__
        from theory.models import registry
        assert registry.find("lookup").title == "Which token is it?"
        __main__.main(["lookup"])
    """
    found = forked(lambda: exec(textwrap.dedent(code), {}), anew=True)
    assert found.returncode == 0 and found.stdout.startswith(
        "lookup: Which token is it?"
    )


def test_what_cannot_be_derived_is_named():
    """One line with the draw, sum, teacher or data."""
    n, m = sizes("n m")
    item, label, dim = sort("item", n), sort("label", m), sort("dim", m, vector=True)
    place = sort("place", m, ordered=True)
    f, g = teacher("f", (item,), label), teacher("g", (item,), place)
    W, v, i = weight("W", item, label), weight("v", dim), draw(item)
    x = gauss("x", dim)
    count = lambda of: total(lambda j: eq(of(i), of(j)) * 1, item)
    refused = {
        "eq of numbers: whether n - 3 = 0": (
            eq(total(lambda j: 1, item), 3) * W[i, f(i)]
        ),
        "gauss x: in a function": exp(total(lambda k: x[k] * v[k], dim)),
        "teacher g: its values are place, which is ordered": W[i, f(i)] * count(g),
        "weight v: start = 1": total(
            lambda k: x[k] * weight("v", dim, start=1)[k], dim
        ),
    }
    for said, loss in refused.items():
        with pytest.raises(ParameterError, match=said) as caught:
            derive(statement(loss))
        assert "\n" not in str(caught.value)


def test_nothing_moves():
    """A loss that equal entries cannot lower has no flow, and says so."""
    token = sort("token", sizes("N"))
    W, z = weight("W", token, token), draw(token)
    made = derive(statement(W[z, z] - W[z, z] + 1))
    with pytest.raises(ParameterError, match="nothing moves"):
        _ = made.flow
    assert "loss" in made.equations()
    D, n = sizes("D n")
    dim, kind = sort("dim", D, vector=True), sort("kind", n)
    w, x, k = weight("w", dim), gauss("x", kind, dim), draw(kind)
    with pytest.raises(ParameterError, match="nothing moves: by symmetry"):
        derive(statement((total(lambda i: w[i] * x[k, i], dim) - 1) ** 2))


def test_the_text_of_a_statement_tells_statements_apart():
    """The same when it is stated again, another one when anything differs."""
    import sys as system
    from pathlib import Path

    system.path.insert(0, str(Path(__file__).parent))
    import systems

    made = [
        systems.recall,
        lambda: systems.recall("softmax"),
        systems.retrieval,
        systems.tracking,
    ]
    texts = [f().text for f in made]
    assert len(set(texts)) == len(texts)
    assert texts == [f().text for f in made]
