"""Which students the theories of induction heads describe."""

from theory import Limit, Scope, only, scope

LEAST_D = 32  # there the drop is 1.6% later than leading order in 1/D says, at N = 16
PROJECTED = ("three", "projected")
TIME = ("loss", "eta", "batch_size", "steps", "eval_every")  # the unit of time, noise, measurement
ORTHONORMAL = only("data", "orthonormal")
BURSTS = Limit(
    "B",
    "1, or all weights on orthonormal data (of three numbers: induction_heads.bursty)",
    lambda p, runs: p.B == 1 or (p.trained == "all" and p.data == "orthonormal"),
    reads=("trained", "data"),
)
LARGE_D = Limit(
    "D",
    f"at least {LEAST_D} with Gaussian data",
    lambda p, runs: p.data == "orthonormal" or p.dimension >= LEAST_D,
    lambda p, runs: p.dimension,
    ("data", "N"),
)


def _unless_all(field: str, value: str, others: str = "any") -> Limit:
    """One value of a field, or others as well where all weights are trained."""
    return Limit(
        field,
        f"{value} (or {others}, where all weights are trained)",
        lambda p, runs: (
            (given := getattr(p, field)) == value
            or (p.trained == "all" and others in ("any", given))
        ),
        lambda p, runs: repr(getattr(p, field)),
        ("trained",),
    )


LAST_OR_ALL = _unless_all("query", "last", "uniform")
STRICT_OR_ALL = _unless_all("mask", "strict")
DATA_OR_ALL = _unless_all("data", "orthonormal")
QUERY = only("query", "last", "uniform")
THREE = Scope(
    "the flow (B.5)",
    "three trained numbers on orthonormal data, the last pair queried",
    (
        only("trained", *PROJECTED),
        ORTHONORMAL,
        only("query", "last"),
        only("mask", "strict"),
        BURSTS,
    ),
    ("D", *TIME),
)
ALL = Scope(
    "the flow of all weights",
    "all weights, the last pair or a uniform one queried",
    (only("trained", "all"), QUERY, LARGE_D, BURSTS),
    ("mask", *TIME),
)
DESCENT = Scope(
    "descent of the flow of all weights",
    "all weights on orthonormal data, the last pair or a uniform one queried",
    (only("trained", "all"), QUERY, ORTHONORMAL),
    ("D", "mask", *TIME),
)
PLATEAU = Scope(
    "the flow of five numbers",
    "all weights on orthonormal data, the last pair queried",
    (
        only("trained", "all"),
        ORTHONORMAL,
        only("query", "last"),
        only("mask", "strict"),
        only("B", 1),
    ),
    DESCENT.free,
)
EMERGENCE = Scope(
    "the theory of emergence",
    "all weights, or three numbers",
    (only("trained", "all", *PROJECTED), DATA_OR_ALL, LAST_OR_ALL, STRICT_OR_ALL, LARGE_D, BURSTS),
    TIME,
)
SCOPES = {"emergence": EMERGENCE, "three": THREE, "all": ALL, "descent": DESCENT}
applies = scope.applies(SCOPES)
