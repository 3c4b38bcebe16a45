"""A statement: one expression tree that defines the student, its data and its loss.

The words (`theory.statement.words.language`): ``sizes``, ``number``, ``spectrum``;
``sort``, ``teacher``, ``sample``, ``gauss``, ``weight``, and how one starts:
``gaussian``, ``uniform``, ``orthogonal``; ``draw``, ``fixed``, ``total``, ``eq``,
``exp``, ``log``, ``cross_entropy``; and ``statement``, which makes the `Statement`.

The tree (`theory.statement.words.tree`) has one kind of node for numbers (`Node`: a
``kind``, ``parts``, ``terms`` that it reads, and what it is ``of``) and two kinds of
term:

``Index(sort, parent, distinct, place, bound)``
    Drawn, summed over (``bound``), or at a known ``place`` (counted from 1).
``Value(function, arguments, solved)``
    What a teacher (``function.kept``) or a sample gives; or an argument that it is
    solved for. A permutation applied again is a teacher of its own, with ``parts``.

What follows from it:

`theory.statement.derivation.derived.derive`
    `Derived`: ``classes`` with sizes, ``loss``, ``rates``, ``conserved``, ``quotient``,
    ``flow``, ``equations()``; ``at(N=8)`` for concrete sizes.
    `theory.statement.derivation.remedies.derived` keeps it.
`theory.statement.evaluation.arrays`
    The tree over arrays (`Evaluation`, NumPy or torch), all inputs at concrete sizes
    (`every_input`), tables of teachers, and classes of all entries (`class_numbers`).
`theory.statement.randomness.random_starts`, `theory.statement.randomness.passage`
    Random initial weights: starts, curves and times in bulk; closed forms of the times.
`theory.statement.randomness.fluctuations`, `theory.statement.randomness.minibatches`
    What batches do: second moments over orbits of pairs of entries; bias and spread of
    curves.
`theory.statement.derivation.check`
    Loss, gradients of all weights and sizes against listed inputs; part of every
    derivation.
`theory.statement.model`
    The names of a model's ``theory`` package (`theory_of`), and its `parameters`;
    `theory.models.stated` makes it a model of the registry.
`theory.statement.overlaps`
    Rates of overlaps of hidden units from the averaged loss; means with slopes of erf
    units, which noise of online descent is made of.
"""

from __future__ import annotations

from theory.statement.words.language import (
    cross_entropy,
    draw,
    eq,
    exp,
    fixed,
    gauss,
    gaussian,
    log,
    number,
    orthogonal,
    sample,
    sizes,
    sort,
    spectrum,
    teacher,
    total,
    uniform,
    weight,
)
from theory.statement.words.stated import Statement, statement

__all__ = [
    "Statement",
    "cross_entropy",
    "draw",
    "eq",
    "exp",
    "fixed",
    "gauss",
    "gaussian",
    "log",
    "number",
    "orthogonal",
    "sample",
    "sizes",
    "sort",
    "spectrum",
    "statement",
    "teacher",
    "total",
    "uniform",
    "weight",
]
