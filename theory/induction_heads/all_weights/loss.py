"""Loss of all nineteen pseudo-parameters: exact equations, and how it is computed in O(N), gradient
included, by running sums.

The output is a linear combination of the tokens of the context, so that the loss is a sum of
squares of coefficients. For every queried pair these sums over rows involve sums over later pairs
of quantities that depend on the later pair only, and sums over earlier pairs of quantities that do
not depend on the query. The loss as a function of these sums is differentiated by SymPy; the
gradient of a running sum is a running sum from the other end.
"""

from __future__ import annotations

from functools import cache

import sympy as sp

from theory.equation import Equation
from theory.induction_heads.all_weights import scores
from theory.induction_heads.all_weights.scores import THETA
from theory.induction_heads.attention import MASKS, ORTHONORMAL
from theory.induction_heads.symbols import N, d, k, q, ref, squared_error
from theory.notation import array, symbol

w_item, w_label, r_item, r_label, c_item, c_label = (
    array(f"{x}_{y}", rf"{x}^{{\mathrm{{{y}}}}}", means.format(f"{y}s"))
    for x, means in (
        ("w", "attention of the query on {}, second layer"),
        ("r", "what both layers retrieve of {}"),
        ("c", "output along {}"),
    )
    for y in ("item", "label")
)
w_query = symbol(
    "w_query", r"w^{\mathrm{query}}", "attention of the query on itself, inclusive mask", real=True
)
gamma = [THETA[f"gamma_{i}"] for i in range(1, 5)]


@cache
def equations() -> dict[str, Equation]:
    """What the second layer retrieves from the first layer's output, the network output token by
    token, and the loss.
    """
    found = []
    for mask, own in MASKS.items():
        given = (ORTHONORMAL, scores.ALL_WEIGHTS, f"{mask} mask")
        end = "" if mask == "strict" else "_inclusive"

        def weight(row: scores.Row, column: scores.Row, own: int = own) -> sp.Expr:
            return scores.normalised(scores.first_weight(row, column), row, own)

        for name, r, w, c in (
            ("item", r_item, w_item, c_item),
            ("label", r_label, w_label, c_label),
        ):
            column = (name, k)
            later = sum(
                a[k + d] * weight((kind, k + d), column)
                for kind, a in (("item", w_item), ("label", w_label))
            )
            own_rows = [w_item[k] * weight(("item", k), column)] if own and name == "item" else []
            own_rows += [w_label[k] * weight(("label", k), column)] if own or name == "item" else []
            query = scores.normalised(scores.first_weight(("query", q), column), ("query", q), own)
            total = sp.Sum(later, (d, 1, N - k)) + sum(own_rows) + (w_query * query if own else 0)
            again = (
                sp.KroneckerDelta(q, k) if name == "item" else sp.S.Zero
            )  # the query is a copy of item q
            out = gamma[0] * again + gamma[1] * (
                query + own * again * weight(("query", q), ("query", q))
            )
            out += gamma[2] * (w[k] + own * again * w_query) + gamma[3] * (
                r[k] + own * again * w_query * weight(("query", q), ("query", q))
            )
            found += [
                Equation(
                    f"all_retrieved_{name}{end}", r[k], total, ref(scores.PLACE), "exact", given
                ),
                Equation(f"all_output_{name}{end}", c[k], out, ref(scores.PLACE), "exact", given),
            ]
    squares = 1 - 2 * c_label[q] + sp.Sum(c_item[k] ** 2 + c_label[k] ** 2, (k, 1, N))
    found.append(
        Equation(
            "all_loss",
            squared_error,
            squares,
            ref(scores.PLACE),
            "exact",
            (ORTHONORMAL, scores.ALL_WEIGHTS),
        )
    )
    return {x.name: x for x in found}


on_self, o_item, o_other = (sp.Symbol(x, real=True) for x in ("on_self", "o_item", "o_other"))
