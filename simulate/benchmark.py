"""Speed of a model's training step, plain module against optimised code: ``python -m
simulate.benchmark``; and of students without kernels of their own, in CPU time of one thread: the
learner's step, the plain module's, and the lower bound set by their matrix products.
"""

from __future__ import annotations

import functools
import sys
import time
from collections.abc import Callable
from typing import Any

import torch
from torch.utils.flop_counter import FlopCounterMode

from simulate import systems
from simulate.associative_memory.k_hop import apply
from simulate.induction_heads.student import squared_error
from simulate.positional_semantic.student import Student, positional_encoding
from simulate.streams import keyed
from theory import registry
from theory.runtime import cli, output

TABLES = ("ratios", "scaling", "workers", "students")


def main(argv: list[str] | None = None) -> int:
    """Command line."""
    parser = cli.parser(
        "simulate.benchmark",
        "Time a training step: the plain module, the engine, and a lower bound from the number of "
        "operations.",
        "json",
        "set",
        "preset",
        "device",
        "quiet",
    )
    parser.add_argument(
        "--table",
        choices=TABLES,
        help="another table, of CPU times at settings of its own: theory of single students over "
        "their training (ratios), costs against sizes (scaling), short runs on dask workers "
        "(workers), steps of students without kernels (students)",
    )
    args = parser.parse_args(argv)
    if args.table:
        if args.set or args.preset or args.device:
            parser.error(f"--table {args.table}: has settings of its own")
        table = (
            students()
            if args.table == "students"
            else getattr(registry.optional_module(args.model, "simulate", "costs"), args.table)()
        )
        if args.json:
            print(output.to_json({"model": args.model.name, **table}))
        else:
            print(table["about"], output.table(table["header"], table["rows"]), sep="\n")
            print(*table["notes"], sep="\n")
        return 0
    rows = args.model.wing("simulate", "benchmark").measure(
        cli.parameters(args), args.device, args.quiet
    )
    if args.json:
        print(output.to_json({"model": args.model.name, **rows}))
        return 0
    print(f"one training step of {args.model.name} on {rows['device']}")
    head = ("how", "threads", "seeds", "ms per seed-step", "ratio", "peak memory")
    print(
        output.table(
            head,
            [
                [
                    r["name"],
                    str(r["threads"]),
                    str(r["seeds"]),
                    f"{r['ms']:.3g}",
                    f"{r['ratio']:.1f}",
                    f"{r['peak_MB']:.0f} MB",
                ]
                for r in rows["rows"]
            ],
        )
    )
    for line in rows["notes"]:
        print(line, file=sys.stdout)
    return 0


AT_LEAST, PRODUCT = 0.2, 1024  # CPU seconds of a timing; size of the measured matrix product
# Settings of every row, and whether the plain module is trained on one batch, drawn before.
SHOWN: tuple[tuple[str, dict[str, Any], bool], ...] = (
    ("induction_heads.all", {}, True),
    ("positional_semantic.attention", {"d": 500, "alpha": 1.5}, False),
    ("associative_memory.k_hop", {}, True),
)


def students() -> dict[str, Any]:
    """A row per student: its learner's step, the plain module's, and the floor."""
    torch.set_num_threads(1)
    rows = []
    for name, changes, drawn in SHOWN:
        _, system = systems.find(name)
        p = system.parameters(**changes, **system.settings)
        dtype = getattr(torch, system.default_dtype or "float32")
        stack: Any = system.learner(p, [0], torch.device("cpu"), dtype)
        learner = getattr(stack, "members", [stack])[0]
        plain = PLAIN[name](learner)
        with FlopCounterMode(display=False) as counter:
            learner.step(0)
        spent = best(functools.partial(learner.step, 0))
        simple = best(plain)
        floor = counter.get_total_flops() / peak(dtype)
        what = f"{1e3 * simple:.3g}" + (", batch given" if drawn else "")
        work = f"{counter.get_total_flops() / 1e6:.3g}"
        rows.append(
            [name, f"{1e3 * spent:.3g}", what, work, f"{1e3 * floor:.3g}", f"{floor / spent:.0%}"]
        )
    return {
        "about": "a training step, CPU time of one thread",
        "header": ["student", "learner, ms", "plain module, ms", "MFLOP", "floor, ms", "reached"],
        "rows": rows,
        "notes": [
            "floor: operations of the matrix products that the learner makes, at the rate of a "
            f"product of {PRODUCT} x {PRODUCT} in its precision; drawing a batch and elementwise "
            "functions are no part of it"
        ],
    }


def best(work: Callable[[], Any]) -> float:
    """Least CPU time of a call in seconds, so that other work on the machine does not count."""
    work()
    spent: list[float] = []
    while sum(spent) < AT_LEAST or len(spent) < 3:
        began = time.process_time()
        work()
        spent.append(time.process_time() - began)
    return min(spent)


def peak(dtype: torch.dtype) -> float:
    """Operations per second of a large matrix product."""
    x = torch.randn(PRODUCT, PRODUCT, dtype=dtype)
    return 2 * PRODUCT**3 / best(lambda: x @ x)


def _heads(learner: Any) -> Callable[[], Any]:
    batch = learner._draw("train", 0)

    def work() -> None:
        learner.optimizer.zero_grad()
        squared_error(learner.student(batch.X), batch.y, learner.p.loss).backward()
        learner.optimizer.step()

    return work


def _attention(learner: Any) -> Callable[[], Any]:
    problem = learner.problem
    tokens = problem.tokens[0]
    y = problem.target[0] @ (tokens - torch.as_tensor(positional_encoding(problem.d)).to(tokens))
    student = Student({k: w[0] for k, w in learner.weights.items()})
    return lambda: student.objective(tokens, y, problem.lam).backward()


def _hops(learner: Any) -> Callable[[], Any]:
    given, start, right = learner.sample(learner.p.batch_size, learner.hops, keyed(0, 1, 0))

    def work() -> None:
        chance = apply(learner.kernels()[: learner.hops], given, start).gather(1, right[:, None])
        torch.autograd.grad(chance.mean(), learner.logits)

    return work


PLAIN = dict(zip((name for name, *_ in SHOWN), (_heads, _attention, _hops), strict=True))


if __name__ == "__main__":
    cli.run(main)
