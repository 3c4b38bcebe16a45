"""How well each level of theory predicts each seed: ``python -m verify.fidelity [MODEL]``."""

from __future__ import annotations

import sys

from simulate import device
from theory import cli
from verify import check


def main(argv: list[str] | None = None) -> int:
    """Command line."""
    parser = cli.parser("verify.fidelity", "A ladder of theories, held against every seed of the shipped ensembles.",
                        "json", "plot", "device", "quiet")  # fmt: skip
    parser.add_argument("--train", action="store_true", help="train the ensembles again first (hours on a CPU)")
    args = parser.parse_args(argv)
    cli.offers(args.model, "fidelity")
    cli.check_plot(args.plot)
    device.find(args.device)
    module = args.model.wing("verify", "fidelity")
    if args.train:
        args.model.wing("verify", "ensemble").renew(args.device, not args.quiet)
    found = module.ladder()
    checks = module.checks(found)
    code = check.report(args.model.name, checks, args.json, ladder=module.as_dict(found)) if args.json else 0
    if not args.json:
        for setting, levels in found.items():
            print(f"{setting}: {module.SETTINGS[setting].title}")
            print(cli.table(("theory", *module.MEASURES.values()), module.rows(levels)) + "\n")
        code = check.report(args.model.name, checks, False)
    if args.plot is not None:
        from theory import plotting

        plotting.deliver(
            module.draw(*module.ensemble.shipped(module.LADDER[0])),
            args.plot,
            f"fidelity_{args.model.name}.png",
            stream=sys.stderr if args.json else None,
        )
    return code


if __name__ == "__main__":
    cli.run(main)
