"""k-fold composition: parameters; probability that two tasks agree; flow of the
overlaps of kernels with hidden permutations, all hops at once or by curriculum.
"""

from dataclasses import dataclass, replace
from typing import Any

import sympy as sp

from theory import (
    BaseParameters,
    Chapter,
    Equations,
    Flow,
    Preset,
    Scope,
    Stepped,
    array,
    parameter,
    symbol,
    written_as,
)
from theory.associative_memory.symbols import DERIVED, N, ref, t
from theory.call import scope
from theory.dynamics.catalogue import cache
from theory.symbols.fractions import factored

# Parameters of k-fold composition, and which students its theory describes


@dataclass(frozen=True)
class Parameters(Stepped):
    """k hidden permutations of N things, k permutations given in context; kernel
    learner of the hidden ones.

    Raises
    ------
    ParameterError
        For an unknown name or a value out of range.
    """

    # All hops at once; hop by hop.
    PRESETS = {
        "direct": Preset("All hops from the start."),
        "easy_to_hard": Preset("One hop first, then two, and so on.", curriculum=True),
    }
    N: int = parameter(5, "things that are permuted", low=2)
    k: int = parameter(3, "hops", low=1, high=16)
    m_0: float = parameter(
        0.1,
        "overlap of every kernel with its permutation at the start",
        low=1e-100,
        high=0.9,
    )
    curriculum: bool = parameter(
        False, "train one hop, then two, ..., each until its product of overlaps is 0.9"
    )
    eta: float = parameter(0.5, "learning rate of the kernel learner", above=0)
    batch_size: int = parameter(256, "samples per step of the kernel learner", low=1)
    steps: int = parameter(4000, "length of a run", low=1)
    eval_every: int = parameter(10, "steps between measurements", low=1)

    def quantities(self) -> dict[str, Any]:
        """Numbers by symbol name; all overlaps start alike."""
        numbers: dict[str, Any] = {"N": self.N, "k": self.k, "m_0": self.m_0}
        for j in range(1, self.k + 1):
            numbers[f"m_{j}_0"] = self.m_0
        return numbers


@dataclass(frozen=True)
class Pointers(BaseParameters):
    """Extension: attention layers that learn 1, 2, 4, .. hops along a permutation given
    in context.

    Raises
    ------
    ParameterError
        For an unknown name or a value out of range.
    """

    N: int = parameter(11, "things that are permuted", low=3)
    layers: int = parameter(
        3, "attention layers; the deepest answers 2^layers hops", low=1, high=4
    )
    hops: str = parameter(
        "mixture",
        "train on 1, 2, 4, .. hops together, or on the deepest alone",
        choices=("mixture", "last"),
    )
    eta: float = parameter(0.01, "learning rate (Adam)", above=0)
    spread: float = parameter(
        0.05, "standard deviation of the initial scores and read-outs", above=0
    )
    batch_size: int = parameter(128, "permutations per step", low=1)
    steps: int = parameter(400, "length of a run", low=1)
    eval_every: int = parameter(10, "steps between measurements", low=1)


# Each function states whether it describes direct training, the curriculum or the
# mixture.
KERNEL_LEARNERS = Scope(
    "the flow of the overlaps",
    "kernel learners that start with equal overlaps",
    (),
    ("curriculum", "eta", "batch_size", "steps", "eval_every"),
)
applies = scope.applies({"flow": KERNEL_LEARNERS})


# Probability that two sets of hidden permutations give the same answer

agree = array("a_agree", "a", "probability of agreement after j hops")
phi = array(
    "phi_fixed", r"\phi", "fixed points of one permutation against the other, by hop"
)
k = symbol("k", means="hops", integer=True, positive=True)
UNIFORM = "input permutations and starting point uniform"
agreement = symbol(
    "agreement",
    r"\Pr[f_{\pi}=f_{\pi'}]",
    "probability that two tasks agree",
    positive=True,
)
before = symbol(
    "a_before", r"a_{j-1}", "probability of agreement before hop j", positive=True
)
fixed = symbol("phi_j", r"\phi_{j}", "fixed points at hop j", nonnegative=True)


def one_hop() -> sp.Expr:
    """Agreement after a hop as a function of the agreement before it.

    The input permutation maps an agreeing pair to a uniform point, and a differing pair
    to a uniform pair of distinct points. Agreeing points stay in agreement with
    probability phi/N. Distinct points x, x' are mapped to the same point if x' is the
    image of x under pi'^-1 pi; the image differs from x with probability 1 - phi/N, and
    x' is any of N - 1 points.
    """
    return before * fixed / N + (1 - before) * (1 - fixed / N) / (N - 1)


@cache
def agreement_equations() -> Equations:
    """One hop, the product over hops, derangements, and the mean square over random
    maps.
    """
    # One hop shrinks the deviation of the agreement from 1/N by a factor.
    ratio = written_as((fixed - 1) / (N - 1), (one_hop() - 1 / N) / (before - 1 / N))
    chapter = Chapter(ref, status="exact")
    chapter.state("agreement_hop", agree[j], one_hop(), DERIVED, UNIFORM)
    chance = 1 / N
    product = chance + (1 - chance) * sp.Product(ratio.subs(fixed, phi[j]), (j, 1, k))
    wang = "Wang et al. 2025, correlation behind the lower bound; identity derived here"
    chapter.state("agreement", agreement, product, wang, UNIFORM)
    derangements = chance + (1 - chance) * ratio.subs(fixed, 0) ** k
    chapter.state(
        "agreement_derangements",
        agreement,
        derangements,
        DERIVED,
        UNIFORM,
        "no hop alike anywhere",
    )
    # phi of a random permutation: mean 1; mean of phi (phi - 1): ordered pairs of
    # points, each fixed w.p. 1/(N(N-1)).
    falling = N * (N - 1) / (N * (N - 1))
    square = factored(falling + 1 - 2 + 1)  # E phi(phi-1) + E phi - 2 E phi + 1
    typical = factored((square / (N - 1) ** 2) ** k)
    square_means = "mean squared correlation of two tasks"
    corr = symbol("corr2", r"\mathbb{E}\,\mathrm{corr}^{2}", square_means)
    drawn = "hidden permutations independent and uniform"
    chapter.state(
        "correlation_square",
        corr,
        typical,
        DERIVED,
        drawn,
        "corr: product of (phi_j - 1)/(N - 1)",
    )
    return chapter.equations


m = symbol("m", means="overlap, where it is the same for all hops", real=True)
i = symbol("i", means="a hop", integer=True, positive=True)
j = symbol("j", means="a hop", integer=True, positive=True)
m_0 = symbol("m_0", means="overlap at time 0", positive=True)
overlap = array("m_hop", "m", "overlap of a hop's kernel with its permutation")
trace = symbol(
    "trace_hop",
    r"\operatorname{tr}\pi_j^{\top}A_j",
    "kernel of hop j on its permutation",
    real=True,
)
correct = symbol(
    "p_correct", r"p_{\mathrm{correct}}", "probability of the answer", positive=True
)
STAGE = 0.9  # product of overlaps at which a stage of the curriculum ends
SPHERE = "every kernel ascends on the sphere of fixed norm: rate of m times 1 - m^2"
SOFTMAX = "columns of every kernel are softmaxes of trained logits"
KERNELS = "doubly stochastic kernels in place of the hidden permutations"


def on_sphere(slope: sp.Expr) -> sp.Expr:
    """Rate of the overlap m of two unit vectors when one follows the gradient of a
    function of m.

    On the unit sphere the component of the gradient along the vector, m times its
    length, is projected out.
    """
    return sp.factor(slope - slope * m * m)


def by_softmax(slope: sp.Expr) -> sp.Expr:
    """Rate of the overlap when the N columns of a kernel are softmaxes of logits that
    follow the gradient of a function of the overlap.

    A column with probability a on the correct entry has m = (N a - 1)/(N - 1); each
    column contributes 1/N of the slope.
    """
    a, gap = sp.symbols("a gap", positive=True)
    by_a = sp.diff((N * a - 1) / (N - 1), a)
    mass = sp.exp(gap) / (sp.exp(gap) + N - 1)
    of_mass = by_a * slope * (1 - 1 / N) / N  # objective 1/N + (1 - 1/N) prod m
    right = of_mass * a * (1 - a)  # softmax derivative with respect to its own logit
    wrong = -right / (N - 1)  # the opposite, shared by the column's N - 1 other logits
    of_gap = factored(sp.diff(mass, gap) / (mass * (1 - mass)))
    rate = by_a * of_gap * a * (1 - a) * (right - wrong)
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
    initial = {}
    for hop in range(1, hops + 1):
        overlap = symbol(f"m_{hop}", means=f"overlap of hop {hop}", real=True)
        initial[overlap] = symbol(f"m_{hop}_0", rf"m_{{{hop}}}(0)", positive=True)
    product = sp.Mul(*initial)
    rate, why, name, clock = LEARNERS[kernels]
    return Flow(
        name=f"{name}_{hops}",
        time=t,
        rhs={q: rate(sp.diff(product, q)).subs(m, q) for q in initial},
        initial=initial,
        reference=ref(DERIVED),
        status="exact",
        assumptions=(KERNELS, why, "objective: probability of the right answer"),
        observables={"product": product},
        scope=KERNEL_LEARNERS,
        clock=clock,
    )


@cache
def mixture(hops: int) -> Flow:
    """Flow of the overlaps for an even mixture of tasks with 1, 2, .. k hops, kernels
    on the sphere.

    The objective is the sum over l of the product of the first l overlaps, in the time
    unit of `flow` for each task.
    """
    of_all = flow(hops)
    names = list(of_all.state)
    total = sum((sp.Mul(*names[:number]) for number in range(1, hops + 1)), sp.S.Zero)
    return replace(
        of_all,
        name=f"k_hop_mixture_{hops}",
        rhs={q: on_sphere(sp.diff(total, q)).subs(m, q) for q in names},
        assumptions=(KERNELS, SPHERE, "objective: sum over 1 .. k hops"),
    )


@cache
def equations() -> Equations:
    """Expected accuracy of kernels, flow of equal overlaps, its training time, and the
    conserved ratios.
    """
    chapter = Chapter(ref(DERIVED), status="exact")
    overlap_of = (trace - 1) / (N - 1)
    at_ends = "0 for a constant kernel, 1 for the permutation"
    chapter.state("hop_overlap", overlap[j], overlap_of, at_ends)
    accuracy = 1 / N + (1 - 1 / N) * sp.Product(overlap[j], (j, 1, k))
    chapter.state(
        "hop_accuracy", correct, accuracy, KERNELS, "input permutations uniform"
    )
    alike = "all overlaps equal"
    slope = m ** (k - 1)
    rate = sp.Derivative(m, t)
    chapter.state("equal_overlaps", rate, on_sphere(slope), SPHERE, alike)
    chapter.state("equal_overlaps_softmax", rate, by_softmax(slope), SOFTMAX, alike)
    # Direct training from equal overlaps: separation of variables, with 1 - m^2 = 1 for
    # small m_0.
    power = symbol("n_power", positive=True)
    v = sp.Symbol("v", positive=True)
    direct = sp.integrate(v ** (-power - 1), (v, m_0, sp.oo)).subs(power, k - 2)
    direct = written_as(m_0 ** (2 - k) / (k - 2), direct)
    direct_time = symbol("T_direct", r"T_{\mathrm{direct}}", "time of all hops at once")
    chapter.state(
        "direct_time",
        direct_time,
        direct,
        "leading order",
        "k >= 3",
        "m_0 -> 0",
        SPHERE,
    )
    (invariant,) = flow(2).conserved()
    first, second = flow(2).state
    written_as((1 - first**2) / (1 - second**2), sp.exp(invariant.rhs))
    ratio = (1 - overlap[i] ** 2) / (1 - overlap[j] ** 2)
    conserved = symbol("C_ij", means="invariant of hops i and j", positive=True)
    pairs = "conserved for every pair of hops in training"
    chapter.state("hop_invariant", conserved, ratio, SPHERE, pairs)
    return chapter.equations
