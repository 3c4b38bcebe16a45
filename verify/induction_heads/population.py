"""Population loss on Gaussian data to first order in 1/D, computed from the network.

The loss over D is a function of the inner products, divided by D, of items and labels, of codes,
and of codes with swapped codes. These are uncorrelated, with third moments of order 1/D^2, and tend
to those of orthonormal vectors as D grows. The coefficient of 1/D is therefore half the sum of the
second derivatives times the variances. The derivatives are central differences between frames with
shifted inner products.
"""

from collections.abc import Callable

import numpy as np
import torch

from simulate.induction_heads import task
from simulate.induction_heads.student import Nineteen, squared_error
from theory.induction_heads import gaussian
from theory.induction_heads.numbers.all_weights_loss import loss_and_gradient

SHIFT = 1e-2  # shift of an inner product; relative error of the coefficient 1e-5 (measured)


def _shifts(size: int, own: float) -> torch.Tensor:
    """Shifts of single entries of a symmetric matrix, in units of their standard deviation:
    (entries, size, size).
    """
    i, j = torch.tril_indices(size, size)
    shifts = torch.zeros(len(i), size, size, dtype=torch.float64)
    each = torch.arange(len(i))
    shifts[each, i, j] = shifts[each, j, i] = _deviation("other")
    shifts[each[i == j], i[i == j], i[i == j]] = own
    return shifts


def _deviation(name: str) -> float:
    """Standard deviation of an inner product divided by D, times sqrt(D)."""
    return float(np.sqrt(gaussian.equations()[f"gram_variance_{name}"].evaluate({"D": 1})))


def realised(*grams: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    """Items, labels and codes in 2N dimensions with given inner products.

    Parameters
    ----------
    *grams : Tensor
        Gram matrices of items and labels (frames, 2N, 2N), and twice those of the components of
        codes in the eigenspaces +1 and -1 of M (frames, N, N): p.p' is their mean, p M p' half
        their difference.

    Returns
    -------
    tuple of Tensor
        Each (frames, N, 2N).
    """
    tokens, plus, minus = (torch.linalg.cholesky(g) for g in grams)
    size = plus.shape[-1]
    return tokens[:, :size], tokens[:, size:], torch.cat([plus + minus, plus - minus], -1) / 2


def shifted(size: int) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    """Frames with one inner product shifted up or down."""
    tokens = _shifts(2 * size, _deviation("own"))
    plain, swapped = (_shifts(size, _deviation(name)) for name in ("own", "swapped"))
    still = tokens.new_zeros(len(tokens), size, size)
    tokens = torch.cat([tokens, tokens.new_zeros(2 * len(plain), 2 * size, 2 * size)])

    def both(*shifts: torch.Tensor) -> torch.Tensor:
        shift = SHIFT * torch.cat(shifts)
        eye = torch.eye(shift.shape[-1], dtype=shift.dtype)
        return torch.cat([eye + shift, eye - shift])

    return realised(both(tokens), both(still, plain, swapped), both(still, plain, -swapped))


def coefficient(
    size: int, mask: str = "strict"
) -> Callable[[np.ndarray], tuple[float, np.ndarray]]:
    """Coefficient of 1/D in the loss over D for a uniform query, and its gradient, as a function of
    the nineteen pseudo-parameters, with alphas and betas multiplied by D.
    """
    data = shifted(size)
    count = len(data[0])
    query = torch.arange(size).repeat_interleave(count)
    items, labels, codes = (x.repeat(size, 1, 1) for x in data)
    batch = task.assemble(items, labels, codes, query)
    student = Nineteen(2 * size, mask, torch.float64)

    def of(theta: np.ndarray) -> tuple[float, np.ndarray]:
        student.theta.data = torch.as_tensor(theta, dtype=torch.float64)
        student.zero_grad()
        loss = squared_error(student(batch.X), batch.y, "sum")
        loss.backward()
        still, slope = loss_and_gradient(theta, size, "uniform", mask)
        scale = count / 2 / SHIFT**2
        moved = torch.as_tensor(student.theta.grad).numpy()
        return scale * (float(loss.detach()) - still), scale * (moved - slope)

    return of
