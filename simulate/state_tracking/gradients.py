"""Loss, gradients and logit statistics, computed without forming the mixtures of logic
matrices.

Under teacher forcing the current states are fixed, so that the rows (sequence, step)
are grouped by state once. Rows of one state use the same columns ``M[:, :, s]``, and
the logic module becomes N independent tables (`logic`). Derivatives are hand-written.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import torch
from torch import Tensor

from simulate.state_tracking.logic import Groups, OnCPU, OnDevice
from simulate.state_tracking.student import Students
from theory.state_tracking import Parameters
from theory.state_tracking.model.task import Sequences

Chosen = Sequence[np.ndarray] | None  # sequences of a batch by number, of every student


class Attention:
    """Attention of students with the same embedding for all tokens, and its derivative;
    weights ``(B, d_h, 1)``.
    """

    def __init__(self, p: Parameters, dtype: torch.dtype, device: torch.device) -> None:
        steps = torch.arange(p.L, dtype=torch.float64)
        offset = (
            steps[None, :] - steps[:, None] - p.L
        )  # j - i with i = L + 1 + step, j = 1 + column
        angle = offset[..., None] * torch.as_tensor(p.frequencies)
        turns = torch.view_as_real(
            torch.polar(torch.full_like(angle, p.d_h**-0.5), angle)
        )
        self.table = turns.reshape(p.L**2, p.d_h).to(device, dtype)
        self.L = p.L
        # A pair, and the same turned by a right angle; then turned back.
        both = torch.tensor([[1.0, 0.0, 0.0, 1.0], [0.0, 1.0, -1.0, 0.0]]).to(
            device, dtype
        )
        self.turned, self.back = both, torch.cat([both[:, :2], -both[:, 2:]], dim=1)

    def forward(self, W_Q: Tensor, W_K: Tensor) -> Tensor:
        """Attention matrices, shape ``(B, L, L)``."""
        products = (_pairs(W_Q)[:, :, None] * _turned(W_K, self.turned)).sum(3)
        # A row by a matrix for each student: other products are summed in an order that
        # depends on the number of students.
        logits = torch.bmm(
            products.view(len(W_Q), 1, -1), self.table.T.expand(len(W_Q), -1, -1)
        )
        return torch.softmax(logits.view(-1, self.L, self.L), dim=2)

    def backward(
        self, W_Q: Tensor, W_K: Tensor, pi: Tensor, d_pi: Tensor
    ) -> tuple[Tensor, Tensor]:
        """Gradients of W_Q and W_K from that of the attention matrices."""
        d_l = pi * (d_pi - (pi * d_pi).sum(2, keepdim=True))
        d_products = torch.bmm(
            d_l.view(len(pi), 1, -1), self.table.expand(len(pi), -1, -1)
        )
        d_products = d_products.view(len(pi), -1, 2, 1)
        d_q = (d_products * _turned(W_K, self.turned)).sum(2)
        d_k = (d_products * _turned(W_Q, self.back)).sum(2)
        return d_q.view(W_Q.shape), d_k.view(W_K.shape)

    def gradient_of_A(self, W_Q: Tensor, W_K: Tensor) -> tuple[Tensor, Tensor]:
        """Gradients of A = mean of the attention diagonal (Eqs. 62-68)."""
        pi = self.forward(W_Q, W_K)
        return self.backward(
            W_Q, W_K, pi, (torch.eye(self.L).to(pi) / self.L).expand_as(pi)
        )


def _pairs(w: Tensor) -> Tensor:
    return w.reshape(len(w), -1, 2)


def _turned(w: Tensor, both: Tensor) -> Tensor:
    """Rotary pairs, and the same turned by a right angle, shape ``(B,
    d_h / 2, 2, 2)``.
    """
    return (_pairs(w) @ both).view(len(w), -1, 2, 2)


class Grouped:
    """Hand-written gradients of students with a fixed embedding.

    Parameters
    ----------
    students : Students
        Students, which set sizes, device and precision.
    data : list of Sequences
        Training sequences of each student, the same number for all.
    threads : int
        CPU threads; results do not depend on it.
    """

    def __init__(
        self, students: Students, data: list[Sequences], threads: int = 1
    ) -> None:
        self.attention = Attention(students.p, students.M.dtype, students.M.device)
        self.data = [
            Sequences(d.actions.astype(np.uint16), d.states.astype(np.uint16))
            for d in data
        ]
        self.threads = threads
        self.logic = self._logic(students)

    def _logic(self, students: Students, chosen: Chosen = None) -> OnCPU | OnDevice:
        groups = Groups.of(self.data, students.p.N, chosen)
        device = students.M.device
        if device.type == "cpu":
            return OnCPU(groups, self.threads)
        # The shapes of a batch are its own: compiling would take longer than the step.
        return OnDevice(groups, device, compiled=None if chosen is None else False)

    @torch.no_grad()
    def gradients(self, students: Students, chosen: Chosen = None) -> None:
        """Set ``.grad`` of W_Q, W_K and M, from all sequences or those chosen of each
        student.
        """
        W_Q, W_K, M = students.W_Q, students.W_K, students.M
        logic = self.logic if chosen is None else self._logic(students, chosen)
        pi = self.attention.forward(W_Q, W_K)
        d_pi, d_columns = logic.gradients(pi, _columns(M))
        W_Q.grad, W_K.grad = self.attention.backward(W_Q, W_K, pi, d_pi / logic.rows)
        M.grad = (d_columns / logic.rows).permute(0, 2, 3, 1).contiguous()

    @torch.no_grad()
    def statistics(self, students: Students) -> dict[str, Tensor]:
        """Loss, moments of correct and other logits, and attention (see
        `measure.measure`), per student.
        """
        pi = self.attention.forward(students.W_Q, students.W_K)
        loss, powers = self.logic.moments(pi, _columns(students.M))
        return {
            **_describe(loss, powers, self.logic.rows, students.p.N),
            "attention": pi,
        }

    def attend(
        self, students: Students, actions: Tensor, current: Tensor, step: int
    ) -> Tensor:
        """Attention at one step, the same for all sequences, shape ``(B, 1, L)``."""
        return self.attention.forward(students.W_Q, students.W_K)[:, step, None]


def _columns(M: Tensor) -> Tensor:
    """Logic matrices as ``(B, current state, action, next state)``."""
    return M.detach().permute(0, 3, 1, 2)


class Plain:
    """Gradients by autograd of the plain module, in slices; for learned embeddings."""

    def __init__(
        self,
        students: Students,
        data: list[Sequences],
        threads: int = 1,
        slice_size: int = 1024,
    ) -> None:
        device = students.M.device
        self.data = [
            (
                torch.as_tensor(d.actions, device=device),
                torch.as_tensor(d.states, device=device),
            )
            for d in data
        ]
        self.size = slice_size

    def _slices(self, b: int, chosen: Chosen = None) -> list[tuple[Tensor, Tensor]]:
        data = self.data[b] if chosen is None else [x[chosen[b]] for x in self.data[b]]
        return list(zip(*(x.split(self.size) for x in data), strict=True))

    def gradients(self, students: Students, chosen: Chosen = None) -> None:
        """Set ``.grad`` of all parameters, from all sequences or those chosen of each
        student.
        """
        for b, student in enumerate(students.members):
            student.zero_grad()
            slices = self._slices(b, chosen)
            rows = sum(len(actions) for actions, _ in slices)
            for actions, states in slices:
                (student.loss(actions, states) * (len(actions) / rows)).backward()
        for name, stacked in students.named_parameters():
            slopes = []
            for member in students.members:
                w = member.get_parameter(name)
                slopes.append(torch.zeros_like(w) if w.grad is None else w.grad)
            stacked.grad = torch.stack(slopes)

    @torch.no_grad()
    def statistics(self, students: Students) -> dict[str, Tensor]:
        """As `Grouped.statistics`, with the attention averaged over the data."""

        def four_powers(x: Tensor) -> Tensor:
            return torch.stack([x.pow(k).sum() for k in range(1, 5)])

        losses, powers, attentions = [], [], []
        for b, student in enumerate(students.members):
            loss, sums, attention = (torch.zeros(()) for _ in range(3))
            for actions, states in self._slices(b):
                pi = student.attention(actions, states[:, :-1])
                target = states[:, 1:].flatten()
                retrieved = student.retrieve(pi, actions)
                logits = student.logic(retrieved, states[:, :-1])
                logits = logits.flatten(0, 1).double()
                loss = loss + torch.nn.functional.cross_entropy(
                    logits, target, reduction="sum"
                )
                right = logits.gather(1, target[:, None])
                sums = sums + torch.stack([four_powers(right), four_powers(logits)])
                attention = attention + pi.sum(0) / len(self.data[b][0])
            losses.append(loss)
            powers.append(sums)
            attentions.append(attention)
        rows = self.data[0][1][:, 1:].numel()
        described = _describe(
            torch.stack(losses), torch.stack(powers), rows, students.p.N
        )
        return {**described, "attention": torch.stack(attentions)}

    def attend(
        self, students: Students, actions: Tensor, current: Tensor, step: int
    ) -> Tensor:
        """Attention at one step of every sequence, shape ``(B, n, L)``."""
        pairs = zip(students.members, actions, current, strict=True)
        return torch.stack(
            [student.attention(a, c[:, None], step)[:, 0] for student, a, c in pairs]
        )


def engine(students: Students) -> type[Grouped] | type[Plain]:
    """Fastest implementation of the gradients of these students."""
    return Grouped if students.p.fix_embedding else Plain


def _describe(loss: Tensor, powers: Tensor, rows: int, N: int) -> dict[str, Tensor]:
    """Mean loss, and mean, variance and excess kurtosis of correct and other logits
    from summed powers.
    """
    correct, every = powers[:, 0], powers[:, 1]
    moments = {"loss": loss / rows}
    for name, mean in (
        ("correct", correct / rows),
        ("other", (every - correct) / (rows * (N - 1))),
    ):
        m1, m2, m3, m4 = mean.T
        variance = m2 - m1**2
        fourth = m4 - 4 * m3 * m1 + 6 * m2 * m1**2 - 3 * m1**4
        moments |= {
            f"logit_{name}": m1,
            f"variance_{name}": variance,
            f"kurtosis_{name}": fourth / variance**2 - 3,
        }
    return moments
