"""What Aoyama, Wilcox and Schneider (arXiv:2511.16893) fit to language models: the number of tokens
after which induction heads form.
"""

from functools import cache

import sympy as sp

from theory import Equation, symbol, table

B = symbol("B", means="windows per step", positive=True)
C = symbol("C", means="tokens of a context", positive=True)
T = symbol("T", means="constant of the published fit", positive=True)
N_pt = symbol("N_pt", r"N_{\mathrm{pt}}", "tokens trained on when induction heads form")
steps = symbol("n_pt", r"n_{\mathrm{pt}}", "steps when induction heads form")
QUOTED = "fitted by others to language models of words, T = 10^5.7; quoted, nothing derived"


@cache
def equations() -> dict[str, Equation]:
    """The fit, and its prediction for steps of B C tokens each."""
    tokens = T * sp.sqrt(B * C)
    return table(
        "musat2025, beside it: arXiv:2511.16893",
        QUOTED,
        status="empirical",
        published_tokens=(N_pt, tokens),
        published_steps=(steps, sp.powsimp(tokens / (B * C))),
    )


T_PUBLISHED = 10**5.7


def exponent(variable: sp.Symbol) -> float:
    """Exponent of the published steps in B or C."""
    of = equations()["published_steps"].rhs
    return float(sp.simplify(sp.diff(sp.log(of), variable) * variable))
