"""Superposition: interference and capacity of Hebbian memories with random embeddings
(slides; Cabannes et al. 2024).
"""

from dataclasses import dataclass
from functools import cache
from typing import Annotated, Any

import numpy as np
import scipy.special
import sympy as sp
import xarray as xr

from theory import (
    BaseParameters,
    Chapter,
    Equation,
    Equations,
    Limit,
    ParameterError,
    Preset,
    Scope,
    array,
    function,
    parameter,
    symbol,
    written_as,
)
from theory.associative_memory.symbols import DERIVED, N, T, d, k, ref, x
from theory.call import scope
from theory.call.arguments import Nodes, checked
from theory.call.refusal import ANYTHING, Allowed
from theory.call.sweep import by_dimension
from theory.dynamics.catalogue import catalogue
from theory.equations.charts import gridded
from theory.symbols.fractions import factored
from theory.symbols.special import gauss_legendre, gaussian_accuracy

__all__ = [
    "Parameters",
    "applies",
    "equations",
    "flows",
    "gaussian",
    "gaussian_recall",
    "marginal_cdf",
    "sections",
    "sphere",
    "sphere_recall",
]


# Parameters of superposed memories, many associations in one matrix with random
# embeddings


@dataclass(frozen=True)
class Parameters(BaseParameters):
    """Keys ``x`` in 1..N, outputs ``f(x) = x mod M``, unit vectors uniform on the
    sphere.

    Raises
    ------
    ParameterError
        For an unknown name or a value out of range.
    """

    # One output per key; eight outputs.
    PRESETS = {
        "injective": Preset("Every key has an output of its own."),
        "few_classes": Preset("All keys share eight outputs.", M=8),
    }
    d: int = parameter(64, "embedding dimension", low=4)
    N: int = parameter(256, "stored keys", low=2)
    M: int | None = parameter(None, "outputs; none is one per key", low=2)
    draws: int = parameter(100, "independent sets of embeddings", low=2)

    def __post_init__(self) -> None:
        """Check single fields, then that every output has a key."""
        super().__post_init__()
        if self.M is not None and self.M > self.N:
            raise ParameterError(f"M = {self.M}: must be <= N = {self.N}")

    @property
    def outputs(self) -> int:
        """Number of outputs."""
        if self.M is None:
            return self.N
        return self.M

    def quantities(self) -> dict[str, Any]:
        """Numbers by symbol name."""
        return {"d": self.d, "N": self.N, "M": self.outputs}


INJECTIVE = Limit(
    "M",
    "none or N (one output per key)",
    lambda p, runs: p.outputs == p.N,
    reads=("N",),
)
RECALL = Scope(
    "recall accuracy", "memories with one output per key", (INJECTIVE,), ("draws",)
)
applies = scope.applies({"recall": RECALL})


# Interference between superposed memories

q_x = symbol("q_x", means="weight of the key that is asked for", positive=True)
Q = symbol("Q_all", "Q", "sum of squared weights over all keys", positive=True)
Q_k = symbol("Q_k", means="sum of squared weights over keys of output k", positive=True)
Q_y = symbol(
    "Q_y", means="sum of squared weights over keys of the right output", positive=True
)
M = symbol("M", means="outputs", integer=True, positive=True)
score = array("s", means="scores of the outputs, by key")
output_overlap = array("uu", r"u^{\top}u", "overlaps of output embeddings")
key_overlap = array("ee", r"e^{\top}e", "overlaps of key embeddings")
q = array("q", means="weights of the keys")
answer = array("f", means="output of a key")
stored = symbol("x_stored", r"x'", "a stored key", integer=True, positive=True)
RANDOM = "unit embeddings independent and uniform on the sphere"
mean_right = symbol("mean_right", r"\mathbb{E} s_y", "mean of the right score")
mean_wrong = symbol("mean_wrong", r"\mathbb{E} s_k", "mean of a wrong score")
var_right = symbol(
    "var_right", r"\operatorname{Var} s_y", "variance of the right score", positive=True
)
var_wrong = symbol(
    "var_wrong", r"\operatorname{Var} s_k", "variance of a wrong score", positive=True
)


def squared_cosine() -> sp.Expr:
    """Mean squared inner product of two independent unit vectors, from the density (1 -
    s^2)^((d-3)/2).
    """
    half = sp.Symbol("half", positive=True)  # (d - 1)/2
    # With s^2 = v the integrals over (0, 1) are Beta functions B(1/2, half), B(3/2,
    # half).
    under = sp.beta(sp.Rational(1, 2), half).rewrite(sp.gamma)
    over = sp.beta(sp.Rational(3, 2), half).rewrite(sp.gamma)
    return factored(sp.gammasimp(over / under).subs(half, (d - 1) / 2))


def variance(kinds: list[tuple[sp.Expr, bool, bool]]) -> sp.Expr:
    """Sum of the variances of uncorrelated terms.

    Each kind is (sum of q^2 over its keys, whether the outputs are different vectors,
    whether the keys are different vectors). A term is a product of inner products: of
    different vectors with mean 0 and mean square 1/d, of a vector with itself equal to
    1. Terms of different keys are uncorrelated, since reversing the embedding of one
    key changes the sign of its term only.
    """
    square = squared_cosine()
    variance = sp.S.Zero
    for total, outputs_differ, keys_differ in kinds:
        if outputs_differ or keys_differ:
            variance += total * square ** (outputs_differ + keys_differ)
    return sp.expand(variance)


@cache
def moments_equations() -> dict[str, Equation]:
    """Scores, their moments for any weights, for one output per key,
    and for M outputs.
    """
    # Correct output y = f(x): its own key (a constant), keys with the same output, all
    # others.
    by_same_output = (Q_y - q_x**2, False, True)
    right = variance([(q_x**2, False, False), by_same_output, (Q - Q_y, True, True)])
    # Wrong output k: the key itself, keys with output k, all others.
    by_others = (Q - Q_k - q_x**2, True, True)
    wrong = variance([(q_x**2, True, False), (Q_k, False, True), by_others])
    hebbian = Chapter(ref, status="exact")
    overlaps = output_overlap[k, answer[stored]] * key_overlap[x, stored]
    summed = sp.Sum(q[stored] * overlaps, (stored, 1, N))
    slides = "slides, weighted sum of outer products with random embeddings"
    hebbian.state("hebbian_score", score[k, x], summed, slides)
    moments = Chapter(ref(DERIVED), RANDOM, status="exact")
    state = moments.state
    means = "mean squared overlap of two embeddings"
    mean_square = symbol("mean_square", r"\mathbb{E}\langle u,u'\rangle^{2}", means)
    state("squared_cosine", mean_square, squared_cosine())
    state("score_mean_right", mean_right, q_x)
    state("score_mean_wrong", mean_wrong, sp.S.Zero)
    state("score_variance_right", var_right, right, "any map and weights")
    state("score_variance_wrong", var_wrong, wrong, "any map and weights")
    one = "one output per key, q = 1"
    injective = {q_x: 1, Q_y: 1, Q_k: 1, Q: N}
    form = written_as((N - 1) / d**2, right.subs(injective))
    state("interference_right", var_right, form, one)
    form = written_as((N - 2) / d**2 + 2 / d, wrong.subs(injective))
    leak = "2/d: the key's own output and the output's own key leak"
    state("interference_wrong", var_wrong, form, one, leak)
    several = "M outputs with N/M keys each, q = 1"
    balanced = {q_x: 1, Q_y: N / M, Q_k: N / M, Q: N}
    form = sp.expand(right.subs(balanced))
    state("classes_right", var_right, form, several)
    form = sp.expand(wrong.subs(balanced))
    state("classes_wrong", var_wrong, form, several)
    return hebbian.equations | moments.equations


# Recall accuracy of a Hebbian memory, one output per key

accuracy = symbol(
    "accuracy_recall", r"\mathrm{acc}", "probability of recall", positive=True
)
z = symbol("z_normal", "z", "standard Gaussian", real=True)
c_leak = symbol(
    "c_leak", "c", "overlap of the right output with a wrong one", real=True
)
sigma_0 = symbol("sigma_0", means="deviation of the right score", positive=True)
sigma_1 = symbol("sigma_1", means="deviation of a wrong score", positive=True)
rho2 = symbol("rho2", r"\rho^{2}", "squared length of what is recalled", positive=True)
share = symbol("share_capacity", r"\nu", "N / d^2", positive=True)
INDEPENDENT = "wrong scores independent of one another"


def length_of_rest() -> sp.Expr:
    """Mean squared length of the recalled vector without the component along the
    correct output.

    The component along u_y is the correct score, 1 + sigma_0 z. Each of the N - 1 other
    pairs adds its output, weighted by the overlap of the keys (mean square 1/d); a
    fraction 1 - 1/d of it is perpendicular to u_y.
    """
    square = squared_cosine()
    return (1 + sigma_0 * z) ** 2 + (N - 1) * square * (1 - square)


@cache
def recall_equations() -> dict[str, Equation]:
    """Both accuracies, and the capacity law."""
    recall = Chapter(ref(DERIVED), RANDOM, status="exact")
    moments = moments_equations()
    of_right = moments["interference_right"].rhs
    of_wrong = moments["interference_wrong"].rhs
    recall.state("sigma_right", sigma_0, sp.sqrt(of_right))
    recall.state("sigma_wrong", sigma_1, sp.sqrt(of_wrong))
    phi = sp.exp(-(z**2) / 2) / sp.sqrt(2 * sp.pi)
    everywhere = (z, -sp.oo, sp.oo)
    below = (1 + sp.erf((1 + sigma_0 * z) / (sigma_1 * sp.sqrt(2)))) / 2
    gauss = sp.Integral(phi * below ** (N - 1), everywhere)
    recall.state(
        "recall_gaussian", accuracy, gauss, "closure", "Gaussian scores", INDEPENDENT
    )
    averaged = "mean over embeddings, right score given"
    recall.state("recalled_length", rho2, length_of_rest(), averaged)
    area = sp.gamma(d / 2) / (sp.sqrt(sp.pi) * sp.gamma((d - 1) / 2))
    density = area * (1 - c_leak**2) ** ((d - 3) / 2)
    marginal = function("F_d", "distribution function of a coordinate on the sphere")
    below_right = marginal((1 + sigma_0 * z - c_leak) / sp.sqrt(rho2))
    wrong = sp.Integral(density * below_right, (c_leak, -1, 1))
    sphere = sp.Integral(phi * wrong ** (N - 1), everywhere)
    recall.state(
        "recall_sphere",
        accuracy,
        sphere,
        "closure",
        INDEPENDENT,
        "squared length of the recalled vector at its mean; right score Gaussian",
        "F_d: distribution function of one coordinate of a uniform unit vector",
    )
    capacity = Chapter(ref, status="leading order")
    half = "half of the keys recalled"
    # With few outputs the variance is dominated by the term of order 1/d.
    by_d = sp.expand(moments["classes_wrong"].rhs * d).coeff(d, 0)
    few = by_d.coeff(N, 1) * N / d
    stored_keys = sp.solve(sp.Eq(2 * sp.log(M) * few, 1), N)[0]
    small = "M outputs, M well below d: keys of one output interfere at order 1/d"
    capacity.state("capacity_classes", N, stored_keys, DERIVED, small, half)
    # Half of the keys are recalled when the largest of N wrong scores, about sigma_1
    # sqrt(2 ln N), equals the correct score 1. At fixed N/d^2 (up to logarithms) the
    # leak 2/d is negligible against N/d^2.
    scaled = of_wrong.subs(N, share * d**2)
    # d^2: 2 sigma_1^2 ln N = 1
    needed = 2 * sp.limit(scaled, d, sp.oo) / share * sp.log(N) * N
    capacity.state(
        "capacity",
        d**2,
        factored(needed),
        "slides: capacity of the order of the parameters; law derived here",
        half,
        "N, d -> infinity: ln ln N neglected",
    )
    return recall.equations | capacity.equations


# Numerical recall accuracies

Keys = Annotated[float, Allowed(low=2)]  # not only integers
Dimension = Annotated[float, Allowed(low=3)]
FAR = 9.0  # cutoff of the leak in standard deviations


@checked
def gaussian_recall(N: Keys, d: Dimension) -> float:
    """Recall accuracy with Gaussian scores (`recall_gaussian`)."""
    sizes = {"N": N, "d": d}
    s_0 = recall_equations()["sigma_right"].number(sizes)
    s_1 = recall_equations()["sigma_wrong"].number(sizes)
    return float(gaussian_accuracy(1.0, s_0, s_1, N))  # type: ignore[arg-type]  # a float


@by_dimension()
@checked
def marginal_cdf(
    x: Annotated[Any, ANYTHING], d: Annotated[float, Allowed(low=2)]
) -> np.ndarray:
    """Cumulative distribution function of one coordinate of a uniform unit vector in d
    dimensions.
    """
    return _above(-np.asarray(x), d)


def _above(x: np.ndarray, d: float) -> np.ndarray:
    """Probability that the coordinate exceeds ``x``, accurate if it is small and if d
    is large.
    """
    tail = 0.5 * scipy.special.betaincc(0.5, (d - 1) / 2, np.clip(x, -1, 1) ** 2)
    return np.where(x > 0, tail, 1 - tail)


@checked
def sphere_recall(N: Keys, d: Dimension, nodes: Nodes = 200) -> float:
    """Recall accuracy with sphere tails (`recall_sphere`).

    Parameters
    ----------
    N, d : float
        Keys and dimension.
    nodes : int
        Gauss points per integral. With 200 the error is below 1e-6 up to d = 10^6 and
        below 1e-5 at any d.
    """
    equations = recall_equations()
    s_0 = equations["sigma_right"].number({"N": N, "d": d})
    point, weight = gauss_legendre(nodes, -1)
    normal_z = 8 * point  # cut off at 8 standard deviations
    normal_w = 8 * weight * np.exp(-(normal_z**2) / 2) / np.sqrt(2 * np.pi)
    # c = sin(angle): density (1 - c^2)^((d-3)/2) dc = cos^(d-2) d(angle).
    angle = min(np.pi / 2, FAR / np.sqrt(d - 2)) * point
    leak = np.sin(angle)
    leak_w = weight * np.exp((d - 2) * np.log1p(-(leak**2)) / 2)
    leak_w /= leak_w.sum()
    values = {"N": N, "d": d, "sigma_0": s_0, "z_normal": normal_z}
    rho = np.sqrt(equations["recalled_length"].evaluate(values))
    right = (1 + s_0 * normal_z)[:, None]
    above = _above((right - leak) / rho[:, None], d) @ leak_w
    with np.errstate(divide="ignore"):  # a wrong score that is certainly larger
        all_below = np.exp((N - 1) * np.log1p(-np.clip(above, 0, 1)))
    return float(normal_w @ all_below)


# Keys with Zipf frequencies

b = symbol(
    "b_zipf", "b", "frequencies fall as rank to the power -(1 + b)", positive=True
)
P = symbol("P_stored", "P", "stored keys, the most frequent ones", positive=True)
rank = symbol("x_rank", "x", "rank of a key", positive=True)
error = symbol(
    "zipf_error",
    r"\mathcal{E}",
    "probability of a key that is not recalled",
    positive=True,
)
SCALING = ref("Cabannes et al. 2024, exponents by abstract; derivation here")
LAW = "frequencies x^-(1 + b) / zeta(1 + b)"


def unseen_mass() -> sp.Expr:
    """Probability mass of the keys that T samples miss: mean of (1 - p)^T, approximated
    by e^(-T p), with the sum replaced by an integral.
    """
    v = sp.Symbol("v", positive=True)
    c = sp.Symbol("c", positive=True)
    a = 1 + b
    # v = T p(x): x = (T/zeta)^(1/a) v^(-1/a), so x^-a dx / zeta = (1/a) T^(1/a - 1)
    # zeta^(-1/a) v^(-1/a) dv.
    integral = sp.integrate(v ** (c - 1) * sp.exp(-v), (v, 0, sp.oo))
    return integral.subs(c, b / a) * T ** (-b / a) * sp.zeta(a) ** (-1 / a) / a


@cache
def zipf_equations() -> Equations:
    """Lost mass, unseen mass, and the exponent in d."""
    # Keys beyond rank P, with the sum replaced by an integral.
    lost = factored(sp.integrate(rank ** (-b - 1), (rank, P, sp.oo))) / sp.zeta(1 + b)
    exponent = factored(sp.diff(sp.log(lost), P) * P)
    slope = symbol(
        "zipf_slope", r"d\ln\mathcal{E}/d\ln d", "exponent of the error in d"
    )
    chapter = Chapter(SCALING, LAW, status="leading order")
    chapter.state(
        "zipf_lost", error, lost, "the P most frequent keys are stored", "P large"
    )
    shared = "P proportional to d: few outputs, equal weights on the stored keys"
    chapter.state("zipf_exponent", slope, exponent, shared)
    chapter.state("zipf_unseen", error, unseen_mass(), "T samples, T large")
    return chapter.equations


@scope.pointwise(RECALL)
def gaussian(p: Parameters) -> float:
    """Recall accuracy with Gaussian scores (`recall_gaussian`), one output per key."""
    return gaussian_recall(p.N, p.d)


@scope.pointwise(RECALL)
def sphere(p: Parameters) -> float:
    """Recall accuracy with sphere tails (`recall_sphere`), one output per key."""
    return sphere_recall(p.N, p.d)


# No dynamics: the memory matrix is given.
flows, sections, equations = catalogue(
    {
        "Superposition: interference": [moments_equations],
        "Superposition: recall and capacity": [recall_equations],
        "Superposition: Zipf frequencies": [zipf_equations],
    }
)


# Tables for the explorer

PLACES = {"d": [4 * 2**k for k in range(8)], "N": [2**k for k in range(1, 15)]}
NOTE = "integrals computed beforehand at the places of the sliders, one output per key"


@scope.guard(RECALL)
def charts(p: Parameters) -> dict[str, xr.Dataset]:
    """Both accuracies over (d, N), one output per key."""
    words = "probability of recall"
    kinds = {"recall_gaussian": (gaussian, words), "recall_sphere": (sphere, words)}
    equation = recall_equations()["recall_sphere"]
    return {"recall": gridded(p, PLACES, kinds, equation, NOTE)}
