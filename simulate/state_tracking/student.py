"""The student as a plain torch module (App. B), its GLU and full-embedding realisations
(App. C), and the teacher (Sec. 3.3).
"""

import numpy as np
import torch
from torch import Tensor, nn

from theory.call.refusal import ParameterError
from theory.state_tracking import Parameters
from theory.state_tracking.model.task import teacher_matrices


def rotate(x: Tensor, angle: Tensor) -> Tensor:
    """Rotate the pairs (2n-1, 2n) of the last axis by ``angle[..., n]``."""
    odd, even = x[..., 0::2], x[..., 1::2]
    turned = (
        odd * angle.cos() - even * angle.sin(),
        odd * angle.sin() + even * angle.cos(),
    )
    return torch.stack(turned, dim=-1).flatten(-2)


class Student(nn.Module):
    """One-block transformer: rotary attention over the actions, one-hot values, logic
    matrices.

    Parameters
    ----------
    p : Parameters
        Sizes and frequencies.
    weights : dict of ndarray
        ``W_Q``, ``W_K`` of shape ``(d_h, d_model)``, ``M`` of shape ``(d_g, N, N)``
        with ``M[a, r, s]`` the entry from state s to state r, and optionally
        ``embedding`` of shape ``(d_g + N, d_model)``; without it every token is
        embedded as 1.
    dtype : torch.dtype
        Precision of the weights.
    learn_embedding : bool
        Whether a given embedding is trained.
    """

    W_Q: nn.Parameter
    W_K: nn.Parameter
    M: nn.Parameter
    embedding: Tensor
    omega: Tensor

    def __init__(
        self,
        p: Parameters,
        weights: dict[str, np.ndarray],
        dtype: torch.dtype = torch.float32,
        learn_embedding: bool = False,
    ) -> None:
        super().__init__()
        self.p = p
        for name in ("W_Q", "W_K", "M"):
            self.register_parameter(
                name, nn.Parameter(torch.tensor(weights[name], dtype=dtype))
            )
        fixed = torch.ones(p.d_g + p.N, 1, dtype=dtype)
        embedding = (
            torch.tensor(weights["embedding"], dtype=dtype)
            if "embedding" in weights
            else fixed
        )
        if learn_embedding:
            self.embedding = nn.Parameter(embedding)
        else:
            self.register_buffer("embedding", embedding)
        self.register_buffer("omega", torch.tensor(p.frequencies, dtype=torch.float64))

    def attention(self, actions: Tensor, current: Tensor, step: int = 0) -> Tensor:
        """Attention of prediction steps on the actions (Eq. 4).

        Parameters
        ----------
        actions : Tensor, shape (n, L)
            Action tokens.
        current : Tensor, shape (n, T)
            Current states at steps ``step .. step + T - 1``.

        Returns
        -------
        Tensor, shape (n, T, L)
            Rows sum to one. Every action precedes every state, so no further mask
            applies.
        """
        L, T = self.p.L, current.shape[1]
        i = torch.arange(L + 1 + step, L + 1 + step + T, device=actions.device)
        j = torch.arange(1, L + 1, device=actions.device)
        q = self.embedding[current + self.p.d_g] @ self.W_Q.T
        k = self.embedding[actions] @ self.W_K.T
        q, k = (
            rotate(x, (positions[:, None] * self.omega).to(x.dtype))
            for x, positions in ((q, i), (k, j))
        )
        return torch.softmax(q @ k.transpose(1, 2) / self.p.d_h**0.5, dim=-1)

    def retrieve(self, attention: Tensor, actions: Tensor) -> Tensor:
        """Attention output o (weight of every action), shape ``(n, T, d_g)``: attention
        on one-hot values.
        """
        values = nn.functional.one_hot(actions, self.p.d_g).to(attention.dtype)
        return attention @ values

    def logic(self, o: Tensor, current: Tensor) -> Tensor:
        """Logits ``(n, T, N)``: the mixture of matrices applied to the current state
        (Eq. 6).
        """
        mixed = torch.einsum("nta,ars->ntrs", o, self.M)
        state = nn.functional.one_hot(current, self.p.N).to(o.dtype)
        return (mixed @ state[..., None])[..., 0]

    def forward(self, actions: Tensor, states: Tensor, step: int = 0) -> Tensor:
        """Logits of the next states under teacher forcing.

        Parameters
        ----------
        actions : Tensor, shape (n, L)
            Actions 0..d_g-1.
        states : Tensor, shape (n, T)
            Current states s_step .. s_{step+T-1}, 0..N-1.

        Returns
        -------
        Tensor, shape (n, T, N)
        """
        return self.logic(
            self.retrieve(self.attention(actions, states, step), actions), states
        )

    def loss(self, actions: Tensor, states: Tensor) -> Tensor:
        """Mean cross-entropy (Eq. 7) on full state sequences ``(n, L+1)``."""
        logits = self(actions, states[:, :-1])
        return nn.functional.cross_entropy(
            logits.flatten(0, 1), states[:, 1:].flatten()
        )


class Students(nn.Module):
    """Several independent students of the same shape, stacked along a first axis.

    Parameters
    ----------
    members : list of Student
        Students; their weights become views of the stacked weights.
    """

    W_Q: nn.Parameter
    W_K: nn.Parameter
    M: nn.Parameter
    members: tuple[
        Student, ...
    ]  # a tuple is not registered: the weights are the stacked ones

    def __init__(self, members: list[Student]) -> None:
        super().__init__()
        self.p, self.members = members[0].p, tuple(members)
        for name, _ in members[0].named_parameters():
            stacked = nn.Parameter(
                torch.stack([member.get_parameter(name).detach() for member in members])
            )
            self.register_parameter(name, stacked)
            for member, weights in zip(members, stacked.detach(), strict=True):
                member.get_parameter(name).data = weights


class GLUStudent(Student):
    """The same student with its logic module as a gated MLP with fixed up and gate
    projections (Eqs. 19-22).
    """

    W_up: Tensor
    W_gate: Tensor

    def __init__(self, *args, **options) -> None:
        super().__init__(*args, **options)
        d_g, N = self.p.d_g, self.p.N
        M = self.M.detach()
        del self.M
        eye = torch.eye(N, dtype=M.dtype)
        ones = torch.ones(N, 1, dtype=M.dtype)
        self.W_down = nn.Parameter(M.permute(1, 0, 2).reshape(N, d_g * N).clone())
        self.register_buffer(
            "W_up",
            torch.cat(
                [torch.zeros(d_g * N, d_g, dtype=M.dtype), eye.repeat(d_g, 1)], 1
            ),
        )
        gate = torch.block_diag(*[ones] * d_g)
        self.register_buffer(
            "W_gate", torch.cat([gate, torch.zeros(d_g * N, N, dtype=M.dtype)], 1)
        )

    def logic(self, o: Tensor, current: Tensor) -> Tensor:
        """Logits by down(up(o, s) * gate(o, s))."""
        x = torch.cat([o, nn.functional.one_hot(current, self.p.N).to(o.dtype)], dim=-1)
        return ((x @ self.W_up.T) * (x @ self.W_gate.T)) @ self.W_down.T


def with_full_embedding(
    p: Parameters, weights: dict[str, np.ndarray], dtype: torch.dtype = torch.float32
) -> Student:
    """Equivalent student with one-hot embeddings and key/query matrices with tied
    columns (Eqs. 23-24).
    """
    wide = p.replace(d_model=p.d_g + p.N, fix_embedding=False)
    tied = {
        name: np.repeat(weights[name], wide.d_model, axis=1) for name in ("W_Q", "W_K")
    }
    return Student(wide, {**weights, **tied, "embedding": np.eye(wide.d_model)}, dtype)


def teacher_weights(
    p: Parameters, perms: np.ndarray, gap: float = 40.0
) -> dict[str, np.ndarray]:
    """Weights of the same architecture that solve the task (Sec. 3.3).

    Keys are constant and queries are the keys rotated by the lag, so that attention
    peaks at offset -L, with attention logits at least ``gap`` above all others. The
    logic matrices are the permutations.

    Raises
    ------
    ParameterError
        If the frequencies cannot tell the positions apart.
    """
    omega = p.frequencies
    lags = np.arange(1, p.L)
    lead = (1 - np.cos(np.outer(lags, omega))).sum(1).min(initial=np.inf)
    if lead < 1e-9:
        raise ParameterError(
            f"rope = {p.rope!r}, d_h = {p.d_h}: these frequencies cannot single out one"
            f" of L = {p.L} actions"
        )
    scale = np.sqrt(gap * np.sqrt(p.d_h) / lead) if p.L > 1 else 0.0
    key = np.tile([1.0, 0.0], p.d_h // 2) * scale
    query = rotate(torch.tensor(key), torch.tensor(-p.L * omega)).numpy()
    return {
        "W_Q": query[:, None],
        "W_K": key[:, None],
        "M": gap * teacher_matrices(perms),
    }
