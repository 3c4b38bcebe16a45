"""Critical sample complexities from simulations against theory: ``python -m verify.thresholds [MODEL]``."""

from __future__ import annotations

import sys

from simulate import device
from theory import cli
from verify import check


def main(argv: list[str] | None = None) -> int:
    """Command line."""
    parser = cli.parser("verify.thresholds", "Thresholds measured on ensembles, with confidence intervals.", "json", "plot",
                        "set", "preset", "seeds", "device", "quiet", model="positional_semantic")  # fmt: skip
    args = parser.parse_args(argv)
    cli.offers(args.model, "thresholds")
    cli.check_plot(args.plot)
    device.find(args.device)
    module = args.model.wing("verify", "thresholds")
    result = module.verify(args)
    remarks = sys.stderr if args.json else None
    code = check.report(
        args.model.name, result.checks, args.json, **({"thresholds": result.numbers} if args.json else {})
    )
    for note in result.notes:
        print(note, file=remarks)
    if args.plot is not None:
        from theory import plotting

        plotting.deliver(module.draw(result), args.plot, f"thresholds_{args.model.name}.png", stream=remarks)
    return code


if __name__ == "__main__":
    cli.run(main)
