"""Train an ensemble: ``python -m simulate.associative_memory [SYSTEM] --seeds 4 --set epsilon=1e-4 --out PATH``."""

from __future__ import annotations

import importlib
from pathlib import Path

import numpy as np

from simulate import runs
from theory import cli, registry
from theory.parameters import ParameterError

TRAINED = ("factual_recall", "trigger_task", "noisy_bigram", "k_hop")


def main(argv: list[str] | None = None) -> int:
    """Command line."""
    parser = cli.parser("simulate.associative_memory", "Train one student per seed; finished seeds are not trained again.",
                        "json", "out", "set", "preset", "seeds", "quiet", model=False)  # fmt: skip
    parser.add_argument("system", nargs="?", default=TRAINED[0], metavar="SYSTEM", help="one of " + ", ".join(TRAINED))
    parser.add_argument("--workers", type=cli.count, default=None, metavar="N", help="seeds trained at once")
    parser.add_argument(
        "--text", type=Path, metavar="FILE", help="trigger_task: bigrams of this text, by characters; sets N"
    )
    args = parser.parse_args(argv)
    cli.choose("SYSTEM", args.system, dict.fromkeys(TRAINED))
    system = importlib.import_module(f"simulate.associative_memory.{args.system}")
    args.model = registry.find(f"associative_memory.{args.system}")
    p, seeds, more = cli.parameters(args), cli.seeds(args.seeds, "1"), {}
    if args.text:
        if args.system != "trigger_task":
            raise ParameterError(f"--text {args.text}: only for trigger_task")
        table, alphabet = system.table_of_text(cli.read_text("--text", args.text))
        p, more = p.replace(N=len(alphabet)), {"table": table}
    store, single = runs.destination(args.out)
    result = system.train(p, seeds=seeds, store=store, workers=args.workers, progress=not args.quiet, **more)
    if single:
        runs.write(result, single)
    last = result.isel({next(d for d in result.dims if d in ("t", "step")): -1})
    shown = [n for n, v in last.data_vars.items() if v.dims == ("seed",) and not np.isnan(v).all()]
    if args.json:
        print(cli.to_json({"model": args.model.name, "out": str(single or store), "seeds": seeds, "steps": p.steps,
                           "final": {n: last[n].values for n in shown}, "parameters": p.as_dict()}))  # fmt: skip
        return 0
    rows = [[str(s), *(f"{float(last[n].sel(seed=s)):.4f}" for n in shown)] for s in seeds]
    print(f"students after {p.steps} steps, stored in {single or store}")
    print(cli.table(("seed", *shown), rows))
    return 0


if __name__ == "__main__":
    cli.run(main)
