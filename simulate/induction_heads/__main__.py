"""Train an ensemble: ``python -m simulate.induction_heads --preset demo --seeds 4 --out PATH``."""

from __future__ import annotations

from typing import Any

from simulate import runs
from simulate.induction_heads import standard, train
from theory import cli
from theory.parameters import ParameterError
from theory.registry import MODELS

SHOWN = {"disentangled": ("alpha", "beta", "gamma", "loss", "residual"), "standard": ("loss", "accuracy")}


def main(argv: list[str] | None = None) -> int:
    """Command line."""
    parser = cli.parser("simulate.induction_heads", "Train one student per seed; finished seeds are not trained again.",
                        "json", "out", "set", "preset", "seeds", "alpha", "device", "quiet", model=False)  # fmt: skip
    parser.add_argument("--system", default="disentangled", choices=tuple(SHOWN),
                        help="disentangled transformer (default), or the standard one of Sec. 2")  # fmt: skip
    parser.add_argument("--dtype", default="float32", choices=("float32", "float64"), help="precision (disentangled)")
    parser.add_argument(
        "--workers", type=cli.count, default=None, metavar="N", help="seeds trained at once (default: one per core)"
    )
    args = parser.parse_args(argv)
    args.model = MODELS["induction_heads"]
    seeds = cli.seeds(args.seeds, "1")
    store, single = runs.destination(args.out)
    shared = {"store": store, "device": args.device, "workers": args.workers, "progress": not args.quiet}
    if args.system == "standard":
        if args.alpha is not None:
            raise ParameterError("--alpha: the standard transformer has no flow time; set steps=... instead")
        kind = standard.StandardParameters
        p: Any = (cli.choose("--preset", args.preset, kind.presets())() if args.preset is not None else kind()).parse(args.set)
        result = standard.train(p, seeds, **shared)
    else:
        p = cli.parameters(args).run_to(cli.positive("--alpha", args.alpha))
        result = train(p, None, seeds, dtype=args.dtype, **shared)
    if single:
        runs.write(result, single)
    last = result.isel({result.loss.dims[-1]: -1})
    shown, where = SHOWN[args.system], str(single or store)
    if args.json:
        final = {name: last[name].values for name in shown}
        print(cli.to_json({"model": args.model.name, "system": args.system, "out": where, "seeds": seeds, "final": final,
                           "parameters": p.as_dict(training_only=True)}))  # fmt: skip
        return 0
    rows = [[str(s), *(f"{float(last[name].sel(seed=s)):.4f}" for name in shown)] for s in seeds]
    end = f"step {p.steps}" + (f", t = {p.steps * p.time_per_step:.4g}" if args.system == "disentangled" else "")
    print(f"students at {end}, stored in {where}")
    print(cli.table(("seed", *shown), rows))
    return 0


if __name__ == "__main__":
    cli.run(main)
