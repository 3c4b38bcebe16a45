"""Loss of all nineteen pseudo-parameters: exact equations, and how it is computed in O(N), gradient
included, by running sums.

The output is a linear combination of the tokens of the context, so that the loss is a sum of
squares of coefficients. For every queried pair these sums over rows involve sums over later pairs
of quantities that depend on the later pair only, and sums over earlier pairs of quantities that do
not depend on the query (`numbers.running`, `numbers.all_weights_loss`).
"""

from functools import cache, partial

import sympy as sp

from theory import Equation, array, symbol, table
from theory.induction_heads.all_weights import scores
from theory.induction_heads.all_weights.scores import THETA
from theory.induction_heads.network import ENDS, MASKS, ORTHONORMAL, Network, value
from theory.induction_heads.symbols import N, d, k, q, ref, squared_error

w_item, w_label, r_item, r_label, c_item, c_label = (
    array(f"{letter}_{y}", rf"{letter}^{{\mathrm{{{y}}}}}", means.format(f"{y}s"))
    for letter, means in (
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
    """Attention of the second layer to the first layer's output, the network output token by token,
    and the loss.
    """
    given = (ORTHONORMAL, scores.ALL_WEIGHTS)
    squares = 1 - 2 * c_label[q] + sp.Sum(c_item[k] ** 2 + c_label[k] ** 2, (k, 1, N))
    by_name: dict[str, Equation] = {}
    rows = {"item": w_item, "label": w_label}
    for mask, to_itself in MASKS.items():
        net, end, made = scores.network(mask), ENDS[mask], {}
        of_query = partial(net.first_attention, net.query)
        on_itself = to_itself * value(of_query(net.query))
        for name, r, c in (("item", r_item, c_item), ("label", r_label, c_label)):

            def retrieved(
                kind: str, pair: sp.Expr, net: Network = net, name: str = name
            ) -> sp.Expr:
                attention = net.first_attention(net.row(kind, pair), net.row(name, k))
                return rows[kind][pair] * value(attention)

            same = ["item"] * to_itself + ["label"] if name == "item" else ["label"] * to_itself
            query = net.depending(of_query, name, k, q)
            total = sp.Sum(sum(retrieved(kind, k + d) for kind in rows), (d, 1, N - k))
            total += sum(retrieved(kind, k) for kind in same) + to_itself * w_query * query
            again = sp.KroneckerDelta(q, k) * int(name == "item")  # the query is a copy of item q
            out = gamma[0] * again + gamma[1] * (query + again * on_itself)
            out += gamma[2] * (rows[name][k] + to_itself * again * w_query)
            out += gamma[3] * (r[k] + again * w_query * on_itself)
            made[f"all_retrieved_{name}{end}"] = (r[k], total)
            made[f"all_output_{name}{end}"] = (c[k], out)
        by_name |= table(ref(scores.PLACE), *given, f"{mask} mask", status="exact", **made)
    loss = (squared_error, squares)
    return by_name | table(ref(scores.PLACE), *given, status="exact", all_loss=loss)
