"""One step from zero, and gradient flow at all times: margin in closed form (orthonormal
embeddings, uniform keys).
"""

import sympy as sp

from theory import Equation, Flow, proved, symbol, table, vanishes, written_as
from theory.associative_memory.gradient_memory.parameters import MEMORY
from theory.associative_memory.symbols import DERIVED, K, L, N, eta, m, ref, t
from theory.called import cache

ASSUMED = ("orthonormal embeddings", "uniform keys, one right class each")
logit_right = symbol("s_right", r"u_{f(z)}^{\top} W_1 e_z", "right score after one step", real=True)
logit_wrong = symbol("s_wrong", r"u_{k}^{\top} W_1 e_z", "wrong score after one step", real=True)
half_time = symbol("t_half", r"t_{1/2}", "time at which half the loss is left", positive=True)


def rates() -> tuple[sp.Expr, sp.Expr]:
    """Rates of the correct and of a wrong logit at margin m, by the gradient lemma.

    The residual in the lemma is prediction minus truth. With orthonormal embeddings the logit of
    (k, z) changes only by the residual of (k, z), times the probability 1/N of the key.
    """
    right = sp.exp(m) / (sp.exp(m) + K - 1)
    wrong = 1 / (sp.exp(m) + K - 1)
    return (1 - right) / N, -wrong / N


@cache
def flow() -> Flow:
    """Flow of the margin in t = eta * steps."""
    right, wrong = rates()
    rate = written_as(K / N / (sp.exp(m) + K - 1), sp.simplify(right - wrong))
    return Flow(
        name="gradient_memory",
        time=t,
        rhs={m: rate},
        initial={m: sp.S.Zero},
        reference=ref(DERIVED),
        status="exact",
        assumptions=ASSUMED,
        observables={"loss": sp.log(1 + (K - 1) * sp.exp(-m))},
        scope=MEMORY,
        clock="eta * steps",
    )


@cache
def equations() -> dict[str, Equation]:
    """Logits, margin and loss after one step; margin of the flow, and the time at which its loss
    has halved.
    """
    step = [sp.simplify(eta * q.subs(m, 0)) for q in rates()]
    right, wrong = written_as(eta / N * (1 - 1 / K), step[0]), written_as(-eta / (N * K), step[1])
    margin = sp.simplify(right - wrong)
    loss = sp.log(1 + (K - 1) * sp.exp(-m))
    # Separate variables: (e^m + K - 1) dm = K dt / N.
    travelled = sp.integrate(sp.expand(K / N / flow().rhs[m]), (m, 0, m))
    clock = sp.expand(travelled - K * t / N)  # increases with m: one root
    start = (1 + K * t / N) / (K - 1)
    closed = start - sp.LambertW(sp.exp(start) / (K - 1))
    W = sp.Dummy("W")  # W e^W = e^start / (K - 1)
    proved(
        vanishes(clock.subs(sp.exp(m), (K - 1) * W).subs(m, start - W)),
        "the margin does not solve the separated equation",
    )
    root = sp.Symbol("root", positive=True)  # sqrt(K)
    goal = sp.solve(sp.Eq(1 + (root**2 - 1) / sp.Symbol("E"), root), sp.Symbol("E"))[0]
    goal = sp.factor(goal).subs(root, sp.sqrt(K))  # e^m at which the loss is half of ln K
    half = sp.simplify(N / K * travelled.subs(m, sp.log(goal)))
    half = written_as(N / K * (sp.sqrt(K) + (K - 1) * sp.log(sp.sqrt(K) + 1)), half)
    slides = ref(
        "slides, one gradient step on the population loss; constant 1/K where the slides print 1/N (there K = N)"
    )
    one, halved = "one step from W = 0", "loss half of its initial ln K"
    before = table(
        slides,
        one,
        *ASSUMED,
        status="exact",
        step_right=(logit_right, right),
        step_wrong=(logit_wrong, wrong),
    )
    here = ref(DERIVED)
    after = table(
        here,
        one,
        *ASSUMED,
        status="exact",
        step_margin=(m, margin),
        step_loss=(L, loss.subs(m, margin)),
    )
    to_the_end = table(
        here,
        *ASSUMED,
        status="exact",
        margin_loss=(L, loss),
        margin_implicit=(K * t / N, travelled),
        margin_flow=(m, closed),
        half_loss_time=(half_time, half, halved),
    )
    return before | after | to_the_end
