"""Random initial weights: laws of starts, times in bulk, closed forms, refusals."""

import contextlib
import dataclasses

import numpy as np
import pytest
import scipy.stats
from random_starts import KINDS

from theory import explorer
from theory.call.refusal import ParameterError
from theory.models.stated import model as model_of
from theory.statement import (
    cross_entropy,
    draw,
    gaussian,
    model,
    number,
    onset,
    orthogonal,
    sizes,
    sort,
    statement,
    teacher,
    total,
    uniform,
    weight,
)
from theory.statement.derivation import remedies
from theory.statement.randomness import passage, random_starts

FEW = 400


@pytest.fixture(scope="module", params=KINDS)
def kind(request):
    """Name, derivation and parameters of a kind of emergence."""
    stated = KINDS[request.param]()
    return request.param, remedies.derived(stated), model.parameters(stated)()


def half_way(made, p, draws=FEW, seed=1):
    """Start, level and times of half the fall; the level does not depend on the size of
    weights.
    """
    x = random_starts.ordered(made, random_starts.starts(made, p, draws, seed))
    bulk = random_starts.Bulk(made.flow, p)
    middle = random_starts.ordered(made, {c.symbol.name: 0.0 for c in made.classes})
    level = float(bulk.shown("loss", middle[:, None])[0]) / 2
    return x, level, bulk.crossings(x, [level], 100_000)[0][0]


def table(law):
    """A statement that reads the diagonal of one square weight."""
    token = sort("token", sizes("N"))
    W, z = weight("W", token, token, start=law), draw(token)
    return statement(
        (W[z, z] - 1) ** 2,
        name="table",
        values=dict(N=5) | (dict(sigma=0.2) if law else {}),
    )


@pytest.mark.parametrize("make", [gaussian, uniform, orthogonal])
def test_class_means_are_those_of_whole_weights(make):
    """Means over classes have the law of means of drawn entries, and the variance it
    implies.
    """
    stated = table(make(number("sigma")))
    made, p = remedies.derived(stated), model.parameters(stated)()
    found = random_starts.starts(made, p, 4000)
    whole = random_starts.entries(
        stated.weights[0].start, 0.2, (4000, 5, 5), np.random.default_rng(9)
    )
    diagonal = np.einsum("dii->d", whole) / 5
    assert scipy.stats.ks_2samp(found.W_1.values, diagonal).pvalue > 1e-4
    variance = {gaussian: 0.04 / 5, uniform: 0.04 / 15, orthogonal: 0.04 / 25}[make]
    assert found.W_1.values.var() == pytest.approx(variance, rel=0.1)


@pytest.mark.parametrize("make", [gaussian, uniform, orthogonal])
def test_covariance_of_order_parameters_is_that_of_drawn_ones(make):
    """For every law, from entries that are uncorrelated."""
    stated = KINDS["no saddle"](start=make(number("sigma")))
    made, p = remedies.derived(stated), model.parameters(stated)()
    drawn = random_starts.ordered(made, random_starts.starts(made, p, 40_000))
    predicted = passage.covariance(made, p)
    np.testing.assert_allclose(np.diag(np.cov(drawn)), np.diag(predicted), rtol=0.05)
    assert ("t_50" in model.theory_of(stated).onset(p).numbers) and predicted.min() >= 0


def test_orthogonal_weights_are_orthogonal():
    """Rows or columns, whichever are fewer."""
    law = orthogonal(2)
    for shape in ((3, 4, 6), (3, 6, 4)):
        drawn = random_starts.entries(law, 2.0, shape, np.random.default_rng(0))
        short = drawn if shape[1] < shape[2] else np.swapaxes(drawn, 1, 2)
        gram = short @ np.swapaxes(short, 1, 2)
        np.testing.assert_allclose(
            gram, np.broadcast_to(4 * np.eye(4), gram.shape), atol=1e-12
        )


def test_curves_in_bulk_are_those_of_descent_one_by_one(kind):
    """Order parameters, loss and observables after some steps."""
    _, made, p = kind
    x = random_starts.ordered(made, random_starts.starts(made, p, 3))
    many = random_starts.Bulk(made.flow, p).at(x, [0, 7, 20])
    for k in range(3):
        begun = dict(zip(made.flow.state, x[:, k].tolist(), strict=True))
        one = dataclasses.replace(made.flow, initial=begun).descend(p, p.eta, 20)
        for name, values in many.items():
            np.testing.assert_allclose(
                values[k], one[name].values[[0, 7, 20]], rtol=1e-9, atol=1e-13
            )


def test_times_become_those_of_the_flow_as_steps_become_small(kind):
    """A start's time by steps of descent, against the integrated flow: first order in
    the step.
    """
    name, made, p = kind
    p = p.replace(**{"sigma": 0.1})
    x, level, _ = half_way(made, p, 1)
    begun = dict(zip(made.flow.state, x[:, 0].tolist(), strict=True))
    flow = dataclasses.replace(made.flow, initial=begun)
    events = {"time": made.flow.observables["loss"] - level}
    exact = float(flow.solve(p, at=[0.0], t=2000.0, events=events)["time"])
    off = [
        abs(half_way(made, p.replace(eta=eta), 1)[2][0] - exact) for eta in (0.1, 0.05)
    ]
    assert off[0] / off[1] == pytest.approx(2, abs=0.3), name


RATES = {"a saddle": 1.0, "no saddle": 2.0, "four heads": 1.0}


@pytest.mark.parametrize("name", RATES)
def test_the_closed_form_is_right_to_next_order_start_by_start(name):
    """Constants are those of noiseless runs; errors fall as the next order does."""
    stated = KINDS[name]()
    made, errors = remedies.derived(stated), []
    for sigma in (0.02, 0.01):
        p = model.parameters(stated)(sigma=sigma)
        x, level, found = half_way(made, p)
        law = passage.passage(made, p, level, 100_000)
        bulk, ratio = random_starts.Bulk(made.flow, p), 1e-3
        if (
            law.saddle
        ):  # the start's own amplitude, along the eigenvectors that grow fastest
            _, _, slopes, _ = made.flow._compiled
            free = [float(getattr(p, s.name)) for s in made.flow._compiled[0]]
            values, vectors = np.linalg.eig(
                np.array(slopes(0.0, *np.zeros(len(x)), *free))
            )
            order = np.argsort(-values.real)[: law.many]
            along = vectors.real[:, order] @ np.linalg.pinv(vectors.real)[order] @ x
            later = bulk.crossings(ratio * along, [level], 100_000)[0][0]
            predicted = later + np.log(ratio) / law.rate
        else:
            mean = law.rate
            shift = bulk.crossings(1e-3 * x, [level], 10_000)[0][0] - mean
            predicted = mean + shift / 1e-3
        errors.append(np.median(np.abs(predicted - found)))
        share = law.later(found)
        assert scipy.stats.kstest(share, "uniform").pvalue > 1e-4
    assert np.log2(errors[0] / errors[1]) == pytest.approx(RATES[name], abs=0.3)


@pytest.mark.parametrize(
    "wrong", ["rate of the flow for that of steps", "one direction for four"]
)
def test_wrong_closed_forms_are_seen(wrong):
    """The comparison of laws fails for the popular mistakes."""
    stated = KINDS["four heads"]()
    made, p = (remedies.derived(stated), model.parameters(stated)(sigma=0.001, eta=2.0))
    _, level, found = half_way(made, p, 4000)
    law = passage.passage(made, p, level, 100_000)
    assert scipy.stats.kstest(law.later(found), "uniform").pvalue > 1e-4
    changes = (
        {"many": 1} if wrong.startswith("one") else {"rate": np.expm1(2 * law.rate) / 2}
    )
    off = dataclasses.replace(law, **changes)
    assert scipy.stats.kstest(off.later(found), "uniform").pvalue < 1e-6


def test_quantiles_invert_the_law(kind):
    """Where there is a law."""
    name, made, p = kind
    _, level, _ = half_way(made, p, 1)
    law = passage.passage(made, p, level, 5_000)
    if isinstance(law, str):
        assert name in ("two plateaus", "third order")
        return
    for q in (0.05, 0.5, 0.95):
        assert law.later(law.quantile(q)) == pytest.approx(1 - q, abs=1e-9)


def test_printed_laws_are_the_numbers(kind):
    """The derived survival, evaluated, is what is computed for one direction."""
    name, made, p = kind
    _, level, _ = half_way(made, p, 1)
    law = passage.passage(made, p, level, 5_000)
    if isinstance(law, str) or not law.saddle:
        return
    *_, survival = law.equations(made)
    one = dataclasses.replace(law, constants=law.constants[:1])
    for t in (30.0, 60.0):
        numbers = {"C": law.constants[0], "sigma_a": 1.0, "Lambda": law.rate, "t": t}
        assert float(survival.evaluate(numbers)) == pytest.approx(
            float(one.later(t)), rel=1e-9
        )


def test_third_order_has_no_logarithm():
    """At a saddle of third order times are inverse to the size of the weights."""
    stated = KINDS["third order"]()
    made = remedies.derived(stated)
    p = model.parameters(stated)(sigma=0.002, eta=0.1)
    long, short = (half_way(made, p.replace(sigma=s), 20)[2] for s in (0.02, 0.04))
    known = np.isfinite(long)
    assert np.median(long[known] / short[known]) == pytest.approx(2, abs=0.1)
    assert "to the power -1" in passage.passage(made, p, 0.7, 10_000)


@pytest.mark.parametrize(
    "kind",
    [pytest.param(k, marks=[pytest.mark.slow] * (k == "four heads")) for k in KINDS],
    indirect=True,
)
def test_onset_and_times_of_drawn_starts(kind, monkeypatch):
    """Medians and quantiles are those of the drawn times; nothing is left without a
    number.
    """
    monkeypatch.setattr(onset, "DRAWS", FEW)
    _, made, p = kind
    theory = model.theory_of(made.statement)
    p = p.replace(sigma=0.1)
    found, drawn = theory.onset(p), theory.emergence_times(p, seeds=onset.DRAWS)
    assert found.numbers["t_50"] == pytest.approx(float(drawn.t_50.median()))
    assert found.numbers["t_50_5"] < found.numbers["t_50"] < found.numbers["t_50_95"]


def test_times_over_fields_and_medians_without_draws():
    """Drawn times take arrays of fields;
    without draws there are medians and quantiles.
    """
    p = model.parameters(STATED)()
    theory = model.theory_of(STATED)
    assert theory.emergence_times(p, seeds=5, sigma=[0.1, 0.2]).t_50.dims == (
        "sigma",
        "draw",
    )
    assert {"t_50", "t_50_5", "t_50_95"} <= set(theory.emergence_times(p, beyond=True))


def test_a_run_that_is_too_short_says_so():
    """What has not happened is infinite, and counted."""
    stated = KINDS["a saddle"]()
    theory, p = model.theory_of(stated), model.parameters(stated)()
    whole = theory.emergence_times(p, seeds=200)
    cut = theory.emergence_times(p, seeds=200, until=float(whole.t_50.median()))
    assert not np.isfinite(cut.t_90).all()
    assert theory.onset(p, until=60.0).numbers["never"] > 0


def hidden():
    """A product over hidden units: what grows from random starts is outside of the
    classes.
    """
    unit = sort("unit", sizes("H"))
    a, b = (weight(name, unit, start=gaussian(number("sigma"))) for name in "ab")
    loss = (total(lambda h: a[h] * b[h], unit) - 1) ** 2
    return statement(loss, name="hidden", values=dict(H=4, sigma=0.01))


def test_directions_outside_of_the_classes_are_refused():
    """Every entry point names what grows; asked for all the same, it answers."""
    theory = model.theory_of(hidden())
    p = theory.Parameters()
    inside, outside = passage.outside(onset.at_sizes(theory.statement, p), p)
    assert inside == pytest.approx(2, rel=1e-6) and outside == pytest.approx(
        2, rel=1e-6
    )
    for call in (theory.onset, lambda q: theory.predict(q, seeds=3)):
        with pytest.raises(
            ParameterError, match="start of a, start of b: entries leave the means"
        ):
            call(p)
    with pytest.raises(ParameterError, match="train them"):
        theory.emergence_times(p, seeds=3)
    with pytest.warns(UserWarning, match="entries leave"):
        assert theory.emergence_times(p, seeds=3, beyond=True).sizes["draw"] == 3


@pytest.mark.parametrize("start", [1, gaussian(0.1)])
def test_classes_without_entries_are_refused(start):
    """As in a one-to-one map onto all values; the size at fault is named, and one that
    works.
    """
    N, M = sizes("N M")
    key, value = sort("key", N), sort("value", M)
    f, k = teacher("f", (key,), value, injective=True), draw(key)
    U, V = weight("U", key, key, start=start), weight("V", key, value, start=start)
    logit = lambda v: total(lambda j: U[k, j] * V[j, v], key)
    loss = cross_entropy(logit, over=value, target=f(k))
    theory = model.theory_of(statement(loss, name="map", values=dict(N=4, M=6)))
    p, seeds = theory.Parameters(), None if start == 1 else 2
    calls = (
        theory.onset,
        theory.emergence_times,
        lambda q: theory.predict(q, seeds=seeds),
    )
    insisting = (
        [] if start == 1 else [lambda q: theory.predict(q, seeds=seeds, beyond=True)]
    )
    for call in (*calls, *insisting):
        with pytest.raises(
            ParameterError, match=r"M = 4: .* V has N\*\(M - N\).*replace\(M=6\)"
        ):
            call(p.replace(M=4))


def test_entries_that_scatter_widely_are_refused(monkeypatch):
    """The mean of a class says little of them; an onset draws nothing before."""
    p = parameters_of(0.5)
    with monkeypatch.context() as patch:
        patch.setattr(random_starts, "times", None)
        with pytest.raises(
            ParameterError, match="standard deviation 0.5: must be at most 0.33"
        ):
            theory_of(0.01).onset(p)
    for call in (
        theory_of(0.01).onset,
        lambda q: theory_of(0.01).emergence_times(q, seeds=3),
    ):
        with pytest.raises(
            ParameterError, match="standard deviation 0.5: must be at most 0.33"
        ):
            call(p)
    N, M = sizes("N M")
    key, value = sort("key", N), sort("value", M)
    for size, refused in ((0.6, False), (0.9, True)):  # entries are smaller by sqrt(M)
        f, k = teacher("f", (key,), value), draw(key)
        W = weight("W", key, value, start=orthogonal(size))
        loss = cross_entropy(lambda v, W=W, k=k: W[k, v], over=value, target=f(k))
        theory = model.theory_of(statement(loss, name="map", values=dict(N=6, M=6)))
        wide = pytest.raises(ParameterError, match="deviation 0.367")
        with wide if refused else contextlib.nullcontext():
            theory.emergence_times(theory.Parameters(), seeds=3)


def test_a_page_with_one_start_is_refused():
    """It would show the mean of the start, where nothing moves at a saddle."""
    shown = model_of(KINDS["a saddle"]())
    with pytest.raises(
        ParameterError, match="a page has one start; python -m theory.onset FILE"
    ):
        explorer.page(shown, shown.wing("theory").Parameters())


@pytest.mark.parametrize(
    "call, said",
    [
        (
            lambda: weight("W", start="random"),
            "gaussian\\(sigma\\), uniform\\(width\\)",
        ),
        (lambda: weight("W", start=orthogonal(1)), "only a matrix can be orthogonal"),
        (lambda: gaussian(-1), "not negative"),
        (
            lambda: singular(0),
            (
                'W = 0, b = 0, the loss is 0/0; tried, and it works: weight\\("W", ...,'
                " start=1\\)"
            ),
        ),
        (lambda: singular(gaussian(1)), "the loss is 0/0"),
        (
            lambda: theory_of(0.01).predict(parameters_of(0.01)),
            "predict\\(p, seeds=5\\)",
        ),
        (
            lambda: theory_of(0.01).emergence_times(parameters_of(0.01), seeds=0),
            "seeds = 0",
        ),
        (lambda: theory_of(0.01).onset(parameters_of(-1.0)), "must be above 0"),
        (
            lambda: theory_of(0.01).onset(parameters_of(0.1).replace(batch_size=4)),
            "all inputs",
        ),
        (
            lambda: theory_of(0.01).onset(parameters_of(0.1).replace(eta=1e200)),
            "diverges",
        ),
        (
            lambda: plain().predict(plain().Parameters(), seeds=3),
            "no weight starts at random",
        ),
        (
            lambda: plain().derived().starts(plain().Parameters(), 3),
            "start=gaussian\\(sigma\\)",
        ),
    ],
)
def test_what_does_not_fit_is_refused_in_one_line(call, said):
    """By the line that would work."""
    with pytest.raises(ParameterError, match=said) as error:
        call()
    assert "\n" not in str(error.value)


def theory_of(sigma):
    """Of the statement with no saddle."""
    return model.theory_of(STATED)


def parameters_of(sigma):
    """At a size of the weights."""
    return model.parameters(STATED)(sigma=sigma)


def singular(start):
    """A share of entries, which is not defined where all are zero."""
    token = sort("token", sizes("N"))
    W, b, z = weight("W", token, start=start), weight("b", start=start), draw(token)
    loss = (W[z] / (b[()] + total(lambda i: W[i], token)) - 1) ** 2
    return remedies.derived(statement(loss, name="singular"))


def plain():
    """A statement whose weights start at zero."""
    return model.theory_of(PLAIN)


STATED, PLAIN = KINDS["no saddle"](), table(0)
