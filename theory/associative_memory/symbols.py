"""Symbol table of the associative-memory systems."""

from theory.notation import array, symbol

PAPER = "bietti2025"

# Sizes
N = symbol("N", integer=True, positive=True)  # tokens, keys or labels
K = symbol("K", integer=True, positive=True)  # classes
d = symbol("d", integer=True, positive=True)  # embedding dimension
T = symbol("T", integer=True, positive=True)  # sequence length

# Training
eta = symbol("eta", positive=True)  # learning rate
t = symbol("t", nonnegative=True)  # gradient-flow time: learning rate times steps
m = symbol("m", real=True)  # margin: right logit minus a wrong one
L = symbol("loss_memory", r"\mathcal{L}", real=True)

# Indices and indexed arrays
x, y, z, k, i, j, l = (symbol(name, integer=True, positive=True) for name in "xyzkijl")
W, F, e, u, p, v = (array(name) for name in ("W", "F", "e", "u", "p", "v"))
p_hat = array("p_hat", r"\hat{p}")

DERIVED = "derived here"


def ref(text: str) -> str:
    """Reference into the slides, or a note that a result is ours."""
    return f"{PAPER}, {text}"
