"""Gradients of every student on a device, at both precisions, against autograd in float64 on the
CPU.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from simulate.induction_heads import standard
from simulate.induction_heads import task as pairs
from simulate.induction_heads.learner import KINDS
from simulate.induction_heads.student import squared_error
from simulate.positional_semantic import histogram
from simulate.positional_semantic import task as sentences
from simulate.positional_semantic.student import Problem, initial_weights
from simulate.positional_semantic.student import Student as AttentionLayer
from simulate.state_tracking.gradients import Plain, engine
from simulate.state_tracking.student import GLUStudent, Student, Students, with_full_embedding
from theory import induction_heads as ih
from theory import positional_semantic as ps
from theory import state_tracking as st
from theory.induction_heads.parameters import StandardParameters
from theory.positional_semantic.parameters import HistogramParameters
from theory.state_tracking import task
from verify.check import Check, identity

Found = dict[str, Tensor]
CPU = torch.device("cpu")
SEED = 20260616  # any fixed number
TOLERANCE = {
    torch.float32: (1e-4, "single precision, sums that cancel; products at tf32 would leave 1e-3"),
    torch.float64: (
        1e-10,
        "double precision; a single operation at single precision would leave 1e-8",
    ),
}


@dataclass(frozen=True)
class Path:
    """One way to a student's gradients.

    Attributes
    ----------
    name : str
        What it is.
    found : callable
        ``found(device, dtype)`` gives loss and gradients by name.
    plain : callable, optional
        The same by autograd of the plain module; without it the path is that autograd itself, and
        its reference is its own result in float64 on the CPU.
    """

    name: str
    found: Callable[[torch.device, torch.dtype], Found]
    plain: Callable[[torch.device, torch.dtype], Found] | None = None

    def checks(self, device: torch.device) -> list[Check]:
        """One row per precision: the quantity that differs most."""
        expected = (self.plain or self.found)(CPU, torch.float64)
        rows = []
        for dtype, (tolerance, why) in TOLERANCE.items():
            if self.plain is None and (device, dtype) == (CPU, torch.float64):
                continue  # would hold the reference against itself
            found = self.found(device, dtype)
            if found.keys() != expected.keys():
                raise RuntimeError(f"{self.name}: gives {sorted(found)}, not {sorted(expected)}")
            precision = str(dtype).removeprefix("torch.")
            every = [
                identity(
                    f"{self.name}, {precision} on {device}",
                    name,
                    expected[name].numpy(),
                    value.detach().double().cpu().numpy(),
                    tolerance,
                    why,
                )
                for name, value in found.items()
            ]
            rows.append(max(every, key=lambda row: np.inf if np.isnan(row.error) else row.error))
        return rows


def of_module(module: torch.nn.Module, loss: Tensor) -> Found:
    """Loss and gradients by autograd; what the loss does not depend on has gradient zero."""
    names, weights = zip(*module.named_parameters(), strict=True)
    grads = torch.autograd.grad(loss, weights, materialize_grads=True)
    return {
        "loss": loss.detach(),
        **{f"gradient of {n}": g for n, g in zip(names, grads, strict=True)},
    }


# State tracking: sizes that need padding to powers of two, and blocks of rows that are not full.
SMALL = st.Parameters(N=6, L=3, d_g=5, d_h=8, n_train=64)
WIDE = st.Parameters(N=20, L=2, d_g=17, d_h=8, n_train=150)
LEARNED = SMALL.replace(fix_embedding=False, d_model=4)


def _stack(
    p: st.Parameters, device: torch.device, dtype: torch.dtype
) -> tuple[Students, list[task.Sequences]]:
    members, data = [], []
    for seed in (0, 1):
        stream = task.streams(seed)
        data.append(
            task.draw_sequences(
                task.draw_permutations(p, stream["task"]), p.n_train, p.L, stream["train"]
            )
        )
        weights = task.draw_weights(p, stream["initialisation"])
        members.append(Student(p, weights, dtype, learn_embedding=not p.fix_embedding).to(device))
    return Students(members), data


def _engine(
    p: st.Parameters, kind: type | None = None
) -> Callable[[torch.device, torch.dtype], Found]:
    """Gradients and statistics by the engine that training would take, or by a named one."""

    def found(device: torch.device, dtype: torch.dtype) -> Found:
        students, data = _stack(p, device, dtype)
        way = (kind or engine(students))(students, data)
        way.gradients(students)
        grads = {
            f"gradient of {n}": w.grad.clone()
            for n, w in students.named_parameters()
            if w.grad is not None
        }
        kept = (
            "loss",
            "logit_correct",
            "logit_other",
            "variance_correct",
            "variance_other",
            "attention",
        )
        return {**grads, **{n: v for n, v in way.statistics(students).items() if n in kept}}

    return found


def _form(make: Callable[..., Student]) -> Callable[[torch.device, torch.dtype], Found]:
    """One of the student's realisations of App. C."""

    def found(device: torch.device, dtype: torch.dtype) -> Found:
        rng = np.random.default_rng(SEED)
        data = task.draw_sequences(task.draw_permutations(SMALL, rng), SMALL.n_train, SMALL.L, rng)
        student = make(SMALL, task.draw_weights(SMALL, rng), dtype).to(device)
        return of_module(
            student, student.loss(*(torch.as_tensor(x, device=device) for x in vars(data).values()))
        )

    return found


# Induction heads.
PAIRS = ih.Parameters(N=3, D=8, batch_size=16)
STANDARD = StandardParameters(D=12, vocabulary=10, block=12, pairs=3, batch_size=16)


def _disentangled(trained: str) -> Callable[[torch.device, torch.dtype], Found]:
    def found(device: torch.device, dtype: torch.dtype) -> Found:
        batch = pairs.sample(PAIRS, pairs.generator(SEED, "train"), dtype=torch.float64)
        student = KINDS[trained](PAIRS.dimension, PAIRS.mask, torch.float64)
        random = torch.Generator().manual_seed(SEED)
        with torch.no_grad():
            for w in student.parameters():
                w.copy_(0.3 * torch.randn(w.shape, generator=random, dtype=torch.float64))
        student.to(device, dtype)
        X, y = (v.to(device, dtype) for v in (batch.X, batch.y))
        return of_module(student, squared_error(student(X), y, PAIRS.loss))

    return found


def _standard(device: torch.device, dtype: torch.dtype) -> Found:
    student = standard.Transformer(STANDARD, pairs.generator(SEED, "initialisation")).to(
        device, dtype
    )
    tokens, offset, label = (
        x.to(device) for x in standard.sample(STANDARD, pairs.generator(SEED, "train"))
    )
    return of_module(student, torch.nn.functional.cross_entropy(student(tokens, offset), label))


# Positional against semantic attention.
LAYER = ps.Parameters(d=12, alpha=1.5, correlation=0.3)
LAYERS = {
    "tied": LAYER,
    "rank 2": LAYER.replace(rank=2, start="mixed"),
    "untied": LAYER.replace(tied=False),
    "value matrix": LAYER.replace(value=True),
}
COUNTING = HistogramParameters(length=4, alphabet=5, samples=200, width=8, hidden=16)


def _weights(p: ps.Parameters) -> tuple[sentences.Data, Found]:
    rng = np.random.default_rng(SEED)
    teacher, data = sentences.sample(p, 3)
    start = initial_weights(p, teacher, rng)
    return data, {
        k: torch.as_tensor(v + 0.3 * rng.standard_normal(v.shape)) for k, v in start.items()
    }


def _problem(p: ps.Parameters) -> Callable[[torch.device, torch.dtype], Found]:
    """The batched engine, beside a longer run: padding must not matter."""

    def found(device: torch.device, dtype: torch.dtype) -> Found:
        (data, weights), (_, longer) = _weights(p), sentences.sample(p.replace(alpha=2.5), 4)
        moved = [
            sentences.Data(*(v.to(device, dtype) for v in vars(d).values())) for d in (data, longer)
        ]
        batch = {k: torch.stack([v, v]).to(device, dtype) for k, v in weights.items()}
        value, gradient = Problem(moved, p.lam).gradient(batch)
        return {"loss": value[0], **{f"gradient of {k}": g[0] for k, g in gradient.items()}}

    return found


def _layer(p: ps.Parameters) -> Callable[[torch.device, torch.dtype], Found]:
    def found(device: torch.device, dtype: torch.dtype) -> Found:
        data, weights = _weights(p)
        student = AttentionLayer(weights).to(device, dtype)
        risk = student.objective(data.tokens.to(device, dtype), data.y.to(device, dtype), p.lam)
        return {
            name.replace("weights.", ""): value for name, value in of_module(student, risk).items()
        }

    return found


def _counter(kind: str) -> Callable[[torch.device, torch.dtype], Found]:
    def found(device: torch.device, dtype: torch.dtype) -> Found:
        with torch.random.fork_rng(devices=[]):
            torch.manual_seed(SEED)
            model = histogram.Counter(COUNTING, kind).to(device, dtype)
        tokens = histogram.sample(COUNTING)[0].to(device)
        target = histogram.count(tokens).flatten()
        return of_module(
            model, torch.nn.functional.cross_entropy(model(tokens).flatten(0, 1), target)
        )

    return found


PATHS: dict[str, list[Path]] = {
    "state_tracking": [
        *(
            Path(f"engine, {name}", _engine(p), _engine(p, Plain))
            for name, p in (("small", SMALL), ("wide", WIDE))
        ),
        Path("plain module", _engine(SMALL, Plain)),
        Path("learned embedding", _engine(LEARNED)),
        Path("gated form", _form(GLUStudent)),
        Path("full embedding", _form(with_full_embedding)),
    ],
    "induction_heads": [
        *(Path(f"{trained}", _disentangled(trained)) for trained in ("all", "nineteen", "three")),
        Path("standard transformer", _standard),
    ],
    "positional_semantic": [
        *(Path(f"batched engine, {name}", _problem(p), _layer(p)) for name, p in LAYERS.items()),
        *(Path(f"plain layer, {name}", _layer(p)) for name, p in LAYERS.items()),
        *(Path(f"histogram task, {kind}", _counter(kind)) for kind in histogram.KINDS),
    ],
}


def checks(model: str, device: torch.device) -> list[Check]:
    """Rows of every student of a model that knows devices (those of the associative memories do
    not).
    """
    return [row for path in PATHS.get(model, []) for row in path.checks(device)]
