"""When a softmax head finds the key: students against the integral."""

from theory.associative_memory.retrieval import Parameters, emergence_time, stated
from verify.check import Band
from verify.report import Report, Request
from verify.statement.emergence import emergence

GRID = tuple(
    Parameters(N=N, M=M, P=P, eta=0.5, eval_every=2)
    for N, M, P in ((32, 32, 4), (16, 32, 4), (32, 24, 4), (32, 32, 8))
)
FEW = Band(-0.02, 0.02, "values that are shown gain a part of the probability: 2% is allowed")


def report(request: Request) -> Report:
    """All settings; a dozen students."""
    request.of_its_own()
    checks = emergence(
        stated, GRID, "A", emergence_time, "retrieval_emergence", FEW, progress=request.progress
    )
    return Report(*checks)
