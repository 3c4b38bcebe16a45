"""List the models and their equations: ``python -m theory [MODEL]``."""

from __future__ import annotations

from pathlib import Path

from theory import cli, output, registry


def main(argv: list[str] | None = None) -> int:
    """Command line."""
    parser = cli.parser(
        "theory",
        "Models and their equations: reference, status, assumptions, LaTeX.",
        "json",
        "latex",
        model="all",
    )
    args = parser.parse_args(argv)
    models = [args.model] if args.model else list(registry.MODELS.values())
    if args.json:
        print(
            output.to_json(
                {
                    m.name: {
                        "title": m.title,
                        "paper": m.paper,
                        "checks": m.checks,
                        "equations": [
                            {
                                "name": e.name,
                                "reference": e.reference,
                                "status": e.status,
                                "assumptions": e.assumptions,
                                "latex": e.latex(),
                            }
                            for e in m.wing("theory").equations().values()
                        ],
                    }
                    for m in models
                }
            )
        )
        return 0
    lines = []
    for m in models:
        lines.append(f"{m.name}: {m.title}\n")
        for section, equations in m.wing("theory").sections().items():
            rows = [(e.name, e.status, e.reference, "; ".join(e.assumptions)) for e in equations]
            lines.append(
                f"{section}\n{output.table(('equation', 'status', 'reference', 'assumptions'), rows)}\n"
            )
            if args.latex is not None:
                lines.append("\n".join(f"{e.name}:  {e.latex()}" for e in equations) + "\n")
    output.write_text(Path(args.latex) if args.latex not in (None, "-") else None, "\n".join(lines))
    return 0


if __name__ == "__main__":
    cli.run(main)
