"""When the mechanism of a model emerges: ``python -m theory.onset [MODEL] --plot``."""

from __future__ import annotations

import inspect
import sys
from pathlib import Path

from theory.call.parameters import Stepped, stated
from theory.call.refusal import ParameterError
from theory.dynamics.onset import (
    Onset,
    in_few_steps,
    of_onset,
    sensitivity_numbers,
    sensitivity_table,
    tabulated,
    until,
)
from theory.equations import printing
from theory.models import command_line, registry
from theory.runtime import cli, output, progress

__all__ = ["Onset", "main", "of_onset", "tabulated", "until"]


def main(argv: list[str] | None = None) -> int:
    """Command line."""
    parser = command_line.parser(
        "theory.onset",
        "When does the mechanism of a model emerge?",
        "json",
        "wide",
        "plot",
        "latex",
        "set",
        "preset",
        "alpha",
        "until",
        "quiet",
        "beyond",
        "fluctuations",
    )
    words = "prove between which numbers the times of a flow lie (needs python-flint)"
    parser.add_argument("--certify", action="store_true", help=words)
    words = "derivatives of the times in every parameter"
    parser.add_argument("--sensitivities", action="store_true", help=words)
    args = parser.parse_args(argv)
    command_line.check_plot(args.plot)
    p = command_line.parameters(args)
    until = cli.length(vars(args))
    if args.alpha is not None and "alpha" in p.as_dict():  # a sample complexity
        p, until = p.replace(alpha=until), None
    with progress.bar(f"theory.onset {args.model.name}", show=not args.quiet):
        onset = registry.optional_module(args.model, "theory", "onset").onset
        noise = {"fluctuations": True} if args.fluctuations else {}
        if noise.keys() - inspect.signature(onset).parameters:
            raise ParameterError(
                "--fluctuations: follow from a statement; this model is by hand"
            )
        result = onset(p, until, **noise)
        proved = result.certified() if args.certify else {}
        slopes = result.sensitivities() if args.sensitivities else None
    notes = [*result.notes, *in_few_steps(p, result)]
    remarks = sys.stderr if args.json else None  # beside one JSON object on stdout
    formulas = printing.aligned(result.equations()) if args.latex else ""
    if args.json:
        answer = {"model": args.model.name, **result.numbers, **result.details}
        answer |= {"notes": notes, "parameters": p.as_dict()}
        if proved:
            answer["certified"] = {name: of.as_json() for name, of in proved.items()}
        if slopes is not None:
            answer["sensitivities"] = sensitivity_numbers(slopes)
        print(
            output.to_json(answer | ({"latex": formulas} if args.latex == "-" else {}))
        )
    else:
        print(f"{args.model.name}: {stated(result.setting or p.as_dict())}")
        print(result.table(wide=args.wide, certified=proved))
        if slopes is not None:
            print(f"\n{sensitivity_table(slopes, wide=args.wide)}")
            if left_out := slopes.attrs.get("left_out"):
                notes.append(f"left out of the sensitivities: {left_out}")
        if isinstance(p, Stepped) and p.TIME in result.times.values():
            print(f"unit of time: {p.unit_of_time(p.TIME)}")
    if args.latex not in (None, "-") or (args.latex and not args.json):
        output.write_text(
            None if args.latex == "-" else Path(args.latex), formulas, stream=remarks
        )
    for note in () if args.quiet else notes:
        print(f"note: {note}", file=sys.stderr)
    if args.plot is not None:
        from theory.runtime import plotting

        plotting.deliver(
            result.draw(), args.plot, f"onset_{args.model.name}.png", stream=remarks
        )
    return 0


if __name__ == "__main__":
    cli.run(main)
