"""The loss plateau and the escape from it: reduction to five pseudo-parameters, strict
mask, up to relative order 1/N.

While the second layer attends uniformly, the loss is a quadratic form in gamma_2 +
gamma_3 and gamma_4, with coefficients that depend on alpha_3 only: moments of S, which
is 2N times what the first layer's rows retrieve of a token. Attention on the correct
label adds the rest. alpha_1 and beta_10 grow only from a product that vanishes
initially, gamma_1 removes the queried item, and beta_1 contributes at relative order
1/N.

In a burst of B right pairs three more pseudo-parameters move: rows attend to earlier
rows of the burst by alpha_1, the query retrieves the right label B times (beta_7), and
beta_10 follows alpha_1. The right label is then a share B^2/N of the output, which is
kept.
"""

from functools import partial

import sympy as sp

from theory import Chapter, Equations, Flow, proved, symbol
from theory.dynamics.catalogue import cache
from theory.induction_heads.all_weights import burst
from theory.induction_heads.all_weights.burst import E_1
from theory.induction_heads.all_weights.scores import (
    PLACE,
    THETA,
    E,
    context_weights,
    e,
)
from theory.induction_heads.network import ORTHONORMAL
from theory.induction_heads.parameters import PLATEAU
from theory.induction_heads.symbols import B, N, j, k, q, ref, squared_error, t, tau
from theory.symbols.fractions import factored
from theory.symbols.notation import Forms
from theory.symbols.reading import sympified

FIVE = ("alpha_3", "beta_2", "gamma_2", "gamma_3", "gamma_4")
BURST = ("alpha_1", "beta_7", "beta_10")  # move, too, if B > 1
alpha_3, beta_2, gamma_2, gamma_3, gamma_4 = (THETA[n] for n in FIVE)
alpha_1, beta_7, beta_10 = (THETA[n] for n in BURST)
Gamma = symbol(
    "Gamma",
    r"\Gamma",
    "gamma_2 + gamma_3: both write out the mean token of the context",
    real=True,
)
Phi = symbol(
    "Phi", r"\Phi", "drive of alpha_3 and beta_2 on the plateau", positive=True
)
delta = symbol("delta", r"\delta", "integral of Phi over e, over N", real=True)
phi = symbol("phi", r"\varphi", "what 2 Phi has beside ln N", real=True)
y = symbol("y", positive=True)
STRICT = "strict mask"
LEADING = (STRICT, "relative order 1/N left out", ORTHONORMAL)
MANY = (STRICT, "relative orders 1/N and B/N left out", ORTHONORMAL)


def power_sums(rational: sp.Expr, over: sp.Symbol, last: sp.Expr | None) -> sp.Expr:
    """Sum of a rational function of ``over`` from 1 to ``last`` in polygamma functions.
    If ``last`` is None: the finite part at infinity, without ln N.

    For partial fractions c / (j + x)^n the sum is a difference of polygamma functions.
    """
    total = sp.S.Zero
    for term in sp.Add.make_args(sp.apart(rational, over)):
        below = sp.Poly(sp.denom(term), over)
        n = below.degree()
        if n == 0:
            proved(last is not None, "the sum grows with the number of terms")
            total += term * last
            continue
        shift = sp.expand(below.nth(n - 1) / below.LC() / n)
        power = below.LC() * (over + shift) ** n
        is_power = sp.expand(below.as_expr() - power) == 0
        proved(is_power, "not a power of one linear factor")
        sign = sp.Integer(-1) ** (n - 1)
        weight = sp.numer(term) / below.LC() * sign / sp.factorial(n - 1)
        difference = -sp.polygamma(n - 1, 1 + shift)
        if last is not None:
            difference += sp.polygamma(n - 1, last + 1 + shift)
        total += weight * difference
    return total


@cache
def row_gain() -> sp.Expr:
    """Decrease of the loss due to the attention of label k on its own item, per unit of
    alpha_3 and divided by gamma_4^2 / (2 N^2).

    A label's weight p on its item reduces its weights on all earlier tokens equally.
    With Gamma + gamma_4 S as 2 N times the output coefficient of a token, the gain is -
    gamma_4 p (1 - p) (S of the item - mean S of the earlier tokens). Every row l in
    between gives the same to each of the 2l - 2 earlier tokens, so that the mean
    telescopes.
    """
    p = label_on_item()
    # (l - 1) tau_l, tau_l = share of row pair l, is 1 - p_l / 2; sum over l = 2..k and
    # the items' own p, over k - 1.
    weight_of = sp.Function("p")
    weights = context_weights()
    on_others = (weights["item_other"] + weights["label_other"]).subs(E, 0)
    share = factored((k - 1) * on_others - 1 + p / 2)
    proved(share == 0, "attention weights of a row do not sum to one")
    # excess of the mean of S over S of label k
    mean_excess = 1 - (weight_of(k) - weight_of(1)) / (2 * (k - 1))
    gap = (weight_of(k) - mean_excess).subs(weight_of(1), 1).subs(weight_of(k), p)
    return sp.factor(-p * (1 - p) * sp.factor(gap))


def label_on_item() -> sp.Expr:
    """Attention of label k on its own item, strict mask."""
    return context_weights()["label_item"].subs(E, 0)


@cache
def sums() -> Forms:
    """Phi: sum of `row_gain` over rows, divided by e; delta: its integral over e,
    divided by N; phi: twice Phi without its ln N.
    """
    gain = sp.cancel(row_gain().subs(k, j + 1) / e)
    integral = sp.integrate(sp.apart(gain, e), e)
    integral = sp.cancel(sp.together(integral - integral.subs(e, 0)))
    return {
        Phi: power_sums(gain, j, N - 1),
        phi: 2 * power_sums(gain, j, None),
        delta: power_sums(integral, j, N - 1) / N,
    }


chapter = Chapter(ref, status="leading order")


DRIVE = f"{PLACE}: drive of alpha_3"
chapter.state("plateau_Phi", Phi, lambda: sums()[Phi], DRIVE, "exact", STRICT)
INTEGRAL = f"{PLACE}: integral of Phi over e, over N"
chapter.state("plateau_delta", delta, lambda: sums()[delta], INTEGRAL, "exact", STRICT)
EXPANDED = f"{PLACE}: 2 Phi = ln N + phi + O(e/N)"
chapter.state("plateau_phi", phi, lambda: sums()[phi], EXPANDED, *LEADING)


@cache
def moments() -> tuple[sp.Expr, sp.Expr]:
    """Mean and mean square of S over the tokens at e^alpha_3 << N: S = ln(N/k),
    exponentially distributed.
    """
    support = (y, 0, sp.oo)
    mean = sp.integrate(y * sp.exp(-y), support)
    return mean, sp.integrate(y**2 * sp.exp(-y), support)


def quadratic(
    target: sp.Expr, square: sp.Expr = sp.S.Zero, right: sp.Expr = sp.S.One
) -> sp.Expr:
    """2 N (loss - 1) while the second layer attends uniformly; ``target`` is S of the
    correct label, which occurs ``right`` times.
    """
    first, second = moments()
    squares = Gamma**2 + 2 * Gamma * gamma_4 * first + gamma_4**2 * (second - square)
    return -2 * (right * Gamma + gamma_4 * target) + squares


def right_label() -> sp.Expr:
    """Change of the loss due to attention a on the correct label in excess of 1/(2N),
    for queried pair q.
    """
    score = beta_2 * label_on_item().subs(k, q).subs(e, sp.exp(alpha_3))
    a = sp.exp(score) / (sp.exp(score) + 2 * N - 1)
    uniform = 1 / (2 * N)
    return -2 * gamma_3 * (a - uniform) + gamma_3**2 * (a**2 - uniform**2)


def seen_in_burst() -> sp.Expr:
    """S of the right label: rows of the burst retrieve it from those before them."""
    weights = burst.right_weights()
    rows = weights["item_label"] + weights["label_label"]
    leading = sp.limit(N * rows.subs(E, 0), N, sp.oo) / N
    seen = sp.factor(sp.summation(sp.expand(leading), (k, 1, B)))
    return seen.subs(E_1, sp.exp(alpha_1))


@cache
def kept_score() -> sp.Expr:
    """Score of the burst's label k relative to other rows, to leading order in 1/N."""
    small = {THETA[n]: 0 for n in ("beta_8", "beta_11", "beta_12")}
    score = burst.score_forms("strict")["right_label"].subs(E, 0)
    return burst.in_full(score, "strict").subs(small)


@cache
def slow_loss() -> sp.Expr:
    """N^2 times the change of the loss by a burst, N to infinity: attention to right
    labels, and attention of rows of the burst to them.
    """
    leading = sp.limit(sp.together(N * kept_score()), N, sp.oo)
    labels = sp.summation(sp.expand(leading), (k, 1, B))
    return sp.factor(-gamma_3 * labels - gamma_4 * N * seen_in_burst())


def right_labels(right: int | sp.Expr) -> sp.Expr:
    """Change of the loss by a burst: the excess of attention on right labels, the
    square of the output along them, and other tokens, of which there are 2 (N - B).
    """
    labels = sp.Sum(sp.exp(kept_score().subs(B, right)), (k, 1, right))
    if not isinstance(right, sp.Symbol):
        labels = labels.doit()
    a = labels / (labels + 2 * N - right)
    before = sympified(right) / (2 * N)
    fewer = before * (gamma_2 + gamma_3) ** 2 / N
    return -2 * gamma_3 * (a - before) + (gamma_3 * a + gamma_2 * before) ** 2 - fewer


def loss_of_place(seen: sp.Expr) -> sp.Expr:
    """Loss for one right pair q with S = ``seen``."""
    uniform = quadratic(seen, sums()[delta]).subs(e, sp.exp(alpha_3))
    return 1 + uniform.subs(Gamma, gamma_2 + gamma_3) / (2 * N) + right_label()


@cache
def loss_last(right: int | sp.Expr = 1) -> sp.Expr:
    """Loss for the last pair, or for a burst. No row after the burst attends to its
    label, so that S = 0 for a single pair.
    """
    if right == 1:
        return loss_of_place(sp.S.Zero).subs(q, N)
    target = seen_in_burst().subs(B, right)
    uniform = quadratic(target, sums()[delta], sympified(right))
    uniform = uniform.subs({Gamma: gamma_2 + gamma_3, e: sp.exp(alpha_3)})
    return 1 + uniform / (2 * N) + right_labels(right)


FIVE_NUMBERS = f"{PLACE}: five numbers, q = N"
chapter.state("plateau_loss", squared_error, loss_last, FIVE_NUMBERS, *LEADING)
EIGHT_NUMBERS = f"{burst.PLACE}: eight numbers"
of_burst = partial(loss_last, B)
chapter.state("plateau_loss_burst", squared_error, of_burst, EIGHT_NUMBERS, *MANY)


@cache
def loss_uniform() -> tuple[sp.Expr, sp.Expr]:
    """Loss for a uniform query: the part that does not depend on the pair, and the part
    to be averaged over pairs.

    Labels are retrieved as often as other tokens, except for the attention of labels on
    their own items: the mean of S over labels is 1 - (P + 1)/(2N), with P the sum of
    all p. Hence gamma_4 is of order ln N / N, and its 1/N corrections determine when
    gamma_3 passes 1/2. In the sum over queries, later rows reduce the attention on the
    correct label by beta_2 / 2.
    """
    weight = sp.cancel(label_on_item().subs(k, j))
    total = power_sums(weight, j, N).subs(e, sp.exp(alpha_3))
    corrected = quadratic(1 - (total + 1) / (2 * N))
    corrected -= Gamma**2 / (2 * N) + 2 * Gamma * gamma_4 / N
    common = 1 + corrected.subs(Gamma, gamma_2 + gamma_3) / (2 * N)
    return common + gamma_3 * beta_2 / (2 * N**2), right_label()


@cache
def layer() -> dict[str, sp.Expr]:
    """Gamma and gamma_4 as functions of tau = t/N, starting at zero, for the last pair
    and for a uniform query, at N to infinity.
    """
    solution: dict[str, sp.Expr] = {}
    for name, target in (("last", sp.S.Zero), ("uniform", moments()[0])):
        form = quadratic(target)
        # gamma_2 and gamma_3 both follow half the derivative of the quadratic form.
        slopes = sp.Matrix([-sp.diff(form, Gamma), -sp.diff(form, gamma_4) / 2])
        rates = slopes.jacobian([Gamma, gamma_4])
        still = -rates.inv() * slopes.subs({Gamma: 0, gamma_4: 0})
        path = still - (rates * tau).exp() * still
        path = path.applyfunc(lambda x: sp.powsimp(sp.expand(x.rewrite(sp.exp))))
        solution |= {f"{name}_Gamma": path[0], f"{name}_gamma_4": path[1]}
    return solution


def in_layer(name: str) -> sp.Expr:
    """One of the paths of `layer`."""
    return layer()[name]


EARLY = f"{PLACE}: t of order N"
LAST = (f"{EARLY}, q = N", *LEADING)
chapter.state("plateau_Gamma", Gamma, partial(in_layer, "last_Gamma"), *LAST)
chapter.state("plateau_gamma_4", gamma_4, partial(in_layer, "last_gamma_4"), *LAST)
path = partial(in_layer, "uniform_Gamma")
chapter.state("plateau_Gamma_uniform", Gamma, path, f"{EARLY}, uniform q", *LEADING)


def equations() -> Equations:
    """Gain of a row, its sums, the loss of five pseudo-parameters, and the initial time
    layer.
    """
    return chapter.equations


@cache
def flow() -> Flow:
    """Gradient flow of the five pseudo-parameters for the last pair, at unit rate on
    the loss summed over D.
    """
    state = [THETA[n] for n in FIVE]
    loss = loss_last()
    return Flow(
        name="all_weights_plateau",
        time=t,
        rhs={x: -sp.diff(loss, x) for x in state},
        initial=dict.fromkeys(state, sp.S.Zero),
        reference=ref(FIVE_NUMBERS),
        status="leading order",
        assumptions=LEADING,
        observables={"loss": loss},
        scope=PLATEAU,
    )
