"""A page to move a model's parameters in: ``python -m theory.explore [MODEL] --out
FILE.html``.
"""

import sys
from pathlib import Path

from theory.explorer import opening, page
from theory.models import command_line
from theory.runtime import cli, output


def main(argv: list[str] | None = None) -> int:
    """Command line."""
    parser = command_line.parser(
        "theory.explore",
        "One HTML file with sliders for a model's parameters and curves that follow at"
        " once; works offline.",
        "set",
        "preset",
        "out",
        "fluctuations",
    )

    parser.add_argument(
        "--runs",
        type=Path,
        metavar="FILE",
        help="netCDF file of students, drawn behind the curves",
    )
    args = parser.parse_args(argv)
    path = args.out or Path(f"{args.model.name.replace('.', '_')}.html")
    output.writable(str(path))
    p = command_line.parameters(args, opening(args.model))
    made = page(args.model, p, args.runs, args.fluctuations)
    output.write_text(path, made)
    print(path, file=sys.stderr)
    return 0


if __name__ == "__main__":
    cli.run(main)
