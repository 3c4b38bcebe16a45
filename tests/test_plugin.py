"""A model from another package, written into a temporary folder with its entry point,
works with every command.
"""

import textwrap

FILES = {
    "toy_product/__init__.py": (
        '''
        """A product of two weights that learns the number one: its overlap follows a logistic curve."""
        from theory.models.registry import Model
        MODEL = Model("toy_product", "Two weights, one product", "toy", package="toy_product")
    '''
    ),
    "toy_product/theory/__init__.py": (
        '''
        """da/dt = 2 a (1 - a) from descent on (1 - u v)^2 / 2 with u = v."""
        from dataclasses import dataclass
        from functools import cache
        import sympy as sp
        from theory.equations.equation import Equation
        from theory.dynamics.flow import Flow
        from theory.symbols.notation import symbol
        from theory.call.parameters import Stepped, parameter
        a, a_0, t, u, v = (symbol(n, n) for n in ("a", "a_0", "t", "u", "v"))

        @dataclass(frozen=True)
        class Parameters(Stepped):
            """One number to start from; time t = eta * steps."""
            a_0: float = parameter(0.01, "initial product", low=1e-9, high=0.5)
            eta: float = parameter(0.01, "learning rate", above=0)
            steps: int = parameter(500, "length of a run", low=1)
            eval_every: int = parameter(10, "steps between measurements", low=1)

        def rate():
            loss = (1 - u * v) ** 2 / 2
            moved = -sp.diff(loss, u) * v - sp.diff(loss, v) * u
            return sp.factor(moved.subs({u: sp.sqrt(a), v: sp.sqrt(a)}))

        def flow():
            return Flow("toy flow", t, {a: rate()}, {a: a_0}, "toy, (1)", "exact")

        def flows():
            return {"toy flow": flow()}

        @cache
        def equations():
            half = sp.solve(sp.Eq(sp.log(a / (1 - a)), sp.log(a_0 / (1 - a_0)) + 2 * t), t)[0].subs(a, sp.Rational(1, 2))
            return {e.name: e for e in (Equation("da_dt", sp.Derivative(a, t), rate(), "toy, (1)", "exact"),
                                        Equation("t_half", symbol("t_half", "t_{1/2}"), sp.simplify(half), "toy, (2)", "exact"))}

        def sections():
            return {"Toy": list(equations().values())}
    '''
    ),
    "toy_product/theory/onset.py": (
        """
        from theory.onset import Onset
        from toy_product import theory
        def onset(p, until=None):
            found = float(theory.equations()["t_half"].evaluate(p.values()))
            return Onset({"t_half": found}, {"t_half": "time of a = 1/2"}, {}, [], dict, lambda: list(theory.equations().values()),
                         lambda result, axes: None)
    """
    ),
    "toy_product/simulate/__init__.py": (
        '''
        from functools import partial
        import torch
        from simulate import training
        from simulate.training.learner import Unstacked
        from toy_product.theory import Parameters

        class Student:
            """Both weights at sqrt(a_0)."""
            def __init__(self, p, seed, device=None, dtype=torch.float64):
                self.p, self.u = p, torch.full((2,), p.a_0 ** 0.5, dtype=dtype)
            def step(self, number):
                u, v = self.u
                self.u = self.u + self.p.eta * (1 - u * v) * torch.stack([v, u])
            def measure(self):
                return {"a": float(self.u.prod()), "loss": float((1 - self.u.prod()) ** 2 / 2)}
            def state(self):
                return {"u": self.u}
            def load(self, state):
                self.u = state["u"]

        MEANING = {"a": "product of the weights", "loss": "(1 - a)^2 / 2"}
        SYSTEM = training.System("toy_product", Parameters, partial(Unstacked, Student), MEANING, lambda p, itemsize: 1e6,
                                 devices=("cpu",))
        SYSTEMS, train = {"student": SYSTEM}, SYSTEM.train
    '''
    ),
    "toy_product/verify/__init__.py": "",
    "toy_product/verify/gradients.py": (
        """
        import torch
        from toy_product import theory
        from verify.checks.check import identity
        from verify.checks.report import with_device
        def report(request):
            u = torch.full((2,), 0.3 ** 0.5, dtype=torch.float64, requires_grad=True)
            slope = torch.autograd.grad((1 - u.prod()) ** 2 / 2, u)[0]
            moved = -float(slope[0] * u[1] + slope[1] * u[0])
            rate = theory.equations()["da_dt"].evaluate({"a": 0.3})
            return with_device(request, [identity("rate of the product", "da_dt", rate, moved, 1e-12, "autograd in float64")])
    """
    ),
    "toy_product/verify/trajectories.py": (
        """
        import numpy as np
        from toy_product import theory
        from verify.checks import ensemble_source as ensemble
        from verify.checks.check import identity
        from verify.checks.report import Report
        def report(request):
            p, runs = ensemble.get(request)
            curve = theory.flow().solve(p, at=runs.t.values, t=float(runs.t[-1]))
            return Report([identity("product along training", "da_dt", curve.a.values, runs.a.values[0], 2 * p.eta, "Euler steps")])
    """
    ),
    "toy_product/papers/__init__.py": "FIGURES = {}",
    "toy_product/papers/claims.toml": (
        """
        [[claim]]
        id = "Eq. (1)"
        kind = "equation"
        says = "the product follows a logistic curve"
        covered_by = ["equation:da_dt", "check:gradients.rate_of_the_product"]
    """
    ),
    "toy_product-1.dist-info/METADATA": (
        "Metadata-Version: 2.1\nName: toy-product\nVersion: 1"
    ),
    "toy_product-1.dist-info/entry_points.txt": (
        "[solvable_transformers.models]\ntoy_product = toy_product:MODEL\nbroken ="
        " toy_nothing:MODEL"
    ),
}
RUN = """
import warnings
with warnings.catch_warnings(record=True) as caught:
    warnings.simplefilter("always")
    import toy_product  # before the registry, which it imports itself
    from theory.models.registry import MODELS
assert MODELS["toy_product"] == toy_product.MODEL
assert any("broken" in str(w.message) for w in caught), "a package that does not load is not named"
from importlib import import_module
for words in ("theory toy_product", "theory.onset toy_product --json", "theory.latex toy_product", "verify.gradients toy_product",
              "simulate toy_product --seeds 2 --workers 1 --quiet", "simulate.sweep toy_product --grid a_0=0.01,0.02 --seeds 1 --workers 1 --quiet --out sweep",
              "verify.trajectories toy_product --quiet", "papers toy --claims --run gradients --quiet", "papers toy --claims --json"):
    module, *rest = words.split()
    name = module if "." in module else f"{module}.__main__"
    code = import_module(name).main(rest)
    assert code == 0, (words, code)
print("all served")
"""


def test_a_model_of_another_package(tmp_path, monkeypatch, forked):
    """Derivation, onset, LaTeX, students, a sweep, checks and a ledger, without an edit
    here; a broken package is named and left out.
    """
    for name, text in FILES.items():
        path = tmp_path / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(textwrap.dedent(text))
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(tmp_path)
    done = forked(lambda: exec(RUN, {}), seconds=300, anew=True)
    assert done.returncode == 0, done.stderr[-1500:]
    assert (
        done.stdout.rstrip().endswith("all served") and "1 exact, 0 FAIL" in done.stdout
    )
    assert (tmp_path / "toy_product/papers/evidence.json").is_file() and list(
        (tmp_path / "sweep").rglob("*.nc")
    )
