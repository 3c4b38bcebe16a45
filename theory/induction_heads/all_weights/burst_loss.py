"""Loss of all nineteen pseudo-parameters on a context that ends in a burst: output token by token.

The output has one coefficient along the right item and one along the right label, which occur B
times, and one along each other token, as `loss` has them for a single right pair.
"""

from functools import cache

import sympy as sp

from theory import Equation, symbol, table
from theory.induction_heads.all_weights import burst
from theory.induction_heads.all_weights.loss import (
    c_item,
    c_label,
    gamma,
    r_item,
    r_label,
    w_item,
    w_label,
    w_query,
)
from theory.induction_heads.all_weights.scores import ALL_WEIGHTS, H, g
from theory.induction_heads.network import ENDS, MASKS, ORTHONORMAL
from theory.induction_heads.symbols import B, N, d, k, l, ref, squared_error

C_item, C_label = (
    symbol(f"C_{x}", rf"C^{{\mathrm{{{x}}}}}", f"output along the right {x}", real=True)
    for x in ("item", "label")
)
SIDES = {
    "retrieved_item": r_item[l],
    "retrieved_label": r_label[l],
    "output_item": c_item[l],
    "output_label": c_label[l],
    "output_right_item": C_item,
    "output_right_label": C_label,
}


@cache
def outputs(mask: str) -> dict[str, sp.Expr]:
    """Attention of the second layer to other tokens, and the output along each token."""
    to_itself = MASKS[mask]
    w = {name: burst.in_full(form, mask) for name, form in burst.weights(mask).items()}
    query = {"item": H, "label": B * g, "other": g}
    query = {token: burst.in_full(form, mask) for token, form in query.items()}

    def from_burst(token: str) -> sp.Expr:
        rows = (
            w_item[N - B + k] * w[f"right_item_{token}"]
            + w_label[N - B + k] * w[f"right_label_{token}"]
        )
        return sp.Sum(rows, (k, 1, B)) + to_itself * w_query * query[token]

    def written(first: sp.Expr, token: str, second: sp.Expr, deep: sp.Expr) -> sp.Expr:
        return first + gamma[1] * query[token] + gamma[2] * second + gamma[3] * deep

    later = sum(
        rows[l + d] * w[f"{kind}_other"].subs(l, l + d)
        for kind, rows in (("item", w_item), ("label", w_label))
    )
    after = sp.Sum(later, (d, 1, N - B - l)) + from_burst("other")
    items, labels = (sp.Sum(w_of[N - B + k], (k, 1, B)) for w_of in (w_item, w_label))
    return {
        "retrieved_item": after
        + w_label[l] * w["label_item"]
        + to_itself * w_item[l] * w["item_self"],
        "retrieved_label": after + to_itself * w_label[l] * w["label_self"],
        "output_item": written(sp.S.Zero, "other", w_item[l], r_item[l]),
        "output_label": written(sp.S.Zero, "other", w_label[l], r_label[l]),
        "output_right_item": written(
            gamma[0], "item", items + to_itself * w_query, from_burst("item")
        ),
        "output_right_label": written(sp.S.Zero, "label", labels, from_burst("label")),
    }


@cache
def equations() -> dict[str, Equation]:
    """Attention of the second layer, the output token by token, and the loss."""
    given = (ORTHONORMAL, ALL_WEIGHTS, burst.BEFORE)
    by_name: dict[str, Equation] = {}
    for mask, end in ENDS.items():
        made = {
            f"burst_{n}{end}": (side, lambda n=n, mask=mask: outputs(mask)[n])
            for n, side in SIDES.items()
        }
        by_name |= table(ref(burst.PLACE), *given, f"{mask} mask", status="exact", **made)
    others = sp.Sum(c_item[l] ** 2 + c_label[l] ** 2, (l, 1, N - B))
    loss = (squared_error, (1 - C_label) ** 2 + C_item**2 + others)
    return by_name | table(ref(burst.PLACE), *given, status="exact", burst_loss=loss)
