"""Train students: ``python -m simulate.positional_semantic --alpha 2 --seeds 8 --set start=positional --out PATH``."""

from __future__ import annotations

from simulate import runs
from simulate.positional_semantic.trainer import train
from theory import cli
from theory.parameters import ParameterError
from theory.registry import MODELS

SHOWN = ("q", "m", "theta", "train_loss", "test_mse_half", "gradient")


def main(argv: list[str] | None = None) -> int:
    """Command line."""
    parser = cli.parser("simulate.positional_semantic", "Minimise the empirical risk, one student per seed; finished seeds "
                        "are not trained again.", "json", "out", "set", "preset", "seeds", "alpha", "device", "quiet",
                        model=False)  # fmt: skip
    parser.add_argument("--dtype", default="float32", choices=("float32", "float64"), help="precision of the descent")
    parser.add_argument(
        "--workers", type=cli.count, default=None, metavar="N", help="students trained at once on the CPU"
    )
    args = parser.parse_args(argv)
    args.model = MODELS["positional_semantic"]
    p, seeds = cli.parameters(args), cli.seeds(args.seeds, "1")
    alpha = cli.positive("--alpha", args.alpha) or p.alpha
    if alpha is None:
        raise ParameterError("--alpha: must be given (sentences per dimension, n/d)")
    store, single = runs.destination(args.out)
    result = train(p, alpha, seeds, store=store, device=args.device, dtype=args.dtype, workers=args.workers,
                   progress=not args.quiet)  # fmt: skip
    if single:
        runs.write(result, single)
    last, where = result.isel(alpha=0), str(single or store)
    if args.json:
        print(cli.to_json({"model": args.model.name, "out": where, "seeds": seeds, "alpha": alpha,
                           "final": {name: last[name].values for name in SHOWN},
                           "parameters": p.replace(alpha=alpha).as_dict(training_only=True)}))  # fmt: skip
        return 0
    print(f"students at alpha = {alpha:.4g}, stored in {where}")
    print(cli.table(("seed", *SHOWN), [[str(s), *(f"{float(last[n].sel(seed=s)):.4g}" for n in SHOWN)] for s in seeds]))
    return 0


if __name__ == "__main__":
    cli.run(main)
