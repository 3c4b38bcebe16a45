"""Derived gradients and flows against autograd: ``python -m verify.gradients [MODEL]``."""

from __future__ import annotations

from theory import cli
from verify import check


def main(argv: list[str] | None = None) -> int:
    """Command line."""
    args = cli.parser("verify.gradients", "Every derived derivative against autograd.", "json", "quiet").parse_args(
        argv
    )
    cli.offers(args.model, "gradients")
    checks = [c for m in args.model.offering("gradients") for c in m.wing("verify", "gradients").checks()]
    return check.report(args.model.name, checks, args.json)


if __name__ == "__main__":
    cli.run(main)
