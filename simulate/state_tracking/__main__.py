"""Train an ensemble: ``python -m simulate.state_tracking --seeds 8 --alpha 12 --set N=16 --out PATH``."""

from __future__ import annotations

from simulate import runs
from simulate.state_tracking import train
from theory import cli
from theory.registry import MODELS

SHOWN = ("A", "R", "S", "loss", "accuracy", "rollout_accuracy")


def main(argv: list[str] | None = None) -> int:
    """Command line."""
    parser = cli.parser("simulate.state_tracking", "Train one student per seed; finished seeds are not trained again.",
                        "json", "out", "set", "preset", "seeds", "alpha", "device", "quiet", model=False)  # fmt: skip
    parser.add_argument("--dtype", default="float32", choices=("float32", "float64"), help="precision of the student")
    parser.add_argument(
        "--workers", type=cli.count, default=None, metavar="N", help="seeds trained at once (default: one per core)"
    )
    args = parser.parse_args(argv)
    args.model = MODELS["state_tracking"]
    p, seeds = cli.parameters(args), cli.seeds(args.seeds, "1")
    store, single = runs.destination(args.out)
    result = train(p, args.alpha, seeds, store=store, device=args.device, dtype=args.dtype,
                   workers=args.workers, progress=not args.quiet)  # fmt: skip
    if single:
        runs.write(result, single)
    last = result.isel(alpha=-1)
    where = str(single or store)
    if args.json:
        final = {name: last[name].values for name in SHOWN}
        print(cli.to_json({"model": args.model.name, "out": where, "seeds": seeds, "alpha": float(last.alpha), "final": final,
                           "parameters": p.run_to(args.alpha).as_dict(training_only=True)}))  # fmt: skip
        return 0
    rows = [[str(s), *(f"{float(last[name].sel(seed=s)):.4f}" for name in SHOWN)] for s in seeds]
    print(f"students at alpha = {float(last.alpha):.4g}, stored in {where}")
    print(cli.table(("seed", *SHOWN), rows))
    return 0


if __name__ == "__main__":
    cli.run(main)
