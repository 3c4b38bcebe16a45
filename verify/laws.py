"""Laws in closed form against sampling, enumeration and students: ``python -m verify.laws [MODEL]``."""

from __future__ import annotations

from theory import cli
from verify import check


def main(argv: list[str] | None = None) -> int:
    """Command line."""
    parser = cli.parser(
        "verify.laws", "Laws in closed form against sampling, enumeration and students.", "json", "quiet"
    )
    args = parser.parse_args(argv)
    cli.offers(args.model, "laws")
    found = [c for m in args.model.offering("laws") for c in m.wing("verify").laws()]
    return check.report(args.model.name, found, args.json)


if __name__ == "__main__":
    cli.run(main)
