"""Character models: windows of text, scores of heads on patterns built by hand, one short run."""

import numpy as np
import pytest
import torch

from simulate.induction_heads import text as models
from simulate.induction_heads.text import Parameters, Transformer, on_text
from theory.induction_heads import text as published
from theory.parameters import ParameterError
from verify.check import failed
from verify.induction_heads import text

SMALL = dict(text="zen", vocabulary=12, context=12, D=8, heads=2, batch_size=4, n_test=8)
HALF = 6


def built(at):
    """Attention of one head, all of it on one character of every row, shape (1, 1, T, T)."""
    return torch.eye(2 * HALF)[torch.as_tensor(at)][None, None]


def test_prefix_matching_of_built_patterns():
    """1 for the induction pattern; 0 for the previous character, for the same character, and for
    the one after the next. Rows of the first showing do not count.
    """
    row = np.arange(2 * HALF)
    after = np.where(row >= HALF, row - HALF + 1, 0)
    assert models.prefix(built(after), HALF).item() == 1
    for wrong in (np.maximum(row - 1, 0), np.maximum(row - HALF, 0), np.maximum(row - HALF + 2, 0)):
        assert models.prefix(built(wrong), HALF).item() < 0.2
    late = np.where(row >= HALF + 3, after, 0)  # known after three characters
    assert models.prefix(built(late), HALF).item() == pytest.approx(0.5)
    assert models.prefix(built(late), HALF, known=3).item() == 1


def test_previous_and_copying_of_built_heads():
    """A diagonal below; circuits that raise what they see, lower it, or permute."""
    row = np.arange(2 * HALF)
    paid = built(np.maximum(row - 1, 0))
    assert models.previous(paid).item() == 1 and models.previous(built(row)).item() == 0
    one, turned = torch.eye(5), torch.eye(5).roll(1, 0)
    assert models.copying(torch.stack([one, -one])) == pytest.approx([1, -1])
    assert models.copying(turned) == pytest.approx(0, abs=1e-12)
    assert models.copying(0 * one) == 0


def test_circuits_of_the_second_layer():
    """What a head adds to logits, by its matrices, is what attention on a token adds."""
    p = Parameters(**SMALL)
    student = Transformer(p, torch.Generator().manual_seed(1))
    second, circuits = student.layers[1], student.copies()
    tokens = student.tokens[:3]
    read = (tokens @ second.value.T).unflatten(-1, (2, -1))
    for h in range(2):
        only = torch.zeros_like(read)
        only[:, h] = read[:, h]
        added = only.flatten(1) @ second.out.T @ student.readout.T
        assert torch.allclose(added, circuits[h][:, :3].T, atol=1e-5)


def test_windows():
    """As the text goes on; in pieces; as one segment again and again."""
    text, random = np.arange(1000), np.random.default_rng(0)
    p = Parameters(context=16, repeats=0.0)
    plain = models.windows(p, text, 20, random)
    assert plain.shape == (20, 17) and (np.diff(plain) == 1).all()
    pieces = models.windows(p.replace(piece=4), text, 20, random)
    assert (np.diff(pieces)[:, [0, 1, 2, 4, 5, 6]] == 1).all() and (
        np.diff(pieces)[:, 3] != 1
    ).any()
    again = models.windows(p.replace(repeats=1.0), text, 200, random)
    periods = {int(np.flatnonzero(row == row[0])[1]) for row in again}
    assert periods == set(range(4, 9))
    some = models.windows(p.replace(repeats=0.3), text, 2000, random)
    share = np.mean([(row == row[0]).sum() > 1 for row in some])
    assert share == pytest.approx(0.3, abs=0.05)  # five standard errors


def test_texts():
    """Most frequent characters first, the rest as one; its end held out; short texts refused."""
    made = models.Corpus.of("aaab" * 60 + "xyz", 3, 10)
    assert made.train[:4].tolist() == [0, 0, 0, 1] and made.test[-3:].tolist() == [2, 2, 2]
    assert "beautiful" in models.read("zen").lower()
    with pytest.raises(ParameterError, match="^text: has 40 characters, must have more than 120"):
        models.Corpus.of("abcd" * 10, 3, 10)


def test_a_text_of_the_users_own(tmp_path):
    """Learns that two letters alternate; its runs are stored apart."""
    p, system = on_text(Parameters(**SMALL, steps=60, repeats=0.0, eta=0.01), "ab" * 500)
    runs = system.train(p, store=tmp_path, workers=1, progress=False)
    assert runs.loss[0, -1] < 0.1 < runs.loss[0, 0]
    other = on_text(p, "ba" * 400)[1]
    assert other.name != system.name and other.identity(p) != system.identity(p)


def test_published_fit():
    """Steps of B C tokens each: exponents -1/2."""
    assert [published.exponent(x) for x in (published.B, published.C)] == [-0.5, -0.5]


def test_heads_that_divide():
    with pytest.raises(ParameterError, match="heads = 3: must divide D = 8"):
        Parameters(D=8, heads=3)


@pytest.fixture(scope="module")
def found():
    """Times of the shipped ensembles."""
    return text.times(text.shipped())


def test_rows_of_the_shipped_ensembles(found):
    """Hold; rows see a batch size that does not matter, a length that helps, bursts that do not."""
    runs = text.shipped()
    assert not failed(text.checks(found))
    assert not failed(text.copying(runs, found))
    assert found["base"].size == found["B = 8"].size == 6
    slow = {**found, "B = 8": 1.1 * np.roll(found["base"], 1), "C = 16": 4 * found["C = 64"]}
    slow["half repeated"] = found["base"] / 1.1
    assert [c.verdict for c in text.checks(slow)] == ["FAIL"] * 3
    rows = {row[0]: row for row in text.table(runs, found)}
    assert rows["plain text"][1].startswith("> 6000") and rows["base"][1] == "315"


def test_the_table_is_that_of_the_shipped_runs():
    """Steps by a loop over seeds; characters in thousands, and in units of the published fit."""
    runs = text.shipped()
    for name, steps, characters, of_fit, gain, prefix in text.table(runs, text.times(runs)):
        p, r = text.parameters(name), runs[name].transpose("seed", "step")
        there = []
        for row in r.prefix.values:
            at = next((k for k, x in enumerate(row) if x >= text.LEVEL), None)
            if at is not None:
                share = (text.LEVEL - row[at - 1]) / (row[at] - row[at - 1])
                there.append(np.interp(at - 1 + share, range(len(row)), r.step.values))
        mean = np.mean(there) if there else p.steps
        assert f"{mean:.0f}" == steps.removeprefix("> ").partition(" ")[0], name
        assert f"{mean * p.batch_size * p.context / 1000:.0f}" == characters.removeprefix("> "), (
            name
        )
        fit = published.T_PUBLISHED * np.sqrt(p.batch_size * p.context)
        share = mean * p.batch_size * p.context / fit
        assert float(of_fit.removeprefix("> ")) == pytest.approx(share, abs=6e-4), name
        gained = r.loss_first.values[:, -1].mean() - r.loss_second.values[:, -1].mean()
        assert float(gain) == pytest.approx(gained, abs=0.0051), name
        assert float(prefix) == pytest.approx(r.prefix.values[:, -1].mean(), abs=0.0051), name
