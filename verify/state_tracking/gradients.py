"""Every derivative of the state-tracking theory against autograd of the actual model.

Each group of checks takes the table of Equations, so that tests can pass a faulty one and confirm
that it is detected. `COVERS` lists the equations that each group tests.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable

import numpy as np
import torch
from sympy import KroneckerDelta

from simulate.state_tracking.gradients import Grouped, Plain
from simulate.state_tracking.student import Student, Students
from theory.equation import Equation
from theory.state_tracking import Parameters, definitions, dressed, dynamics, equations, task
from theory.state_tracking.micro import ALL, OWN
from theory.state_tracking.symbols import i as i_symbol
from theory.state_tracking.symbols import k as k_symbol
from verify.check import Check, Sides, identity, sampled
from verify.report import Table, derivations

P = Parameters(
    N=4, L=3, d_g=4, d_h=6, rope_theta=10.0
)  # frequencies that distinguish three positions
DRAWS = 8000  # standard errors below 1%: an error of 5% is detected at 5 sigma or more
EXACT, EXACT_WHY = 1e-12, "both sides float64, few operations"
AUTOGRAD, AUTOGRAD_WHY = 1e-9, "autograd in float64"
GENERATOR = 20260616  # any fixed seed; the checks hold for all


class Inputs:
    """All d_g^L N inputs of a tiny task, random matrices, and mean logits as autograd functions of
    M and A.
    """

    def __init__(self, p: Parameters = P, seed: int = GENERATOR) -> None:
        rng = np.random.default_rng(seed)
        self.p, self.rng = p, rng
        self.perms = task.draw_permutations(p, rng)
        self.teachers = torch.tensor(task.teacher_matrices(self.perms))
        every = np.array(list(itertools.product(*[range(p.d_g)] * p.L, range(p.N))))
        states = [every[:, -1]]
        for t in range(p.L):
            states.append(self.perms[every[:, t], states[-1]])
        self.actions, self.states = torch.tensor(every[:, : p.L]), torch.tensor(np.stack(states, 1))
        self.student = Student(p, task.draw_weights(p, rng), torch.float64)
        self.M = self.student.M
        self.A = torch.tensor(0.37, dtype=torch.float64, requires_grad=True)
        self.tau = task.teacher_overlap(self.perms)

    def attention(self) -> torch.Tensor:
        """Attention of the ansatz: A on the right action, uniform elsewhere."""
        eye = torch.eye(self.p.L, dtype=torch.float64)
        return self.A * eye + (1 - self.A) / (self.p.L - 1) * (1 - eye)

    def mean_logits(self) -> tuple[torch.Tensor, torch.Tensor]:
        """Mean correct and mean other logit over all inputs, through the student's own logic
        module.
        """
        current = self.states[:, :-1]
        logits = self.student.logic(
            self.student.retrieve(self.attention()[None], self.actions), current
        )
        correct = logits.gather(2, self.states[:, 1:, None])
        other = (logits.sum(2, keepdim=True) - correct) / (self.p.N - 1)
        return correct.mean(), other.mean()

    def overlaps(self) -> tuple[torch.Tensor, torch.Tensor]:
        """R and S by definition (9): traces, pair by pair."""
        p = self.p
        trace = (
            torch.stack(
                [torch.stack([torch.trace(t.T @ m) for m in self.M]) for t in self.teachers]
            )
            / p.N
        )
        R = trace.diagonal().mean()
        return R, (trace.sum() - trace.diagonal().sum()) / (p.d_g * (p.d_g - 1))

    def loss(self) -> torch.Tensor:
        """Mean-field loss: cross-entropy of a logit vector made of the two means."""
        return cross_entropy(*self.mean_logits(), self.p.N)

    def values(self) -> dict[str, float]:
        """Numbers by symbol name at this point."""
        R, S = (v.detach() for v in self.overlaps())
        correct, other = (v.detach() for v in self.mean_logits())
        p, A = self.p, float(self.A.detach())
        c_R = A + (1 - A) / p.d_g
        at = {
            "N": p.N,
            "L": p.L,
            "d_g": p.d_g,
            "d_h": p.d_h,
            "eta": p.eta,
            "A": A,
            "R": float(R),
            "S": float(S),
            "z_k": float(correct),
            "z_kbar": float(other),
            "m": float(correct - other),
            "c_R": c_R,
            "c_S": 1 - c_R,
            "tau": self.tau,
            "zeta": float(self.M.detach().sum() / (p.d_g * p.N)),
            "pi_i": A,
        }
        # Softmax of the mean logits: probability of wrong states.
        vector = torch.tensor([at["z_k"]] + [at["z_kbar"]] * (p.N - 1), dtype=torch.float64)
        return at | {"g": float(1 - torch.softmax(vector, 0)[0])}


def cross_entropy(correct: torch.Tensor, other: torch.Tensor, N: int) -> torch.Tensor:
    """Cross-entropy of the vector (correct, other, ..., other)."""
    logits = torch.cat([correct[None], other.expand(N - 1)])
    return torch.nn.functional.cross_entropy(logits[None], torch.tensor([0]))


def grad(of: torch.Tensor, by: torch.Tensor) -> np.ndarray:
    """Gradient as an array."""
    return torch.autograd.grad(of, by, retain_graph=True)[0].numpy()


def mean_logits(eq: Table) -> list[Check]:
    """Mean logits (11, 12, 35) over all inputs."""
    x = Inputs()
    values, (correct, other) = x.values(), (v.detach() for v in x.mean_logits())
    sides = Sides(eq, EXACT, "exact average over all inputs, float64")
    sides.add("mean correct logit", "logit_correct", values, correct)
    sides.add("  at one position", "logit_correct_position", values, correct)
    sides.add("mean other logit", "logit_other", values, other)
    return sides.checks()


def loss_derivatives(eq: Table) -> list[Check]:
    """Loss (10) and its derivatives with respect to the logits (43) and A (61)."""
    x = Inputs()
    values = x.values()
    z = [
        torch.tensor(values[k], dtype=torch.float64, requires_grad=True) for k in ("z_k", "z_kbar")
    ]
    loss = cross_entropy(z[0], z[1], x.p.N)
    sides = Sides(eq, AUTOGRAD, AUTOGRAD_WHY)
    for name, equation, measured in (
        ("mean-field loss", "loss", float(loss.detach())),
        ("mean-field loss by the margin", "loss_of_margin", float(loss.detach())),
        ("margin", "margin", values["z_k"] - values["z_kbar"]),
        ("mass on wrong states", "g", values["g"]),
        ("dl/dz_k", "dloss_dz_k", grad(loss, z[0])),
        ("dl/dz_kbar", "dloss_dz_kbar", grad(loss, z[1])),
        ("dl/dA through all inputs", "dloss_dA", grad(x.loss(), x.A)),
    ):
        sides.add(name, equation, values, measured)
    return sides.checks()


def of_entries(equation: Equation, x: Inputs) -> np.ndarray:
    """Evaluate an equation in the entries of M* for every (b, r, s) at once."""
    own = x.teachers.numpy()
    return equation.evaluate({**x.values(), OWN: own, ALL: own.sum(0)})


def entry_derivatives(eq: Table) -> list[Check]:
    """Derivatives with respect to single entries of M (47-49) and their update (52)."""
    x = Inputs()
    R, S = x.overlaps()
    correct, other = x.mean_logits()
    step = -x.p.eta * grad(x.loss(), x.M)
    pairs = [
        ("dR/dM", "dR_dM", grad(R, x.M)),
        ("dS/dM", "dS_dM", grad(S, x.M)),
        ("dz_k/dM through all inputs", "dz_k_dM", grad(correct, x.M)),
        ("dz_kbar/dM through all inputs", "dz_kbar_dM", grad(other, x.M)),
        ("update of M through all inputs", "update_M", step),
    ]
    return [
        identity(name, e, of_entries(eq[e], x), measured, AUTOGRAD, AUTOGRAD_WHY)
        for name, e, measured in pairs
    ]


def projected(x: Inputs) -> tuple[float, float]:
    """Changes of R and S in one epoch of descent on the mean-field loss; exact, as they are linear
    in M.
    """
    R, S = x.overlaps()
    step = -x.p.eta * grad(x.loss(), x.M)
    return float((grad(R, x.M) * step).sum()), float((grad(S, x.M) * step).sum())


def overlap_updates(eq: Table) -> list[Check]:
    """Updates of R and S with the drawn teachers' tau (54, 56), and sigma = tau (58)."""
    x = Inputs()
    values, (dR, dS) = x.values(), projected(x)
    own = x.teachers.numpy()
    triples = [np.trace(own[a].T @ own[c]) for a, b, c in itertools.permutations(range(x.p.d_g), 3)]
    sides, exact = Sides(eq, AUTOGRAD, AUTOGRAD_WHY), Sides(eq, EXACT, EXACT_WHY)
    sides.add("update of R", "delta_R", values, dR)
    sides.add("update of S", "delta_S", values, dS)
    exact.add("sigma = tau", "sigma_overlap", values, np.mean(triples) / x.p.N)
    return [*sides.checks(), *exact.checks()]


def seed_means(eq: Table) -> list[Check]:
    """Updates averaged over drawn teachers (59), and the mean overlaps (77 and for independent
    draws).

    All draws start from M = 0, with the same logits and hence the same g; one autograd call gives
    the descent step of every draw.
    """
    p = P.replace(L=2)
    x, rng = Inputs(p), np.random.default_rng(GENERATOR)
    kinds = {kind: p.replace(permutations=kind) for kind in ("iid", "distinct")}
    drawn = {
        kind: np.stack([task.draw_permutations(q, rng) for _ in range(DRAWS)])
        for kind, q in kinds.items()
    }
    perms = torch.tensor(drawn["iid"])
    M = torch.zeros(DRAWS, p.d_g, p.N, p.N, dtype=torch.float64, requires_grad=True)
    o = x.student.retrieve(x.attention()[None], x.actions).detach()
    current = x.states[None, :, 0].expand(DRAWS, -1)
    correct = total = torch.zeros(DRAWS, dtype=torch.float64)
    for t in range(p.L):
        following = perms[torch.arange(DRAWS)[:, None], x.actions[:, t], current]
        state = torch.nn.functional.one_hot(current, p.N).double()
        weight = (o[None, :, t, :, None] * state[:, :, None, :]).flatten(
            2
        )  # (draw, input, action and state)
        logits = weight @ M.permute(0, 1, 3, 2).flatten(1, 2)
        correct = correct + logits.gather(2, following[..., None]).mean(1)[:, 0] / p.L
        total = total + logits.sum(2).mean(1) / p.L
        current = following
    other = (total - correct) / (p.N - 1)
    wide = torch.cat([correct[:, None], other[:, None].expand(-1, p.N - 1)], 1)
    loss = torch.nn.functional.cross_entropy(
        wide, torch.zeros(DRAWS, dtype=torch.long), reduction="sum"
    )
    step = -p.eta * torch.autograd.grad(loss, M)[0]
    teachers = torch.nn.functional.one_hot(perms, p.N).transpose(2, 3).double()
    own = (teachers * step).sum((1, 2, 3)) / (p.d_g * p.N)
    every = (teachers.sum(1) * step.sum(1)).sum((1, 2))
    off = (every / p.N - own * p.d_g) / (p.d_g * (p.d_g - 1))
    values = x.values() | {"g": 1 - 1 / p.N}
    overlaps = {
        kind: [task.teacher_overlap(perm) for perm in perms] for kind, perms in drawn.items()
    }
    return [
        sampled(
            "update of R, mean over teachers",
            "delta_R_mean",
            eq["delta_R_mean"].evaluate(values),
            own,
        ),
        sampled(
            "update of S, mean over teachers",
            "delta_S_mean",
            eq["delta_S_mean"].evaluate(values),
            off,
        ),
        *(
            sampled(
                f"mean teacher overlap, {kind}",
                f"tau_bar_{kind}",
                eq[f"tau_bar_{kind}"].evaluate({"N": P.N}),
                found,
            )
            for kind, found in overlaps.items()
        ),
    ]


def chain(eq: Table, x: Inputs, pi: np.ndarray) -> dict[str, np.ndarray]:
    """grad_W A from the pieces (65)-(68), for any attention matrix."""
    p = x.p
    q, k = (w.detach().numpy().reshape(-1, 2).T for w in (x.student.W_Q, x.student.W_K))
    i, j = np.indices((p.L, p.L))
    at = {
        "q_1": q[0],
        "q_2": q[1],
        "k_1": k[0],
        "k_2": k[1],
        "omega_n": p.frequencies,
        "d_h": p.d_h,
        "Delta_ij": (j - i - p.L)[..., None],
    }
    softmax = eq["softmax_derivative"]
    pi_i, pi_k, same = (
        definitions.pi[i_symbol],
        definitions.pi[k_symbol],
        KroneckerDelta(i_symbol, k_symbol),
    )
    right = pi.diagonal()[:, None]
    d_softmax = softmax.evaluate({same: np.eye(p.L), pi_i: right, pi_k: pi})
    d_A = eq["dA_dpi"].evaluate({"L": p.L})
    out = {}
    for w in "qk":
        parts = [
            np.einsum(
                "ij,ijn->n",
                d_A * d_softmax,
                np.broadcast_to(eq[f"dl_d{w}_{c}"].evaluate(at), (p.L, p.L, p.d_h // 2)),
            )
            for c in (1, 2)
        ]
        out[w] = np.stack(parts, 1).ravel()
    return out


class Pinned(torch.nn.Module):
    """A of a student whose attention is set to the ansatz, with the derivatives of the actual
    logits.
    """

    def __init__(self, student: Student, A: float) -> None:
        super().__init__()
        self.student, eye = student, torch.eye(student.p.L, dtype=torch.float64)
        self.target = A * eye + (1 - A) / (student.p.L - 1) * (1 - eye)
        self.tokens = torch.zeros(1, student.p.L, dtype=torch.long)  # irrelevant here

    def forward(self) -> torch.Tensor:
        """Mean attention on the right action."""
        real = self.student.attention(self.tokens, self.tokens)[0].log()
        return torch.softmax(real - real.detach() + self.target.log(), dim=1).diagonal().mean()


def ansatz_factor(student: Student, A: float, W_Q: torch.Tensor, W_K: torch.Tensor) -> np.ndarray:
    """d_g N |grad_W A|^2 under the ansatz, by autograd, for a batch of keys and queries
    ``(draws, d_h, 1)``.
    """
    module = Pinned(student, A)

    def value(q: torch.Tensor, k: torch.Tensor) -> torch.Tensor:
        return torch.func.functional_call(module, {"student.W_Q": q, "student.W_K": k}, ())

    found = torch.func.vmap(torch.func.grad(value, argnums=(0, 1)))(W_Q, W_K)
    return student.p.d_g * student.p.N * sum(g.square().sum((1, 2)) for g in found).detach().numpy()


def attention_derivatives(eq: Table) -> list[Check]:
    """Attention logit (5), grad A by the chain (62)-(68) through the real attention, Lambda (70),
    c(A) (69).
    """
    x = Inputs()
    p, student = x.p, x.student
    pi = student.attention(x.actions[:1], x.states[:1, :-1])[0]
    found = dict(
        zip(
            "qk", torch.autograd.grad(pi.diagonal().mean(), [student.W_Q, student.W_K]), strict=True
        )
    )
    pieces = chain(eq, x, pi.detach().numpy())
    q, k = (w.detach().numpy().reshape(-1, 2).T for w in (student.W_Q, student.W_K))
    offset = np.arange(p.L)[None, :] - np.arange(p.L)[:, None] - p.L
    logits = (
        eq["attention_logit"]
        .evaluate(
            {
                "q_1": q[0],
                "q_2": q[1],
                "k_1": k[0],
                "k_2": k[1],
                "d_h": p.d_h,
                "omega_n": p.frequencies,
                "Delta_ij": offset[..., None],
            }
        )
        .sum(-1)
    )
    rows = np.exp(logits) / np.exp(logits).sum(1, keepdims=True)
    omega = p.frequencies[1:]
    i, j = np.indices((p.L, p.L))
    double_sum = np.array([np.cos(w * (i - j))[i != j].mean() for w in omega])
    norms = {f"W_{w.upper()}2": (v**2).sum(0) for w, v in (("q", q), ("k", k))}
    lam = np.append(1.0, eq["lambda"].evaluate({"omega_n": omega, "L": p.L}))  # omega_1 = 2 pi
    values = {"A": 0.37, "N": p.N, "d_g": p.d_g, "d_h": p.d_h, "lambda": lam, **norms}
    return [
        identity("attention", "attention_logit", rows, pi.detach().numpy(), EXACT, EXACT_WHY),
        identity(
            "grad A by W_Q",
            "dl_dq_1, dl_dq_2, softmax_derivative, dA_dpi",
            pieces["q"],
            found["q"][:, 0].numpy(),
            AUTOGRAD,
            AUTOGRAD_WHY,
        ),
        identity(
            "grad A by W_K",
            "dl_dk_1, dl_dk_2, softmax_derivative, dA_dpi",
            pieces["k"],
            found["k"][:, 0].numpy(),
            AUTOGRAD,
            AUTOGRAD_WHY,
        ),
        identity(
            "lambda_n, mean over pairs i != k", "lambda", lam[1:], double_sum, EXACT, EXACT_WHY
        ),
        identity(
            "c(A) with attention pinned to the ansatz",
            "c_ansatz",
            eq["c_ansatz"].evaluate(values),
            ansatz_factor(student, 0.37, student.W_Q[None], student.W_K[None])[0],
            AUTOGRAD,
            AUTOGRAD_WHY,
        ),
    ]


def attention_constant(eq: Table) -> list[Check]:
    """c_omega (14) and the averaged c(A) against the mean over drawn keys and queries, at two
    settings.
    """
    out = []
    for name, p in (("tiny", P), ("Table 2", Parameters.table_2())):
        rng = np.random.default_rng(GENERATOR)
        student = Student(
            p.replace(N=2, d_g=2), task.draw_weights(p.replace(N=2, d_g=2), rng), torch.float64
        )
        scale = (
            p.d_g * p.N / 4
        )  # the factor d_g N of the full size; attention does not depend on N and d_g
        W_Q, W_K = (torch.tensor(rng.uniform(-1, 1, (DRAWS, p.d_h, 1))) for _ in "QK")
        start, later = (scale * ansatz_factor(student, A, W_Q, W_K) for A in (1 / p.L, 0.6))
        values = p.values() | {"c_omega": eq["c_omega"].evaluate(p.values())}
        ansatz = eq["c_ansatz_mean"].evaluate({**values, "A": 0.6})
        closure = eq["c_closure"].evaluate({**values, "A": 1 / p.L})
        out += [
            sampled(f"c_omega, {name}", "c_omega", values["c_omega"], start / (1 - 1 / p.L)),
            sampled(f"mean c(A) at A = 0.6, {name}", "c_ansatz_mean", ansatz, later),
            sampled(f"closure at A = 1/L, {name}", "c_closure", closure, start),
        ]
    return out


def flow_increments(eq: Table) -> list[Check]:
    """One small step of descent on the mean-field loss changes A, R and S as in the flow.

    W_Q, W_K and M are all trained; A is that of the actual attention. The flow is given the drawn
    teachers' tau and the c_omega that makes its closure exact at this point; the limit of a
    vanishing step is taken by extrapolating two steps.
    """
    x = Inputs()
    p, student = x.p, x.student

    def state() -> torch.Tensor:
        x.A = student.attention(x.actions[:1], x.states[:1, :-1])[0].diagonal().mean()
        return torch.stack([x.A, *x.overlaps()])

    before = state()
    weights = [student.W_Q, student.W_K, student.M]
    steps = torch.autograd.grad(x.loss(), weights, retain_graph=True)
    factor = (
        p.d_g
        * p.N
        * sum(float(g.square().sum()) for g in torch.autograd.grad(before[0], weights[:2]))
    )
    values = x.values()
    values["c_omega"] = factor / (p.L * values["A"] * (1 - values["A"]))
    start = [w.detach().clone() for w in weights]

    def slope(h: float) -> np.ndarray:
        for w, w0, g in zip(weights, start, steps, strict=True):
            w.data = w0 - p.eta * p.d_g * p.N * h * g
        return ((state() - before) / h).detach().numpy()

    h = 1e-4
    measured = 2 * slope(h / 2) - slope(h)
    system = dynamics.flow("tau")
    chained = eq["dA_dalpha_chain"].evaluate({**values, "c_A": factor})
    predicted = {
        s.name: Equation(s.name, s, rhs, "", "exact").evaluate(values)
        for s, rhs in system.expanded.items()
    }
    why = "third-order term of the extrapolation, step 1e-4"
    names = ["dA_dalpha", "dR_dalpha", "dS_dalpha"]
    return [
        identity("dA/dalpha by the chain rule", "dA_dalpha_chain", chained, measured[0], 1e-6, why),
        *(
            identity(f"d{s}/dalpha of the flow", e, predicted[s], v, 1e-6, why)
            for s, e, v in zip("ARS", names, measured, strict=True)
        ),
    ]


def flow_at_paper_overlap(eq: Table) -> list[Check]:
    """The flow (15) at tau = 1/N against its pieces: mean updates per epoch and the closed
    attention equation.
    """
    x = Inputs()
    values = x.values() | {"c_omega": 0.83}
    c_A = eq["c_closure"].evaluate(values)
    pieces = {
        "A": eq["dA_dalpha_chain"].evaluate({**values, "c_A": c_A}),
        "R": eq["delta_R"].evaluate({**values, "tau": 1 / x.p.N}) * x.p.d_g * x.p.N,
        "S": eq["delta_S"].evaluate({**values, "tau": 1 / x.p.N}) * x.p.d_g * x.p.N,
    }
    spelled = dynamics.flow().where
    out = []
    for name, piece in pieces.items():
        rhs = eq[f"d{name}_dalpha"].rhs
        for short, meaning in spelled.items():
            rhs = rhs.subs(short, meaning)
        flow_value = Equation(name, rhs, rhs, "", "exact").evaluate(values)
        out.append(
            identity(
                f"flow (15) of {name} from its pieces",
                f"d{name}_dalpha",
                flow_value,
                piece,
                EXACT,
                EXACT_WHY,
            )
        )
    return out


def dressed_derivatives(eq: Table) -> list[Check]:
    """Forces of the dressed loss by autograd of its definition, and the decay of M's variance by an
    exact Hessian.
    """
    N, d_g, V, R, S, zeta = 6, 5, 0.3, 0.7, 0.1, 0.2
    row = torch.tensor(
        [0.4, 0.1, 0.2, 0.3], dtype=torch.float64, requires_grad=True
    )  # the first is the right action

    def loss(detach: bool) -> torch.Tensor:
        c_R = row[0] + (1 - row[0]) / d_g
        right = c_R * R + (1 - c_R) * S
        z = torch.cat([right[None], ((zeta - right) / (N - 1)).expand(N - 1)])
        noise = V * ((1 - 1 / d_g) * row.square().sum() + 1 / d_g)
        weights = torch.softmax(z, 0)
        cost = (weights * (1 - weights)).sum()  # sum of second derivatives of ln Z
        return torch.logsumexp(z, 0) - right + (noise.detach() if detach else noise) * cost / 2

    (whole,), (part,) = (torch.autograd.grad(loss(detach), row) for detach in (False, True))
    margin = eq["margin_position"].evaluate(
        {"pi_i": 0.4, "N": N, "d_g": d_g, "R": R, "S": S, "zeta": zeta}
    )
    values = {
        "N": N,
        "d_g": d_g,
        "R": R,
        "S": S,
        "g": eq["g"].evaluate({"N": N, "m": margin}),
        "V_M": V,
        "v_i": V * ((1 - 1 / d_g) * 0.3 + 1 / d_g),
    }
    values["h_i"] = eq["noise_cost"].evaluate(values)
    entry = dressed.pi[dressed.i, dressed.j]
    against = [eq["dloss_dpi_noise"].evaluate({**values, entry: x}) for x in row.tolist()]
    out = [
        identity(
            "force on the right action",
            "dloss_dpi_margin",
            eq["dloss_dpi_margin"].evaluate(values),
            part[0].item(),
            AUTOGRAD,
            AUTOGRAD_WHY,
        ),
        identity(
            "force against concentration",
            "dloss_dpi_noise",
            against,
            (whole - part).numpy(),
            AUTOGRAD,
            AUTOGRAD_WHY,
        ),
    ]
    # Every sequence of a small task at M = 0, where all logits are equal: curvature of the loss
    # along single entries.
    p = Parameters(N=3, L=2, d_g=3, d_h=4, eta=0.7)
    rng = np.random.default_rng(GENERATOR)
    student = Student(
        p, {**task.draw_weights(p, rng), "M": np.zeros((p.d_g, p.N, p.N))}, torch.float64
    )
    perms, starts = task.draw_permutations(p, rng), np.arange(p.N)
    every = np.array(list(itertools.product(range(p.d_g), range(p.d_g), starts)))
    states = [every[:, 2]]
    for t in range(p.L):
        states.append(perms[every[:, t], states[-1]])
    actions, path = torch.as_tensor(every[:, : p.L]), torch.as_tensor(np.stack(states, 1))
    weights = dict(student.named_parameters())

    def of_M(M: torch.Tensor) -> torch.Tensor:
        logits = torch.func.functional_call(
            student, {**weights, "M": M.reshape(student.M.shape)}, (actions, path[:, :-1])
        )
        return torch.nn.functional.cross_entropy(logits.flatten(0, 1), path[:, 1:].flatten())

    hessian = torch.autograd.functional.hessian(
        of_M, torch.zeros(student.M.numel(), dtype=torch.float64)
    )
    bend = torch.as_tensor(hessian).diagonal().mean().item()
    at = student.attention(actions[:1], path[:1, :-1])[0].detach().numpy()
    spread = eq["spread"].evaluate({"participation": (at**2).sum(1), "d_g": p.d_g})
    curvature = np.full(p.L, eq["curvature"].evaluate({"g": 1 - 1 / p.N, "N": p.N}))
    rate = eq["dV_dalpha"].evaluate(
        {"spread": spread, "curvature": curvature, "eta": p.eta, "V_M": V, "L": p.L}
    )
    return [
        *out,
        identity(
            "decay of the variance of M at M = 0",
            "dV_dalpha",
            rate,
            -2 * p.eta * p.d_g * p.N * bend * V,
            AUTOGRAD,
            AUTOGRAD_WHY,
        ),
    ]


def engine(eq: Table) -> list[Check]:
    """The training code's hand-written gradients against autograd of the plain module."""
    p = Parameters(N=6, L=5, d_g=5, d_h=8, n_train=64)
    rng = np.random.default_rng(GENERATOR)
    data = task.draw_sequences(task.draw_permutations(p, rng), p.n_train, p.L, rng)
    student = Student(p, task.draw_weights(p, rng), torch.float64)
    students = Students([student])
    losses, grads = [], []
    for kind in (Grouped, Plain):
        way = kind(students, [data])
        way.gradients(students)
        losses.append(float(way.statistics(students)["loss"]))
        grads.append(
            {
                name: w.grad.numpy().copy()
                for name, w in students.named_parameters()
                if w.grad is not None
            }
        )
    out = [identity("training loss", "engine", losses[0], losses[1], EXACT, EXACT_WHY)]
    out += [
        identity(
            f"training gradient of {name}",
            "engine",
            grads[0][name],
            grads[1][name],
            EXACT,
            EXACT_WHY,
        )
        for name in grads[0]
    ]
    return out


COVERS: dict[Callable[[Table], list[Check]], tuple[str, ...]] = {
    mean_logits: ("logit_correct", "logit_correct_position", "logit_other"),
    loss_derivatives: (
        "loss",
        "loss_of_margin",
        "margin",
        "g",
        "dloss_dz_k",
        "dloss_dz_kbar",
        "dloss_dA",
    ),
    entry_derivatives: ("dR_dM", "dS_dM", "dz_k_dM", "dz_kbar_dM", "update_M"),
    overlap_updates: ("delta_R", "delta_S", "sigma_overlap"),
    seed_means: ("delta_R_mean", "delta_S_mean", "tau_bar_iid", "tau_bar_distinct"),
    attention_derivatives: (
        "attention_logit",
        "dA_dpi",
        "softmax_derivative",
        "dl_dq_1",
        "dl_dq_2",
        "dl_dk_1",
        "dl_dk_2",
        "lambda",
        "c_ansatz",
    ),
    attention_constant: ("c_omega", "c_ansatz_mean", "c_closure"),
    flow_increments: ("dA_dalpha_chain",),
    flow_at_paper_overlap: ("dA_dalpha", "dR_dalpha", "dS_dalpha"),
    dressed_derivatives: ("dloss_dpi_margin", "dloss_dpi_noise", "dV_dalpha"),
    engine: (),
}

checks, report = derivations(COVERS, equations)
