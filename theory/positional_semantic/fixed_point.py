"""Fixed points of the state evolution: branches, stability and convergence."""

from collections.abc import Callable
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np

from theory import checked
from theory.call import scope
from theory.call.values import Values
from theory.positional_semantic import errors, free_entropy, state_evolution
from theory.positional_semantic.channel import Averages, State, averages
from theory.positional_semantic.errors import test_error as error_of
from theory.positional_semantic.model.parameters import MINIMUM, Parameters
from theory.positional_semantic.model.symbols import CONJUGATE, ORDER
from theory.positional_semantic.prox import NotConverged
from theory.positional_semantic.state_evolution import (
    OVERLAP,
    STARTS,
    Branch,
    conjugates,
    in_range,
    update,
)

COARSE = 8  # nodes per axis of the first iterations and of the Jacobian
DAMPING = 0.7  # initial weight of the old iterate
SHORTEST = 0.05  # smallest weight of the new one
PICARD = 600  # largest number of damped steps
CLOSE = 1e-3  # relative change at which Newton steps take over
CHORD = 25  # largest number of Newton steps
TIGHT = 1e-8  # residual at which they stop
NEARBY = 0.3  # largest way of continuation, in log q, log V or the overlap
CONVERGED = 5e-5  # nodes at the end of a local well cause jumps of 1e-5
# overlap / sqrt(q) below which a branch has merged with the agnostic one
VANISHED = 2e-3
SMALL = 1e-3  # overlap of the test of stability
# q below this decays to zero: the branch has merged with zero weights
NO_WEIGHTS = 1e-8


@dataclass(frozen=True)
class FixedPoint:
    """A solution of the state evolution.

    Attributes
    ----------
    p : Parameters
        Model, with ``alpha``.
    branch : {'positional', 'semantic', 'agnostic'}
        Branch on which the iteration was started; see `exists`.
    state : State
        Order parameters (6).
    hats : dict
        Conjugates by symbol name.
    averages : Averages
        Averages over the output channel at the fixed point.
    residual : float
        Largest relative change under one undamped step.
    jacobian : ndarray
        Jacobian of the undamped map along the branch in ``log q``, overlap and ``log
        V``; from a coarse quadrature, as corrected by quasi-Newton steps.
    error : dict
        Signed difference of ``q, m, V, theta, train_loss`` from a finer quadrature;
        empty if not requested.
    """

    p: Parameters
    branch: str
    state: State
    hats: dict[str, float]
    averages: Averages = field(repr=False)
    residual: float
    jacobian: np.ndarray = field(repr=False)
    error: dict[str, float] = field(default_factory=dict)

    @property
    def exists(self) -> bool:
        """Whether the branch exists, i.e. its overlap is nonzero."""
        name = OVERLAP.get(self.branch)
        if name is None:
            return True
        overlap = abs(getattr(self.state, name))
        if name == "theta":
            overlap = overlap / self.p.sigma
        return bool(overlap > VANISHED * np.sqrt(self.state.q))

    @property
    def along(self) -> float:
        """Largest real part of the eigenvalues of the undamped map along the branch.
        Damped steps converge if it is below one.
        """
        coarse = _Map(self.p.replace(order=COARSE), self.branch)
        jacobian = coarse.jacobian(coarse.pack(self.state))
        return float(np.linalg.eigvals(jacobian).real.max())

    def values(self) -> Values:
        """All values by symbol name."""
        of_point = self.state._asdict() | self.hats | self.averages.numbers
        return self.p.values() | of_point

    @property
    def train_loss(self) -> float:
        """Training loss per dimension (120)."""
        return errors.equations()["training_loss"].number(self.values())

    @property
    def test_mse_half(self) -> float:
        """Half of ``E|y - f|^2/d``, as in the paper's figures."""
        return error_of(self.p, self.state)

    @property
    def slope(self) -> float:
        """Derivative of the training loss with respect to alpha along the branch."""
        return errors.equations()["training_loss_slope"].number(self.values())

    @property
    def replicon(self) -> float:
        """``alpha V^2 E|dg/dw|^2`` without jumps. Without jumps, message passing is
        stable if it is below one.
        """
        return self.p.complexity * self.averages.replicon

    @property
    def jump(self) -> float:
        """Weight of the jumps of the minimiser (`Averages.jump`). If it is positive,
        the replicon condition is violated.
        """
        return self.p.complexity * self.averages.jump

    def summary(self) -> dict[str, float]:
        """Summary as a dictionary of numbers."""
        order = {name: float(abs(x)) for name, x in self.state._asdict().items()}
        losses = {"train_loss": self.train_loss, "test_mse_half": self.test_mse_half}
        return order | losses


class _Map:
    """Undamped map of the free variables of a branch: log q, log V and the overlap."""

    def __init__(self, p: Parameters, branch: str) -> None:
        self.p = p
        self.branch = branch
        free = ("q", "V", OVERLAP.get(branch))
        self.index = np.flatnonzero([name in free for name in State._fields])
        self.log = np.isin(self.index, (0, 2))
        self.last: Any = None  # averages at the point of the last call

    def pack(self, state: State) -> np.ndarray:
        x = np.array(state)[self.index]
        x[self.log] = np.log(x[self.log])
        return x

    def unpack(self, x: np.ndarray) -> State:
        full = np.zeros(4)
        full[self.index] = x
        full[[0, 2]] = np.exp(full[[0, 2]])
        limit = 0.999 * np.sqrt(full[0]) * self.p.sigma  # theta^2 < q rho
        full[3] = np.clip(full[3], -limit, limit)
        return State(*map(float, full))

    def __call__(self, x: np.ndarray) -> np.ndarray:
        state = self.unpack(x)
        self.last = averages(self.p, state, self.last)
        return self.pack(update(self.p, state, self.last))

    def settle(self, x: np.ndarray) -> np.ndarray | None:
        """Damped steps until the relative changes are small; None if the overlap of the
        branch vanishes.

        Raises
        ------
        NotConverged
            If all weights vanish.
        """
        overlap = ~self.log
        step = 1 - DAMPING
        before = np.inf
        for _ in range(PICARD):
            change = self(x) - x
            size = np.abs(change).max()
            # step too long for the most negative eigenvalue of the map
            if size > before:
                step = max(0.8 * step, SHORTEST)
            before = size
            if x[0] < np.log(NO_WEIGHTS):
                raise NotConverged(
                    f"the weights of the {self.branch} branch vanish (q -> 0), the"
                    " ridge is too strong"
                )
            if (np.abs(x[overlap]) < VANISHED * np.exp(x[0] / 2)).any():
                return None
            relative = np.abs(change)
            relative[overlap] /= np.abs(x[overlap])
            if relative.max() < CLOSE:
                break
            x = x + step * np.clip(change, -1, 1)
        return x

    def point(self, x: np.ndarray, residual: float, jacobian: np.ndarray) -> FixedPoint:
        """Results at ``x``, the point of the last call of the map."""
        p = self.p
        state = self.unpack(x)
        hats = conjugates(p, state, self.last)
        return FixedPoint(p, self.branch, state, hats, self.last, residual, jacobian)

    def jacobian(self, x: np.ndarray) -> np.ndarray:
        """Central differences. The step 1e-3 is large against errors from moving
        quadrature nodes and small against the curvature.
        """
        sizes = 1e-3 * np.where(self.log, 1, np.maximum(np.abs(x), 0.02))
        columns = []
        for step in np.diag(sizes):
            change = self(x + step) - self(x - step)
            columns.append(change / (2 * step.sum()))
        return np.array(columns).T


@scope.pointwise(MINIMUM)
def solve(
    p: Parameters,
    branch: Branch,
    near: FixedPoint | None = None,
    *,
    error: bool = False,
) -> FixedPoint:
    """Fixed point of the state evolution on a branch.

    Damped steps on a coarse quadrature, then quasi-Newton steps on the full one. Newton
    steps alone would also converge to unstable points; they therefore start where
    damped steps have converged, or at a nearby solution, and what they find there
    counts only if damped steps would stay.

    Parameters
    ----------
    p : Parameters
        Model with ``alpha``.
    branch : {'positional', 'semantic', 'agnostic'}
        Which of the invariant subspaces: ``theta = 0``, ``m = 0``, both zero.
    near : FixedPoint, optional
        Nearby solution of the same branch, for continuation.
    error : bool
        Also solve with 1.5 times as many nodes, and report the difference.

    Raises
    ------
    ParameterError
        For an unknown branch, a missing alpha, an extension that the theory does not
        cover, or no convergence.
    """
    with in_range(p):
        return _solve(p, branch, near, error)


def _solve(
    p: Parameters, branch: str, near: FixedPoint | None, error: bool
) -> FixedPoint:
    fine = _Map(p, branch)
    starts = [STARTS[branch]]
    solution = None
    if near is not None and near.exists and near.branch == branch:
        solution = _continued(fine, near)
        starts = [near.state, *starts]
    if solution is None:  # no nearby solution, or too far away
        coarse = _Map(p.replace(order=min(COARSE, p.order)), branch)
        for start in starts:
            settled = coarse.settle(fine.pack(start))
            if settled is not None:
                break
        else:  # the overlap decays to the agnostic solution
            return replace(_solve(p, "agnostic", None, False), branch=branch)
        solution = _chord(fine, settled, coarse.jacobian(settled))
    x, residual, jacobian = solution
    if not residual < CONVERGED:
        raise NotConverged(
            f"did not converge on the {branch} branch (residual {residual:.1e})"
        )
    result = fine.point(x, residual, jacobian)
    if not error:
        return result
    finer = _Map(p.replace(order=p.finer), branch)
    other = finer.point(*_chord(finer, x, jacobian))
    change = np.array(result.state) - np.array(other.state)
    differences = dict(zip(State._fields, change.tolist(), strict=True))
    differences["train_loss"] = result.train_loss - other.train_loss
    return replace(result, error=differences)


def _continued(
    fine: _Map, near: FixedPoint
) -> tuple[np.ndarray, float, np.ndarray] | None:
    """Solution by Newton steps from a nearby one of the same branch; None if it is far
    from there, of another branch, or if damped steps would leave it: Newton steps also
    converge to such ones.
    """
    if near.p.replace(alpha=fine.p.alpha) == fine.p:
        fine.last = near.averages  # where the minimiser jumps, and its wells
    start = fine.pack(near.state)
    try:
        x, residual, jacobian = _chord(fine, start, near.jacobian)
    except NotConverged:
        fine.last = None
        return None
    close = np.abs(x - start).max() < NEARBY
    stable = np.linalg.eigvals(jacobian).real.max() < 1
    settled = residual < CONVERGED and close and stable
    if settled and fine.point(x, residual, jacobian).exists:
        return x, residual, jacobian
    fine.last = None
    return None


def _chord(
    of: Callable[[np.ndarray], np.ndarray], x: np.ndarray, jacobian: np.ndarray
) -> tuple[np.ndarray, float, np.ndarray]:
    """Solve ``of(x) = x`` by Broyden steps from a given Jacobian of the map; returns x,
    the residual, and the Jacobian as these steps have corrected it.
    """
    inverse = np.linalg.inv(np.eye(x.size) - jacobian)
    gap = of(x) - x
    best = x
    least = np.inf
    for _ in range(CHORD):
        size = float(np.abs(gap).max())
        if size < least:
            best = x
            least = size
        if size < TIGHT:
            return x, size, np.eye(x.size) - np.linalg.inv(inverse)
        step = np.clip(inverse @ gap, -0.3, 0.3)
        new = x + step
        gap_new = of(new) - new
        difference = gap_new - gap
        along = step @ inverse
        missing = np.outer(-step - inverse @ difference, along)
        inverse = inverse + missing / (along @ difference)
        x = new
        gap = gap_new
    # The averages of the last call are kept.
    residual = float(np.abs(of(best) - best).max())
    return best, residual, jacobian


@checked
def gradient(point: FixedPoint) -> dict[str, float]:
    """Derivatives of the free entropy with respect to all eight variables at a fixed
    point.
    """
    formulas = free_entropy.gradient(state_evolution.envelope_gradient())
    nu = state_evolution.equations()["nu"].number(point.values())
    values = point.values() | {"nu": nu}
    derivatives = {}
    for x in (*ORDER, *CONJUGATE):
        here = {s: values[s.name] for s in formulas[x].free_symbols}
        derivatives[x.name] = float(formulas[x].subs(here))
    return derivatives


@checked
def transverse(point: FixedPoint) -> float:
    """Growth factor per undamped step of the overlap that vanishes on this branch; of
    the agnostic branch, where both do, the larger one. Above one the branch is
    unstable.

    The overlap (m, or theta/sigma) is set to `SMALL` and one step is taken on the whole
    plane of h.
    """
    coarse = point.p.replace(order=COARSE)
    sizes = {"m": SMALL, "theta": SMALL * point.p.sigma}
    sizes.pop(OVERLAP.get(point.branch, ""), None)
    growth = []
    for name, start in sizes.items():
        state = point.state._replace(**{name: start})
        new = update(coarse, state, averages(coarse, state))
        growth.append(getattr(new, name) / start)
    return max(growth)
