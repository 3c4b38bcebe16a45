"""Symbols of the online theory, in addition to those of the layer."""

from theory.notation import symbol

t = symbol("t", means="time: learning rate times steps by d", nonnegative=True)
step = symbol("step", r"\eta", "learning rate by sentences of a step", nonnegative=True)
decay = symbol(
    "decay", r"\kappa", "weight decay by time; lambda / alpha of a full batch", nonnegative=True
)
population = symbol(
    "population_loss", r"\mathcal{L}", "population loss of a sentence by d", real=True
)
noise = symbol("noise", r"\mathcal{N}", "mean squared slope of the loss in the fields", real=True)
scale = symbol("scale", r"s", "norm of the initial weights by sqrt(d)", positive=True)
cos_p = symbol("cos_p", r"c_{p}", "cosine of the initial weights with the positions", real=True)
cos_teacher = symbol(
    "cos_teacher", r"c_{\star}", "cosine of the initial weights with the teacher", real=True
)
growth_q, growth_m, growth_theta = (
    symbol(
        f"growth_{x}", rf"\gamma_{{{tex}}}", f"growth rate of {what} at zero overlaps", real=True
    )
    for x, tex, what in (
        ("q", "q", "the norm"),
        ("m", "m", "the overlap with the positions"),
        ("theta", r"\theta", "the overlap with the teacher"),
    )
)
growth = symbol("growth", r"\gamma", "growth rate of an overlap at zero overlaps", real=True)
T_mean = symbol("T_mean", r"\bar{T}", "mean off-diagonal entry of softmax(h h^T)", positive=True)
T_slope = symbol(
    "T_slope",
    r"\bar{T}_{2}",
    "E[T_12 (h_1 h_2 - h_1^2)] / sigma^2 + T_mean, what the teacher's fields tell",
)
T_escape = symbol(
    "T_escape", r"t_{\mathrm{esc}}", "time at which an overlap of d^(-1/2) is of order one"
)


def ref(place: str) -> str:
    """Reference."""
    return f"beyond cui2024, {place}"
