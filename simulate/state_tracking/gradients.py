"""Loss, gradients and logit statistics without building the mixed matrices.

Under teacher forcing the current states never change, so the (sequence, position) rows are grouped
by state once. Rows of one state share the columns ``M[:, :, s]``, and the logic module becomes N
products of a (rows x d_g) with a (d_g x N) matrix. Derivatives are written by hand.
"""

from __future__ import annotations

import torch
from torch import Tensor

from simulate.state_tracking.student import Student
from simulate.state_tracking.task import Sequences


class Attention:
    """Attention of a student whose tokens are all embedded alike, and its derivative."""

    def __init__(self, student: Student) -> None:
        p = student.p
        steps = torch.arange(p.L, dtype=torch.float64)
        offset = steps[None, :] - steps[:, None] - p.L  # j - i with i = L + 1 + step, j = 1 + column
        angle = (offset[..., None] * student.omega.cpu()).to(student.W_Q.device)
        dtype, norm = student.W_Q.dtype, p.d_h**0.5
        self.cos, self.sin = (angle.cos() / norm).to(dtype), (angle.sin() / norm).to(dtype)
        self.L = p.L

    def forward(self, student: Student) -> Tensor:
        """Attention matrix, shape ``(L, L)``."""
        (q1, q2), (k1, k2) = _pairs(student.W_Q), _pairs(student.W_K)
        logits = self.cos @ (q1 * k1 + q2 * k2) + self.sin @ (q2 * k1 - q1 * k2)
        return torch.softmax(logits, dim=1)

    def backward(self, student: Student, pi: Tensor, d_pi: Tensor) -> tuple[Tensor, Tensor]:
        """Gradients of W_Q and W_K from that of the attention matrix."""
        d_l = pi * (d_pi - (pi * d_pi).sum(1, keepdim=True))
        even, odd = (torch.einsum("ij,ijn->n", d_l, table) for table in (self.cos, self.sin))
        (q1, q2), (k1, k2) = _pairs(student.W_Q), _pairs(student.W_K)
        d_q = torch.stack([even * k1 - odd * k2, even * k2 + odd * k1], dim=1)
        d_k = torch.stack([even * q1 + odd * q2, even * q2 - odd * q1], dim=1)
        return d_q.reshape(-1, 1), d_k.reshape(-1, 1)

    def gradient_of_A(self, student: Student) -> tuple[Tensor, Tensor]:
        """Gradients of A = mean of the attention diagonal (Eqs. 62-68)."""
        pi = self.forward(student)
        return self.backward(student, pi, torch.eye(self.L, dtype=pi.dtype, device=pi.device) / self.L)


def _pairs(w: Tensor) -> tuple[Tensor, Tensor]:
    return w[0::2, 0], w[1::2, 0]


class Grouped:
    """Training data grouped by current state, for a student with a fixed embedding.

    Parameters
    ----------
    student : Student
        Gives sizes, device and precision.
    data : Sequences
        Training sequences.
    """

    def __init__(self, student: Student, data: Sequences) -> None:
        p, device = student.p, student.M.device
        actions, states = (torch.as_tensor(x, device=device) for x in (data.actions, data.states))
        values = torch.nn.functional.one_hot(actions, p.d_g).to(student.M.dtype)
        self.values = values.permute(1, 0, 2).reshape(p.L, -1)  # (L, n d_g)
        current, target = states[:, :-1].T.reshape(-1), states[:, 1:].T.reshape(-1)
        self.order = torch.argsort(current, stable=True)
        self.groups = torch.bincount(current, minlength=p.N).tolist()
        self.targets = target[self.order].split(self.groups)
        self.attention = Attention(student)
        self.rows = current.numel()

    def _retrieve(self, student: Student, pi: Tensor) -> tuple[Tensor, ...]:
        return (pi @ self.values).reshape(self.rows, student.p.d_g)[self.order].split(self.groups)

    @torch.no_grad()
    def gradients(self, student: Student) -> Tensor:
        """Set ``.grad`` of W_Q, W_K and M; return the loss."""
        pi = self.attention.forward(student)
        columns = student.M.permute(2, 0, 1).contiguous()  # (state, action, next state)
        d_columns = torch.empty_like(columns)
        d_o, total = [], []
        for s, (o, target) in enumerate(zip(self._retrieve(student, pi), self.targets, strict=True)):
            logits = o @ columns[s]
            top = torch.logsumexp(logits, dim=1, keepdim=True)
            hit = target[:, None]
            total.append((top - logits.gather(1, hit)).sum())
            error = (logits - top).exp_()
            error.scatter_add_(1, hit, torch.full_like(top, -1))
            torch.matmul(o.T, error, out=d_columns[s])
            d_o.append(error @ columns[s].T)
        back = torch.empty(self.rows, student.p.d_g, dtype=pi.dtype, device=pi.device)
        back[self.order] = torch.cat(d_o)
        d_pi = back.reshape(self.attention.L, -1) @ self.values.T / self.rows
        student.W_Q.grad, student.W_K.grad = self.attention.backward(student, pi, d_pi)
        student.M.grad = d_columns.permute(1, 2, 0).contiguous() / self.rows
        return torch.stack(total).sum() / self.rows

    @torch.no_grad()
    def statistics(self, student: Student) -> dict[str, Tensor]:
        """Loss, moments of correct and other logits, and attention (see `measure.measure`)."""
        pi = self.attention.forward(student)
        columns = student.M.permute(2, 0, 1)
        moments = Moments()
        for s, (o, target) in enumerate(zip(self._retrieve(student, pi), self.targets, strict=True)):
            moments.add(o @ columns[s], target)
        return {**moments.result(), "attention": pi}


class Plain:
    """The same quantities by autograd of the plain module, in slices; needed when the embedding is learned."""

    def __init__(self, student: Student, data: Sequences, slice_size: int = 1024) -> None:
        device = student.M.device
        self.actions, self.states = (torch.as_tensor(x, device=device) for x in (data.actions, data.states))
        self.size = slice_size

    def _slices(self) -> list[tuple[Tensor, Tensor]]:
        return list(zip(self.actions.split(self.size), self.states.split(self.size), strict=True))

    def gradients(self, student: Student) -> Tensor:
        """Set ``.grad`` of all parameters; return the loss."""
        student.zero_grad()
        total = torch.zeros((), device=self.actions.device)
        for actions, states in self._slices():
            part = student.loss(actions, states) * (len(actions) / len(self.actions))
            part.backward()
            total = total + part.detach()
        return total

    @torch.no_grad()
    def statistics(self, student: Student) -> dict[str, Tensor]:
        """As `Grouped.statistics`, with the attention averaged over the data."""
        moments, attention = Moments(), []
        for actions, states in self._slices():
            pi = student.attention(actions, states[:, :-1])
            logits = student.logic(student.retrieve(pi, actions), states[:, :-1])
            moments.add(logits.flatten(0, 1), states[:, 1:].flatten())
            attention.append(pi.sum(0))
        return {**moments.result(), "attention": torch.stack(attention).sum(0) / len(self.actions)}


class Moments:
    """First four moments of correct and other logits, and the loss, gathered group by group in double precision."""

    def __init__(self) -> None:
        self.loss: list[Tensor] = []
        self.correct: list[Tensor] = []
        self.every: list[Tensor] = []
        self.rows, self.states = 0, 0

    def add(self, logits: Tensor, target: Tensor) -> None:
        """Add rows of logits ``(rows, N)`` with their correct entries."""
        self.loss.append(torch.nn.functional.cross_entropy(logits, target, reduction="sum").double())
        logits = logits.double()
        for sums, values in ((self.correct, logits.gather(1, target[:, None])), (self.every, logits)):
            sums.append(torch.stack([values.pow(k).sum() for k in range(1, 5)]))
        self.rows += len(logits)
        self.states = logits.shape[1]

    def result(self) -> dict[str, Tensor]:
        """Loss, and mean, variance and excess kurtosis of both kinds of logits."""
        correct = torch.stack(self.correct).sum(0)
        other = (torch.stack(self.every).sum(0) - correct) / (self.rows * (self.states - 1))
        found = {"loss": torch.stack(self.loss).sum() / self.rows}
        for name, (m1, m2, m3, m4) in (("correct", correct / self.rows), ("other", other)):
            variance = m2 - m1**2
            fourth = m4 - 4 * m3 * m1 + 6 * m2 * m1**2 - 3 * m1**4
            found |= {f"logit_{name}": m1, f"variance_{name}": variance, f"kurtosis_{name}": fourth / variance**2 - 3}
        return found
