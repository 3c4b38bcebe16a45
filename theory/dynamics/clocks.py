"""The clock of momentum: descent with memory moves like plain descent at another rate,
later by the mean age of the gradients that it follows. From the recursion of its steps,
to second order in their size.
"""

from dataclasses import dataclass
from functools import cache, partial

import sympy as sp

from theory.equations.equation import Chapter, Equations
from theory.symbols.algebra import proved, vanishes, written_as
from theory.symbols.fractions import factored
from theory.symbols.notation import symbol

REFERENCE = "derived here, momentum as a filter of gradients"
SLOW = "gradients change little from step to step"

eta = symbol("eta", r"\eta", "learning rate", positive=True)
beta = symbol("beta", r"\beta", "momentum", positive=True)
n = symbol("steps", "n", "steps so far", positive=True)
rate = symbol(
    "rate", r"\varepsilon", "distance per gradient in the long run", positive=True
)
age = symbol(
    "age", r"\lambda", "mean age of the gradients in a step, in steps", positive=True
)
clock = symbol("training_clock", "s", "training time: sum of rates", real=True)
plain = symbol(
    "plain_rate", r"\eta_{0}", "rate of plain descent with this path", positive=True
)
back = symbol("back", "z", "shift by one step into the past")
D = symbol("D_n", r"\partial_{n}", "derivative by the number of steps")
w = sp.Function("w")(n)
slope = symbol("slope", r"\nabla\mathcal{L}", "gradient at the weights", real=True)

chapter = Chapter(REFERENCE, status="exact")


def delay(
    pace: sp.Expr, x: sp.Symbol, start: sp.Expr, end: sp.Expr, step: sp.Expr = eta
) -> sp.Expr:
    """Correction of the time of dx/dt = f, with f the ``pace``, by steps of finite
    size, which to first order follow f - (step/2) f f'.
    """
    f = sp.Function("f")(x)
    added = sp.diff(1 / (f - step / 2 * f * sp.diff(f, x)), step).subs(step, 0)
    proved(
        vanishes(added - sp.diff(sp.log(f), x) / 2),
        "a step does not add the logarithm of the pace",
    )
    return step / 2 * sp.log(pace.subs(x, end) / pace.subs(x, start))


@dataclass(frozen=True)
class Rule:
    """Direction of a step: the accumulated gradient, or Nesterov's mixture with the
    latest one.
    """

    name: str
    nesterov: bool


RULES = (Rule("heavy_ball", False), Rule("nesterov", True))


@cache
def memory(rule: Rule) -> sp.Expr:
    """A step per learning rate and gradient as a power series in shifts into the past,
    from the recursion of PyTorch's momentum buffer.
    """
    buffer, g = sp.symbols("buffer g")
    (held,) = sp.solve(sp.Eq(buffer, beta * back * buffer + g), buffer)
    return sp.factor((g + beta * held if rule.nesterov else held) / g)


@cache
def moments(rule: Rule) -> tuple[sp.Expr, sp.Expr]:
    """Sum of the weights of all past gradients, and their mean age."""
    of = memory(rule)
    total = written_as(1 / (1 - beta), of.subs(back, 1))
    form = beta ** (2 if rule.nesterov else 1) / (1 - beta)
    return total, written_as(form, sp.diff(of, back).subs(back, 1) / total)


def second_order(rule: Rule) -> sp.Expr:
    """Operator K(D) in ``K(D) w = -rate * gradient``, to second order in D =
    d/d(steps): the step of w divided by the optimiser's memory, for slowly varying
    gradients.
    """
    total, _ = moments(rule)
    both = total * (sp.exp(D) - 1) / memory(rule).subs(back, sp.exp(-D))
    return sp.series(both, D, 0, 3).removeO()


@cache
def sluggishness() -> sp.Expr:
    """Coefficient of the second derivative, in the mean age;
    the same for both rules.
    """
    form = age + sp.Rational(1, 2)
    for rule in RULES:
        coefficient = second_order(rule)
        written_as(sp.Integer(1), sp.expand(coefficient).coeff(D, 1))
        written_as(form.subs(age, moments(rule)[1]), sp.expand(coefficient).coeff(D, 2))
    return form


def started(rule: Rule) -> sp.Expr:
    """Clock after n steps at a constant rate from an empty memory: sums of the weights
    so far.
    """
    j, k = sp.symbols("j k", integer=True, nonnegative=True)
    weights = beta ** (k + 1) if rule.nesterov else beta**k
    so_far = sp.summation(weights, (k, 0, j)) + (1 if rule.nesterov else 0)
    count = sp.Symbol("count", integer=True, positive=True)
    total = sp.piecewise_fold(
        sp.summation(sp.piecewise_fold(so_far), (j, 0, count - 1))
    )
    return eta * factored(total.subs(sp.Eq(beta, 1), False)).subs(count, n)


def delayed(rule: Rule) -> sp.Expr:
    """The clock after n steps: late by the mean age, once the memory has filled."""
    total, mean = moments(rule)
    return written_as(eta * total * (n - mean * (1 - beta**n)), started(rule))


def mean_age(rule: Rule) -> sp.Expr:
    """Mean age of the gradients in a step."""
    return moments(rule)[1]


for rule in RULES:
    chapter.state(f"age_{rule.name}", age, partial(mean_age, rule))
    chapter.state(
        f"clock_{rule.name}",
        clock,
        partial(delayed, rule),
        "constant rate, gradients constant",
    )


@chapter.derives(rate)
def rate_momentum() -> sp.Expr:
    """Distance per gradient in the long run."""
    return eta * moments(RULES[0])[0]


@chapter.derives(sp.Derivative(w, n), "leading order", SLOW)
def sluggish() -> sp.Expr:
    """Rate of the weights: descent, less the second derivative."""
    return -rate * slope - sluggishness() * sp.Derivative(w, (n, 2))


@chapter.derives(plain, "leading order", SLOW, name="plain_rate")
def equivalent() -> sp.Expr:
    """Rate at which plain descent, which has no memory, has the same second-order term
    per clock: there it is half a step of its own rate.
    """
    other = sp.Symbol("other", positive=True)
    plain_coefficient = sluggishness().subs(age, 0) * other
    (rates,) = sp.solve(sp.Eq(plain_coefficient, sluggishness() * rate), other)
    return written_as(rate * (1 + 2 * age), rates)


def equations() -> Equations:
    """Rate, age and clock of both rules,
    and the plain descent that has the same path.
    """
    return chapter.equations
