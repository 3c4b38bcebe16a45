"""Symbol table of the associative-memory systems."""

from theory.symbols.notation import array, symbol

PAPER = "bietti2025"

# Sizes
N = symbol("N", means="tokens, keys or labels", integer=True, positive=True)
K = symbol("K", means="classes", integer=True, positive=True)
d = symbol("d", means="embedding dimension", integer=True, positive=True)
T = symbol("T", means="sequence length", integer=True, positive=True)

# Training
eta = symbol("eta", means="learning rate", positive=True)
t = symbol("t", means="gradient-flow time: learning rate times steps", nonnegative=True)
m = symbol("m", means="margin: right logit minus a wrong one", real=True)
L = symbol("loss_memory", r"\mathcal{L}", "cross-entropy", real=True)

# Indices and indexed arrays
x, z = (symbol(name, means="a key", integer=True, positive=True) for name in "xz")
y, k = (
    symbol(name, means="a class or output", integer=True, positive=True)
    for name in "yk"
)
i, j, l = (
    symbol(name, means="a coordinate or token", integer=True, positive=True)
    for name in "ijl"
)
W = array("W", means="weights of the memory")
F = array("F", means="scores of the classes")
e = array("e", means="input embeddings")
u = array("u", means="output embeddings")
p = array("p", means="probability of a class, given the key")
v = array("v", means="backward vector")
p_hat = array("p_hat", r"\hat{p}", "predicted probability of a class, given the key")

DERIVED = "derived here"


def ref(text: str) -> str:
    """Reference into the slides, or a note that a result is ours."""
    return f"{PAPER}, {text}"
