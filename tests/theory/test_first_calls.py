"""What a stranger tries first: `Parameters()` in every function of a model,
``print(p)`` and ``help`` of a preset.
"""

import functools
import importlib
import inspect
import io
import pydoc
import re
import warnings

import pytest

from theory import state_tracking as st
from theory.call.parameters import Stepped
from theory.call.refusal import ParameterError
from theory.call.scope import BeyondScope, Limit, Scope
from theory.models.registry import TABLE, find
from theory.onset import main as onset
from theory.runtime import cli

SINGLE = (inspect.Parameter.POSITIONAL_ONLY, inspect.Parameter.POSITIONAL_OR_KEYWORD)
# Tables of the explorer, which its own tests open, and the same basin over a range of
# norms.
LONG = ("charts", "window")
INNER = (
    "thresholds",
    "ends",
    "basin",
    "share",
    "shares",
)  # of positional attention, by its onset


def functions(wing):
    """Those that need Parameters alone, and the flows."""
    for name, function in [*vars(wing).items()]:  # which grows as modules load
        if (
            inspect.isfunction(function)
            and not name.startswith("_")
            and name not in LONG + INNER
        ):
            needed = [
                a.name
                for a in inspect.signature(function).parameters.values()
                if a.default is a.empty and a.kind in SINGLE
            ]
            if needed == ["p"]:
                yield name, function
    for flow in wing.flows().values():
        yield flow.name, lambda p, flow=flow: flow.solve(p, **{flow.time.name: 1.0})


def typed(message, p):
    """The parameters that a message proposes, as they are typed."""
    call = re.search(r"; try (.+)$", message)
    assert call, message
    names = {"p": p}
    if not call[1].startswith("p."):
        module, _, _ = call[1].rpartition(".Parameters.")
        names[module.partition(".")[0]] = importlib.import_module(
            module.partition(".")[0]
        )
        importlib.import_module(module)
    return eval(call[1], names)


@functools.cache
def answers(name):
    """What every function of a model answers to `Parameters()`, or to what its refusal
    proposes.
    """
    wing = find(name).wing("theory")
    p, found = wing.Parameters(), {}
    for called, function in functions(wing):
        try:
            found[called] = function(p)
        except ParameterError as error:
            if "needs the runs to follow, or seeds" in str(error):  # both of which work
                found[called] = function(p, seeds=1)
            else:
                with warnings.catch_warnings():
                    warnings.simplefilter("error", BeyondScope)
                    found[called] = function(typed(str(error), p))
    return found


# As long as five others.
HEAVY = ("induction_heads.bursty", "positional_semantic")
systems = pytest.mark.parametrize(
    "name",
    [pytest.param(n, marks=[pytest.mark.slow] * (n in HEAVY)) for n in sorted(TABLE)],
)


@systems
def test_parameters_are_answered_or_the_refusal_proposes_some(name):
    """By every function of a model; what is proposed is answered."""
    assert answers(name) or name in ("associative_memory.trigger_task")
    assert all(found is not None for found in answers(name).values())


def test_a_proposal_is_within_all_limits():
    """Also those that hold only until another is mended; else a preset,
    else nothing.
    """
    first = Limit("eta", "0.25", lambda p, runs: p.eta == 0.25, values=(0.125, 0.25))
    second = Limit("L", "4", lambda p, runs: p.eta != 0.25 or p.L == 4, values=(5, 4))
    p, words = st.Parameters(), ("a theory", "small networks")
    assert (
        Scope(*words, (first, second)).proposal(p) == "; try p.replace(eta=0.25, L=4)"
    )
    small = Limit("N", "small", lambda p, runs: p.N < 20)
    assert Scope(*words, (small,)).proposal(p) == "; try p.replace(N=16)"
    small = Limit("N", "small", lambda p, runs: p.N * p.d_g < 300)
    preset = Scope(*words, (small,)).proposal(p)
    assert preset == "; try theory.state_tracking.Parameters.demo()"
    assert (
        Scope(*words, (first, Limit("L", "0", lambda p, runs: False))).proposal(p) == ""
    )
    with pytest.raises(
        ParameterError, match=r"small networks; try p\.replace\(eta=0\.25\)$"
    ):
        Scope(*words, (first,)).require(p)


def test_a_proposal_is_typed_in_a_shell():
    """As flags, of which the command accepts all."""
    told = "x = 1: must be 2; try p.replace(data='orthonormal', query='last')"
    assert cli.for_the_shell(told).endswith(
        "; try --set data=orthonormal --set query=last"
    )
    told = "x = 1: must be 2; try theory.state_tracking.standard.Standard.two_blocks()"
    assert cli.for_the_shell(told) == "x = 1: must be 2; try --preset two_blocks"
    assert cli.for_the_shell("data = 'a': must be 'b'") == "data = 'a': must be 'b'"
    with pytest.raises(ParameterError) as refused:
        onset(["state_tracking", "--set", "optimizer=adam"])
    flags = cli.for_the_shell(str(refused.value)).rpartition("; try ")[2].split()
    assert onset(["state_tracking", "--quiet", "--set", "optimizer=adam", *flags]) == 0


def test_a_flow_without_a_length_says_how_long_runs_are():
    """In the time of the flow."""
    p = st.Parameters.demo()
    with pytest.raises(
        ParameterError, match=r"got nothing; these parameters run to alpha=12$"
    ):
        st.flow().solve(p)


@pytest.mark.parametrize("name", sorted(TABLE))
def test_presets_have_their_own_help(name):
    """A sentence, and the fields that are set."""
    kind = find(name).wing("theory").Parameters
    for preset, fields in kind.PRESETS.items():
        help_text = io.StringIO()
        pydoc.Helper(output=help_text)(getattr(kind, preset))
        shown = help_text.getvalue()
        assert getattr(fields, "doc", "") in shown and preset in shown
        assert "partial" not in shown and len(fields.doc.split()) > 2, shown
        assert all(f"{field} = {value!r}" in shown for field, value in fields.items())


@pytest.mark.parametrize("name", sorted(TABLE))
def test_print_shows_all_values(name):
    """Each with its meaning, in lines that fit a terminal; then what the time of a run
    is.
    """
    p = find(name).wing("theory").Parameters()
    lines = str(p).splitlines()
    for field, value in p.as_dict().items():
        assert any(
            re.match(rf"{field} = {re.escape(repr(value))} +\w", x) for x in lines
        ), field
    assert max(map(len, lines)) <= 100 and repr(p) == "Parameters()"
    if isinstance(p, Stepped):
        assert lines[-1].startswith(f"Time: {p.TIME} = {p.CLOCK}; a run ends at ")


@systems
def test_results_say_what_their_time_is(name):
    """Flows, predictions and times of events, in words, when they are printed, too;
    also where a flow has a clock of its own.
    """
    flows = [flow.name for flow in find(name).wing("theory").flows().values()]
    for called in {"predict", "emergence_times", *flows} & answers(name).keys():
        result = answers(name)[called]
        for time in {"t", "alpha"} & {str(c) for c in result.coords}:
            assert re.match(
                rf"training time {time} = .*(steps|epochs)", result[time].long_name
            )
            if issubclass(find(name).wing("theory").Parameters, Stepped):
                assert result[time].long_name.endswith(result.attrs["time"])
        if called == "emergence_times":
            for event in (events := result.data_vars.values()):
                assert re.search("steps|epochs", event.units), event
            assert "time: " in str(result) or {x.units for x in events} == {"steps"}


def test_a_time_is_that_of_its_own_clock():
    """Not of its model, where the flow states another; in the time of the parameters
    otherwise.
    """
    from theory import induction_heads as heads
    from theory.associative_memory import k_hop

    by_kernel = {kind: k_hop.overlaps.flow(3, kind) for kind in ("sphere", "softmax")}
    p = k_hop.Parameters()
    clocks = {kind: f.solve(p, t=1.0).t.long_name for kind, f in by_kernel.items()}
    assert clocks["sphere"].endswith("t = eta * (1 - 1/N) * steps")
    assert clocks["softmax"].endswith("t = eta * steps")
    for q in (
        heads.Parameters(),
        heads.Parameters.demo(),
        heads.Parameters.emergence(),
    ):
        powers = {"": 0, " / D": 1, " / D^2": 2}[q.CLOCK.removeprefix("eta * steps")]
        assert q.time_per_step == q.eta / q.dimension**powers


def test_the_table_of_times_has_units(capsys):
    """In Python a column, in a shell also what the unit is."""
    assert onset(["state_tracking", "--preset", "demo", "--quiet"]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert lines[0].startswith("state_tracking: N = 16; ")
    assert [*map(str.strip, lines[1].split("  "))][0] == "quantity" and "unit" in lines[
        1
    ]
    (row,) = (line for line in lines if line.startswith("alpha_half"))
    assert (
        row.split()[2] == "alpha"
        and lines[-1] == "unit of time: alpha = epochs / (d_g N)"
    )


@pytest.mark.parametrize("call", ["predict", "emergence_times", "onset"])
@pytest.mark.parametrize(
    "name", ["state_tracking", "induction_heads", "induction_heads.bursty"]
)
def test_fields_alone_are_told_where_they_belong(name, call):
    """``st.onset(N=8)``: the message shows the call that works."""
    theory = find(name).wing("theory")
    with pytest.raises(
        ParameterError, match=r"give Parameters: theory\..*Parameters\(N=8\)$"
    ):
        getattr(theory, call)(N=8)
    with pytest.raises(
        ParameterError,
        match=r"first, then arrays: theory\..*Parameters\(\), N=\[8, 9\]$",
    ):
        getattr(theory, call)(N=[8, 9])
    with pytest.raises(ParameterError, match=r"^p = None: .*Parameters\(\.\.\.\)$"):
        getattr(theory, call)()
