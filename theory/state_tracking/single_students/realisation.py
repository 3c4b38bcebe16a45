"""What single students start from and learn from: initial values (`Start`), and
teachers, M and counts of the training set (`Realisation`); measured in an ensemble, by
seed, or drawn.
"""

import json
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from typing import Any, Self

import numpy as np
import xarray as xr

from theory.call import scope
from theory.call.refusal import Allowed, ParameterError, number
from theory.runtime import memory
from theory.state_tracking.model import task
from theory.state_tracking.model.parameters import Parameters
from theory.state_tracking.model.scope import ARCHITECTURE
from theory.state_tracking.model.task import Words

MEASURED = {  # names in the students' datasets
    "W_Q": "W_Q_start",
    "W_K": "W_K_start",
    "R": "R",
    "S": "S",
    "zeta": "zeta",
    "variance_right": "M_variance_correct",
    "variance_wrong": "M_variance_other",
}


@dataclass(frozen=True)
class Start:
    """Initial values of seeds; arrays over seeds.

    Attributes
    ----------
    W_Q, W_K : ndarray, shape (B, d_h)
        Keys and queries.
    R, S, zeta : ndarray, shape (B,)
        Overlaps, and the conserved mean zeta of the logit sum.
    variance_right, variance_wrong : ndarray, shape (B,)
        Variance of the entries of M at the teachers' ones, and of the other entries.
    """

    W_Q: np.ndarray
    W_K: np.ndarray
    R: np.ndarray
    S: np.ndarray
    zeta: np.ndarray
    variance_right: np.ndarray
    variance_wrong: np.ndarray

    @classmethod
    def measured(cls, runs: xr.Dataset) -> Self:
        """Initial values of the seeds of an ensemble over ``(seed, alpha)``.

        Raises
        ------
        ParameterError
            Naming a variable that is not finite at time 0.
        """
        first = runs.isel(alpha=0).transpose("seed", ...)
        start = {
            k: np.ascontiguousarray(first[name].values) for k, name in MEASURED.items()
        }
        if (
            runs.attrs.get("parameters")
            and json.loads(runs.attrs["parameters"]).get("d_g") == 1
        ):
            start["S"] = np.zeros_like(start["R"])  # a single action has no S
        for field, values in start.items():
            if not np.isfinite(values).all():
                raise ParameterError(
                    f"runs: {MEASURED[field]} at time 0 must be finite"
                )
        return cls(**start)

    @classmethod
    def of_seeds(cls, p: Parameters, seeds: Iterable[int]) -> Self:
        """Initial values of the students that training with these seeds produces."""
        rows = []
        for seed in seeds:
            stream = task.streams(int(seed), p.data_draw)
            pairs = p.d_g * p.N
            teachers = task.draw_permutations(p, stream["task"])
            right = teachers[:, None, :] == np.arange(p.N)[:, None]
            weights = task.draw_weights(p, stream["initialisation"])
            W_Q = weights["W_Q"][:, 0]
            W_K = weights["W_K"][:, 0]
            M = weights["M"]
            R = M[right].sum() / pairs
            S = ((right.sum(0) * M.sum(0)).sum() / pairs - R) / max(p.d_g - 1, 1)
            rows.append(
                (W_Q, W_K, R, S, M.sum() / pairs, M[right].var(), M[~right].var())
            )
        return cls(*map(np.stack, zip(*rows, strict=True)))

    @classmethod
    def drawn(cls, p: Parameters, seeds: int, rng: np.random.Generator) -> Self:
        """Random initial values from the distribution of the students: independent
        uniform weights.

        R, S and zeta, sums of many entries of M, are drawn as jointly Gaussian; the
        variances of entries are set to their mean.

        Raises
        ------
        ParameterError
            If too many starts are requested, or embeddings are learned.
        """
        ARCHITECTURE.require(p)
        seeds = number("seeds", seeds, Allowed(low=1, high=10**6), int)
        memory.require(lambda p: 32.0 * seeds * p.d_h, p, "initial weights")
        var = p.initial_variance
        bound = np.sqrt(3 * var)
        W_Q, W_K = rng.uniform(-bound, bound, (2, seeds, p.d_h))
        mean = rng.normal(scale=np.sqrt(var / p.d_g), size=seeds)
        scatter = np.sqrt(var * (1 - 1 / p.N) / (p.N * p.d_g))
        R = mean / p.N + rng.normal(scale=scatter, size=seeds)
        scatter_of_S = scatter / np.sqrt(max(p.d_g - 1, 1))
        S = mean / p.N + rng.normal(scale=scatter_of_S, size=seeds)
        return cls(W_Q, W_K, R, S, mean, np.full(seeds, var), np.full(seeds, var))


def started(p: Parameters, start: Start) -> None:
    """Check that initial values are those of students of these sizes.

    Raises
    ------
    ParameterError
        If they are none, or have another head dimension.
    """
    if not isinstance(start, Start):
        raise ParameterError("start: must be a Start, measured or drawn")
    if start.W_Q.shape[-1] != p.d_h:
        raise ParameterError(
            f"start: has d_h = {start.W_Q.shape[-1]}, must have d_h = {p.d_h}"
        )


# Realisation (fixed disorder) of students

# students store overlaps, means of thousands of entries, in single precision
SINGLE = 2e-5


def pairs_memory(p: Parameters) -> float:
    """Memory in bytes for the pair counts of one seed and for its groups in a step of
    the theory.
    """
    return 8 * p.N * p.L * p.d_g * (p.L * p.d_g + 8 * p.N)


@dataclass(frozen=True)
class Realisation:
    """Teachers, initial M and counts of pairs of actions of some students; arrays over
    seeds.

    Attributes
    ----------
    teachers : ndarray, shape (B, d_g, N)
        ``teachers[a, s]``: state that action a leads to from state s, per seed.
    M : ndarray, shape (B, d_g, N, N)
        ``M[a, r, s]`` at time 0, from state s to state r.
    share : ndarray, shape (B, N, L, d_g)
        Share of the training rows (sequence, step) with a given state, step and correct
        action.
    pairs : ndarray, shape (B, N, L, L, d_g, d_g), optional
        The same with a second position and the action at that position. If omitted, the
        training set is infinite.
    seeds : tuple of int, optional
        Seeds of the students; none if the realisation is drawn at random.
    data_draw : int, optional
        Number of the training set of each seed (`Parameters.data_draw`).
    sequences : tuple of Sequences, optional
        Training sets of the seeds.
    """

    teachers: np.ndarray
    M: np.ndarray
    share: np.ndarray
    pairs: np.ndarray | None = None
    seeds: tuple[int, ...] | None = None
    data_draw: int | None = None
    sequences: tuple[task.Sequences, ...] | None = None

    @classmethod
    def of_seeds(
        cls,
        p: Parameters,
        seeds: Sequence[int],
        permutations: np.ndarray | None = None,
        words: Words | None = None,
    ) -> Self:
        """Realisation of the students that training with these parameters and seeds
        produces.

        Parameters
        ----------
        p : Parameters
            Parameters of the training.
        seeds : sequence of int
            Seeds.
        permutations : ndarray, shape (d_g, N), optional
            Teachers, if they are not drawn from the seeds.
        words : Words, optional
            Teachers and training set of a file, if these are not drawn either.

        Raises
        ------
        ParameterError
            If the counts do not fit into memory, or teachers or words do not fit the
            parameters.
        """
        if words is not None:
            words.fits(p)
            permutations = words.permutations
        memory.require(pairs_memory, p, "counts of pairs of actions")
        fixed = None
        if permutations is not None:
            fixed = task.check_permutations(permutations, p)
        parts = []
        for seed in map(int, seeds):
            stream = task.streams(seed, p.data_draw)
            drawn = task.draw_permutations(p, stream["task"])
            teachers = drawn if fixed is None else fixed
            data = task.draw_sequences(teachers, p.n_train, p.L, stream["train"])
            data = data if words is None else words.train
            M = task.draw_weights(p, stream["initialisation"])["M"]
            parts.append(cls.counted(teachers, M, data))
        return replace(
            cls.joined(parts), seeds=(*map(int, seeds),), data_draw=p.data_draw
        )

    @classmethod
    def of(cls, p: Parameters, runs: xr.Dataset) -> Self:
        """Realisation of the students of an ensemble over ``(seed, alpha)``.

        Raises
        ------
        ParameterError
            If the runs have no seeds, or their initial values differ from what these
            seeds draw.
        """
        if "seed" not in runs.coords:
            raise ParameterError(
                "runs: coordinate seed is missing; their realisation follows from it"
            )
        configuration = scope.configuration(runs)
        given = configuration.get("given_permutations")
        if "given_words" in configuration:
            raise ParameterError(
                "runs: trained on a file's words; pass given = Realisation.of_seeds(p,"
                " seeds, words=words)"
            )
        counted = cls.of_seeds(p, np.atleast_1d(runs.seed.values).tolist(), given)
        counted.belongs(p, runs)
        return counted

    def belongs(self, p: Parameters, runs: xr.Dataset | None) -> None:
        """Raise an error if parameters or runs belong to other students.

        Raises
        ------
        ParameterError
            Naming the difference: sizes, seeds, training sets, or the overlap R at time
            0, which depends on teachers and weights.
        """
        counted = self.share.shape[1:]
        sizes = (p.N, p.L, p.d_g)
        known: list[tuple[Any, Any, str]] = [
            (counted, sizes, "(N, L, d_g) = {}, must be {} as the parameters say"),
            (
                self.data_draw,
                p.data_draw,
                "data_draw = {}, must be {} as the parameters say",
            ),
        ]
        if runs is not None:
            students = len(self.teachers)
            count = runs.sizes.get("seed", 1)
            known.append((students, count, "{} students, must be {} as the runs"))
        if self.seeds is not None and runs is not None and "seed" in runs.coords:
            words = "of seeds {}, must be of {} as the runs"
            seeds = np.atleast_1d(runs.seed.values).tolist()
            known.append((list(self.seeds), seeds, words))
        for own, wanted, words in known:
            if own not in (None, wanted):
                raise ParameterError("given: " + words.format(own, wanted))
        if runs is None:
            return
        if "R" in runs and "alpha" in runs.dims:
            start = np.atleast_1d(runs.R.isel(alpha=0).values)
            gap = np.abs(self.overlap() - start)
            if not (gap <= SINGLE).all():
                worst = int(np.argmax(np.where(np.isfinite(gap), gap, np.inf)))
                raise ParameterError(
                    f"given: teachers and M overlap by R = {self.overlap()[worst]:.5g},"
                    f" but the runs start at {start[worst]:.5g}: they have other"
                    " teachers or other weights"
                )

    def overlap(self) -> np.ndarray:
        """Overlap R of every student at time 0, shape (B,)."""
        return np.einsum("bsar,bars->b", self.one_hot(), self.M) / self.teachers[0].size

    @classmethod
    def counted(cls, teachers: np.ndarray, M: np.ndarray, data: task.Sequences) -> Self:
        """Realisation of one student from its training set."""
        actions = data.actions
        states = data.states
        (n, L), (d_g, N) = actions.shape, teachers.shape
        # In memory as the machine code reads it: state, place, action there, group.
        pairs = np.empty((N, L, d_g, L, d_g), np.float32).transpose(0, 3, 1, 4, 2)
        for i in range(L):
            group = (states[:, i] * d_g + actions[:, i]) * d_g
            for j in range(L):
                counts = np.bincount(group + actions[:, j], minlength=N * d_g**2)
                pairs[:, i, j] = counts.reshape(N, d_g, d_g) / (n * L)
        share = np.einsum("siiaa->sia", pairs).astype(float)
        return cls(teachers[None], M[None], share[None], pairs[None], sequences=(data,))

    @classmethod
    def drawn(cls, p: Parameters, start: Start, rng: np.random.Generator) -> Self:
        """Random realisation: teachers, entries of M and training sets drawn from their
        distributions.

        M has the overlaps, the sum and the variances of the given start, and is random
        otherwise.

        Raises
        ------
        ParameterError
            If the pair counts do not fit into memory.
        """
        memory.require(pairs_memory, p, "counts of pairs of actions")
        parts = []
        for k in range(len(start.R)):
            teachers = task.draw_permutations(p, rng)
            data = task.draw_sequences(teachers, p.n_train, p.L, rng)
            M = matched(teachers, start, k, rng)
            parts.append(cls.counted(teachers, M, data))
        return cls.joined(parts)

    def batch(self, p: Parameters, step: int) -> tuple[Self, int]:
        """Counts of the batch of a step of the optimiser, and its number of sequences.

        Drawn realisations, which have no seeds, are numbered.
        """
        counts = []
        seeds = self.seeds or range(len(self.teachers))
        for k, (seed, data) in enumerate(zip(seeds, self.sequences or (), strict=True)):
            chosen = task.batch(p, int(seed), step)
            batch = task.Sequences(data.actions[chosen], data.states[chosen])
            counts.append(self.counted(self.teachers[k], self.M[k], batch))
        return self.joined(counts), len(chosen)

    @classmethod
    def joined(cls, members: list[Self]) -> Self:
        """Concatenate several realisations along the seeds."""
        pairs = [m.pairs for m in members if m.pairs is not None]
        sequences: list[task.Sequences] = []
        for member in members:
            sequences += member.sequences or ()
        return cls(
            np.concatenate([m.teachers for m in members]),
            np.concatenate([m.M for m in members]),
            np.concatenate([m.share for m in members]),
            np.concatenate(pairs) if pairs else None,
            sequences=tuple(sequences) or None,
        )

    def __getitem__(self, own: slice) -> Self:
        """Realisation of some of the students."""
        some = {
            k: x[own]
            for k, x in vars(self).items()
            if k != "data_draw" and x is not None
        }
        return replace(self, **some)

    def without_pairs(self) -> Self:
        """Copy with the pair frequencies of an infinite training set."""
        return replace(self, pairs=None)

    def redrawn(self, start: Start, rng: np.random.Generator) -> Self:
        """Copy with other matrices M of the same overlaps, sum and variances."""
        matrices = [matched(x, start, k, rng) for k, x in enumerate(self.teachers)]
        return replace(self, M=np.stack(matrices))

    def one_hot(self) -> np.ndarray:
        """Teachers as matrices of shape ``(B, N, d_g, N)``: current state, action, next
        state.
        """
        states = np.arange(self.M.shape[2])
        return (self.teachers.swapaxes(1, 2)[..., None] == states).astype(float)


def matched(
    teachers: np.ndarray, start: Start, k: int, rng: np.random.Generator
) -> np.ndarray:
    """Random M ``(d_g, N, N)`` with R, S, zeta and the variances of entries of seed k
    of a start.
    """
    d_g, N = teachers.shape
    own = teachers[:, None, :] == np.arange(N)[:, None]
    M = rng.uniform(-1, 1, own.shape)
    right = start.variance_right[k]
    wrong = start.variance_wrong[k]
    for which, variance in ((own, right), (~own, wrong)):
        M[which] *= np.sqrt(variance / M[which].var())
    others = own.sum(0) - own
    along = np.stack([own, others, np.ones(own.shape)]).reshape(3, -1)
    want = np.array([start.R[k], (d_g - 1) * start.S[k], start.zeta[k]]) * d_g * N
    lift = np.linalg.lstsq(along @ along.T, want - along @ M.ravel(), rcond=None)[0]
    return M + (lift @ along).reshape(M.shape)
