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
x = symbol("x", means="a key", integer=True, positive=True)
z = symbol("z", means="a key", integer=True, positive=True)
y = symbol("y", means="a class or output", integer=True, positive=True)
k = symbol("k", means="a class or output", integer=True, positive=True)
i = symbol("i", means="a coordinate or token", integer=True, positive=True)
j = symbol("j", means="a coordinate or token", integer=True, positive=True)
l = symbol("l", means="a coordinate or token", integer=True, positive=True)
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
