"""Derived gradients and flows against autograd: ``python -m verify.gradients [MODEL] [--device NAME]``."""

from __future__ import annotations

from theory import cli
from verify import check


def main(argv: list[str] | None = None) -> int:
    """Command line."""
    parser = cli.parser("verify.gradients", "Every derived derivative against autograd; with a device (or where there is "
                        "a GPU), the students' gradients on it too.", "json", "device", "quiet")  # fmt: skip
    args = parser.parse_args(argv)
    cli.offers(args.model, "gradients")
    from simulate import device as devices  # loads torch: not before the arguments are known to be good

    where = devices.find(args.device)
    checks = [c for m in args.model.offering("gradients") for c in m.wing("verify", "gradients").checks()]
    if args.device or where.type != "cpu":
        from verify.device import paths

        checks += paths.checks(args.model.name, where)
    return check.report(args.model.name, checks, args.json)


if __name__ == "__main__":
    cli.run(main)
