"""Learning hidden permutations by kernels: flow of the overlaps, for all hops at once or by
curriculum.
"""

from dataclasses import replace

import sympy as sp

from theory import Equation, Flow, array, symbol, table, written_as
from theory.associative_memory.k_hop.agreement import k
from theory.associative_memory.k_hop.parameters import KERNEL_LEARNERS
from theory.associative_memory.symbols import DERIVED, N, ref, t
from theory.catalogue import cache

m = symbol("m", means="overlap, where it is the same for all hops", real=True)
i, j = (symbol(x, means="a hop", integer=True, positive=True) for x in "ij")
m_0 = symbol("m_0", means="overlap at time 0", positive=True)
overlap = array("m_hop", "m", "overlap of a hop's kernel with its permutation")
trace = symbol(
    "trace_hop",
    r"\operatorname{tr}\pi_j^{\top}A_j",
    "kernel of hop j on its permutation",
    real=True,
)
correct = symbol("p_correct", r"p_{\mathrm{correct}}", "probability of the answer", positive=True)
STAGE = 0.9  # product of overlaps at which a stage of the curriculum ends
SPHERE = "every kernel ascends on the sphere of fixed norm: rate of m times 1 - m^2"
SOFTMAX = "columns of every kernel are softmaxes of trained logits"
KERNELS = "doubly stochastic kernels in place of the hidden permutations"


def on_sphere(slope: sp.Expr) -> sp.Expr:
    """Rate of the overlap m of two unit vectors when one follows the gradient of a function of m.

    On the unit sphere the component of the gradient along the vector, m times its length, is
    projected out.
    """
    return sp.factor(slope - slope * m * m)


def by_softmax(slope: sp.Expr) -> sp.Expr:
    """Rate of the overlap when the N columns of a kernel are softmaxes of logits that follow the
    gradient of a function of the overlap.

    A column with probability a on the correct entry has m = (N a - 1)/(N - 1); each column
    contributes 1/N of the slope.
    """
    a, gap = sp.symbols("a gap", positive=True)
    mass = sp.exp(gap) / (sp.exp(gap) + N - 1)
    of_mass = (
        sp.diff((N * a - 1) / (N - 1), a) * slope * (1 - 1 / N) / N
    )  # objective 1/N + (1 - 1/N) prod m
    right = of_mass * a * (1 - a)  # softmax derivative with respect to its own logit
    wrong = -right / (N - 1)  # the opposite, shared by the column's N - 1 other logits
    of_gap = sp.simplify(sp.diff(mass, gap) / (mass * (1 - mass))) * a * (1 - a) * (right - wrong)
    rate = sp.diff((N * a - 1) / (N - 1), a) * of_gap
    return sp.factor(rate.subs(a, (1 + (N - 1) * m) / N))


LEARNERS = {
    "sphere": (on_sphere, SPHERE, "k_hop", "eta * (1 - 1/N) * steps"),
    "softmax": (by_softmax, SOFTMAX, "k_hop_softmax", "eta * steps"),
}


@cache
def flow(hops: int, kernels: str = "sphere") -> Flow:
    """Flow of the overlaps m_1 .. m_k on the k-hop objective.

    Parameters
    ----------
    hops : int
        Number of hops k.
    kernels : {'sphere', 'softmax'}
        ``sphere``: kernels of fixed norm, time in units of 1/(learning rate (1 - 1/N)).
        ``softmax``: softmax columns as in the students, time ``t = eta * steps``.
    """
    names = [symbol(f"m_{q}", means=f"overlap of hop {q}", real=True) for q in range(1, hops + 1)]
    starts = [symbol(f"m_{q}_0", rf"m_{{{q}}}(0)", positive=True) for q in range(1, hops + 1)]
    product = sp.Mul(*names)
    rate, why, name, clock = LEARNERS[kernels]
    rates = {q: rate(sp.diff(product, q)).subs(m, q) for q in names}
    return Flow(
        name=f"{name}_{hops}",
        time=t,
        rhs=rates,
        initial=dict(zip(names, starts, strict=True)),
        reference=ref(DERIVED),
        status="exact",
        assumptions=(KERNELS, why, "objective: probability of the right answer"),
        observables={"product": product},
        scope=KERNEL_LEARNERS,
        clock=clock,
    )


@cache
def mixture(hops: int) -> Flow:
    """Flow of the overlaps for an even mixture of tasks with 1, 2, .. k hops, kernels on the
    sphere.

    The objective is the sum over l of the product of the first l overlaps, in the time unit of
    `flow` for each task.
    """
    whole = flow(hops)
    names = list(whole.state)
    total = sum((sp.Mul(*names[:number]) for number in range(1, hops + 1)), sp.S.Zero)
    return replace(
        whole,
        name=f"k_hop_mixture_{hops}",
        rhs={q: on_sphere(sp.diff(total, q)).subs(m, q) for q in names},
        assumptions=(KERNELS, SPHERE, "objective: sum over 1 .. k hops"),
    )


@cache
def equations() -> dict[str, Equation]:
    """Expected accuracy of kernels, flow of equal overlaps, its training time, and the conserved
    ratios.
    """
    overlap_of = (trace - 1) / (N - 1)
    accuracy = 1 / N + (1 - 1 / N) * sp.Product(overlap[j], (j, 1, k))
    equal = on_sphere(m ** (k - 1))
    # Direct training from equal overlaps: separation of variables, with 1 - m^2 = 1 for small m_0.
    power = symbol("n_power", positive=True)
    v = sp.Symbol("v", positive=True)
    direct = sp.integrate(v ** (-power - 1), (v, m_0, sp.oo)).subs(power, k - 2)
    direct = written_as(m_0 ** (2 - k) / (k - 2), direct)
    (kept,), (first, second) = flow(2).conserved(), flow(2).state
    written_as((1 - first**2) / (1 - second**2), sp.exp(kept.rhs))
    at_ends, rate_of_m = "0 for a constant kernel, 1 for the permutation", sp.Derivative(m, t)
    conserved = symbol("C_ij", means="invariant of hops i and j", positive=True)
    direct_time = symbol("T_direct", r"T_{\mathrm{direct}}", "time of all hops at once")
    ratio = (1 - overlap[i] ** 2) / (1 - overlap[j] ** 2)
    pairs = "conserved for every pair of hops in training"
    alike = "all overlaps equal"
    return table(
        ref(DERIVED),
        status="exact",
        hop_overlap=(overlap[j], overlap_of, at_ends),
        hop_accuracy=(correct, accuracy, KERNELS, "input permutations uniform"),
        equal_overlaps=(rate_of_m, equal, SPHERE, alike),
        equal_overlaps_softmax=(rate_of_m, by_softmax(m ** (k - 1)), SOFTMAX, alike),
        direct_time=(direct_time, direct, "leading order", "k >= 3", "m_0 -> 0", SPHERE),
        hop_invariant=(conserved, ratio, SPHERE, pairs),
    )
