"""Speed of the state evolution; run with ``pytest --benchmark-enable``."""

from theory.positional_semantic import Parameters, solve


def test_fixed_point_from_a_neighbour(benchmark):
    """One continuation step along the positional branch, the slower of the two."""
    near = solve(Parameters(alpha=1.3, order=8), "positional")
    point = benchmark(solve, near.p.replace(alpha=1.25), "positional", near)
    assert point.residual < 1e-6


def test_fixed_point_alone(benchmark):
    """Without a neighbour."""
    assert benchmark(solve, Parameters(alpha=1.3, order=8), "semantic").exists
