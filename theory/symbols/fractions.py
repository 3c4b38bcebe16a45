"""Exact algebra by FLINT: expressions as fractions of polynomials in independent
generators.

A generator is a symbol, an exponential, a logarithm, a root, or anything that is not
looked into, as a sum or a function of which nothing is known. Exponentials are
independent because their exponents are, over the rational numbers: `exp(2*x)` is the
square of `exp(x)`. Trigonometric functions are exponentials, a root satisfies its
relation. Equal functions are therefore equal fractions, and whether an expression
vanishes is decided, not tried.
"""

from __future__ import annotations

import functools
import itertools
import math
import operator
from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import flint
import sympy as sp
from sympy.concrete.expr_with_limits import AddWithLimits
from sympy.functions.elementary.hyperbolic import HyperbolicFunction
from sympy.functions.elementary.trigonometric import TrigonometricFunction

Poly = Any  # flint.fmpz_mpoly
# a power of a generator, factors of what multiplies it, operations of both
Part = tuple[Poly, list[tuple[Poly, int]], int]
MOST_PRODUCTS = 2_000_000  # of terms, in one multiplication: about a second of FLINT
MOST_TERMS = 20_000  # of a polynomial
MOST_FACTORED = 4_000  # terms of a polynomial whose factors are looked for
MOST_COLLECTED = 200  # terms of one that is printed by powers of each generator
MOST_PARTS = 8  # unknown numbers in partial fractions
HIGHEST = 200  # power of a sum
MOST_EXPONENTS = 40  # fractions of which linear relations are looked for
_UNKNOWN = (sp.oo, -sp.oo, sp.zoo, sp.nan, sp.Float)
STEPPED = (sp.harmonic, sp.gamma)  # known at x + 1 from x


class NotRational(Exception):
    """An expression is no fraction of generators, or too long to be written as one."""


@dataclass(frozen=True)
class Fraction:
    """A fraction without common factors; ``bottom`` has a positive leading sign."""

    top: Poly
    bottom: Poly


class Field:
    """The fractions of all generators in some expressions.

    Parameters
    ----------
    *expressions : Expr
    trigonometric : bool
        Write trigonometric and hyperbolic functions as exponentials, which relates
        them, and not as generators, which leaves them as they are.

    Attributes
    ----------
    generators : list of Symbol
        Those that a fraction may contain.
    """

    def __init__(self, *expressions: sp.Expr, trigonometric: bool = True) -> None:
        if any(e.has(*_UNKNOWN) for e in expressions):
            raise NotRational("rounded or infinite numbers")
        self._names = _Names(trigonometric)
        self._spelled = {e: self._names.spelled(e) for e in expressions}
        self._ring = _Ring(self._names, self._spelled.values())

    @property
    def generators(self) -> list[sp.Symbol]:
        """Symbols that stand for the generators."""
        return self._ring.symbols

    def fraction(self, expr: sp.Expr) -> Fraction:
        """One of the expressions that the field was made of, as a fraction."""
        return self._ring.fraction(self._spelled[expr])

    def expr(self, poly: Poly) -> sp.Expr:
        """A polynomial of the field, multiplied out."""
        return self._names.meant(self._ring.written(poly))

    def factored(self, value: Fraction) -> sp.Expr:
        """A fraction in factors, each with its terms collected if that is shorter."""
        top, bottom = self.factors(value.top), self.factors(value.bottom)
        below = self._product(bottom, self._collected)
        return self._product(top, self._collected) / below

    def length(self, value: Fraction) -> int:
        """About how many operations a fraction in factors has, before it is written."""
        factors = self.factors(value.top) + self.factors(value.bottom)
        return sum(self._plan(poly)[0] + (k > 1) + 1 for poly, k in factors)

    def over_one_denominator(self, value: Fraction) -> sp.Expr:
        """A fraction with its top multiplied out, over the factors of its bottom."""
        common = value.top.term_content()
        top = [(common, 1), (value.top / common, 1)] if value.top != 0 else []
        bottom = self._product(self.factors(value.bottom), self.expr)
        return self._product(top, self.expr) / bottom if top else sp.S.Zero

    def partial_fractions(self, value: Fraction) -> sp.Expr | None:
        """A fraction as a sum over the factors of its bottom that depend on one
        generator; None if no sum is short enough.
        """
        factors = self.factors(value.bottom)
        best = None
        for place, symbol in enumerate(self._ring.symbols):
            moving = [f for f in factors if f[0].degrees()[place]]
            parts = sum(k for _, k in moving)
            size = sum(f.degrees()[place] * k for f, k in moving)
            size = max(size, value.top.degrees()[place] + 1)
            if parts < 2 or size > MOST_PARTS or symbol in self._names.root_of:
                continue
            if best is None or size < best[0]:
                best = (size, place, moving)
        if best is None or len(value.top) > MOST_COLLECTED:
            return None
        terms = self._ring.partial_fractions(value, *best[1:])
        return sp.Add(*map(self.factored, terms))

    def _product(
        self, factors: list[tuple[Poly, int]], write: Callable[[Poly], sp.Expr]
    ) -> sp.Expr:
        made = sp.S.One
        for poly, power in factors:
            part = write(poly)
            if part.is_Add and part.could_extract_minus_sign():
                part = -(write(-poly))
            made *= part**power
        return made

    def factors(self, poly: Poly) -> list[tuple[Poly, int]]:
        """Irreducible factors of a polynomial and their powers, a number first.

        Raises
        ------
        NotRational
            If it is too long.
        """
        if len(poly) > MOST_FACTORED:
            raise NotRational("too long to be factored")
        number, others = self._ring.factors(poly)
        return [(self._ring.one * number, 1), *others]

    def _collected(self, poly: Poly) -> sp.Expr:
        """A polynomial, by powers of the generator for which that is shortest."""
        _, parts = self._plan(poly)
        if not parts:
            return self.expr(poly)
        total = sp.S.Zero
        for power, factors, _ in parts:
            total += self.expr(power) * self._product(factors, self.expr)
        return total

    def _plan(self, poly: Poly) -> tuple[int, list[Part]]:
        """Operations of a polynomial, and its parts by powers of one generator if that
        is shorter than to multiply it out.
        """
        best, by = self._length(poly), list[Part]()
        if 2 < len(poly) <= MOST_COLLECTED:
            for place, degree in enumerate(poly.degrees()):
                if 0 < degree < len(poly) - 1:
                    parts = self._by_powers(poly, place)
                    length = sum(n for *_, n in parts) + len(parts) - 1
                    if length < best:
                        best, by = length, parts
        return best, by

    def _by_powers(self, poly: Poly, place: int) -> list[Part]:
        """Powers of a generator, factors of what multiplies each, and the operations
        of both.
        """
        ring, made = self._ring, []
        moves = [k == place for k in range(len(ring.symbols))]
        for powers, part in ring.parts(poly, moves).items():
            power = ring.context.from_dict({powers: 1})
            factors = self.factors(part)
            lengths = [self._length(f) + (k > 1) for f, k in factors if f != 1]
            lengths += [self._length(power)] if power != 1 else []
            made.append((power, factors, sum(lengths) + len(lengths) - 1))
        return made

    def _length(self, poly: Poly) -> int:
        """Operations of a polynomial that is multiplied out."""
        total = -1
        for powers, c in poly.to_dict().items():
            lengths = [
                n + (k > 1) for k, n in zip(powers, self._lengths, strict=False) if k
            ]
            total += sum(lengths) + max(0, len(lengths) - (abs(c) == 1)) + 1
        return total

    @functools.cached_property
    def _lengths(self) -> list[int]:
        """Operations of the generators."""
        return [operations(self._names.meant(s)) for s in self._ring.symbols]

    def vanishing_sum(
        self, expressions: Sequence[sp.Expr], moving: Collection[sp.Symbol]
    ) -> list[Fraction] | None:
        """Factors of all expressions but the first with which they add up to zero; see
        the function of this name.
        """
        ring, values = self._ring, [self.fraction(e) for e in expressions]
        common = ring.common_bottom(values)
        moves = [self._names.meant(s).has(*moving) for s in ring.symbols]
        rows: dict[tuple[int, ...], list[Poly]] = {}
        for k, v in enumerate(values):
            for powers, part in ring.parts(v.top * (common / v.bottom), moves).items():
                row = rows.setdefault(powers, [ring.zero] * len(values))
                row[k] = part
        table = []
        for first, *others in rows.values():
            row = [*others, -first]
            table.append([Fraction(x, ring.one) for x in row])
        return ring.solved(table, len(values) - 1)


class _Names:
    """Symbols that stand for generators, and what they mean."""

    def __init__(self, trigonometric: bool) -> None:
        self.trigonometric = trigonometric
        self.meaning: dict[sp.Symbol, sp.Expr] = {}
        self.root_of: dict[sp.Symbol, sp.Expr] = {}  # in symbols for generators
        self._known: dict[Any, sp.Symbol] = {}
        self._memory: dict[sp.Expr, sp.Expr] = {}
        self._exponents: dict[sp.Expr, sp.Expr] = {}  # and what their exponentials are
        self._logarithms: dict[sp.Symbol, sp.Expr] = {}

    def name(self, key: Any, meaning: sp.Expr) -> sp.Symbol:
        """The symbol for a generator."""
        if key not in self._known:
            real = not meaning.has(sp.I) and all(
                s.is_extended_real for s in meaning.free_symbols
            )
            positive = (isinstance(meaning, sp.exp | sp.Pow) and real) or None
            made = sp.Dummy(f"g{len(self._known)}", positive=positive)
            self._known[key], self.meaning[made] = made, meaning
        return self._known[key]

    def meant(self, expr: sp.Expr) -> sp.Expr:
        """An expression in symbols for generators, in what they mean."""
        return expr.xreplace(self.meaning)

    def spelled(self, e: sp.Expr) -> sp.Expr:
        """An expression as a rational function of symbols for generators, these to
        rational powers.
        """
        if e not in self._memory:
            self._memory[e] = self._spell(e)
        return self._memory[e]

    def _spell(self, e: sp.Expr) -> sp.Expr:
        if e.is_Rational or isinstance(e, sp.Symbol):
            return e
        if e is sp.I:
            return self._root(sp.S.NegativeOne, sp.S.Half)
        if isinstance(e, sp.Add | sp.Mul):
            return e.func(*map(self.spelled, e.args))
        if isinstance(e, sp.exp):
            return self._exponential(e.args[0])
        if e is sp.E:
            return self._exponential(sp.S.One)
        if isinstance(e, sp.log):
            return self._logarithm(e.args[0])
        if e.is_Pow:
            return self._power(*e.args)
        waves = TrigonometricFunction | HyperbolicFunction
        if self.trigonometric and isinstance(e, waves):
            written = e.rewrite(sp.exp)
            if not written.has(TrigonometricFunction, HyperbolicFunction):
                return self.spelled(written)
        if isinstance(e, STEPPED):
            stepped = sp.expand_func(e)
            if stepped != e:
                return self.spelled(stepped)
        if isinstance(e, AddWithLimits):
            return self._summed(e)
        return self._opaque(e)

    def _opaque(self, e: sp.Expr) -> sp.Expr:
        """A generator that is not looked into; equal arguments make it the same."""
        if not isinstance(e, sp.Function):
            return self.name(e, e)
        arguments = [self.canonical(a) for a in e.args]
        key = (e.func, *arguments)
        return self.name(key, e.func(*map(self.meant, arguments)))

    def canonical(self, e: sp.Expr) -> sp.Expr:
        """The same for all equal expressions, in symbols for generators."""
        if not isinstance(e, sp.Expr):
            return e
        spelled = self.spelled(e)
        if not spelled.args:
            return spelled
        ring = _Ring(self, [spelled])
        value = ring.fraction(spelled)
        return ring.written(value.top) / ring.written(value.bottom)

    def _power(self, base: sp.Expr, power: sp.Expr) -> sp.Expr:
        if power.is_Integer:
            if abs(power) > HIGHEST and base.is_Add:
                raise NotRational(f"power {power}")
            return self.spelled(base) ** power
        if base is sp.S.NegativeOne and not power.is_Rational:
            return self._opaque(base**power)
        parts = [(self.spelled(x), n) for x, n in self._multiplied(base)]
        if power.is_Rational:
            return sp.Mul(*(self._root(x, n * power) for x, n in parts))
        logs = sp.Add(*(n * self._log_of(x) for x, n in parts))
        return self._exponential_of(sp.expand(self.canonical(power) * logs))

    def _root(self, of: sp.Expr, power: sp.Rational) -> sp.Expr:
        """A rational power of what has no factors any more."""
        whole = sp.floor(power)
        if power == whole:
            return of**whole
        if of.is_positive and (of.is_Symbol or of.is_Pow):  # every power is one of it
            return of**power
        meaning = self.meant(of)
        root = self.name(("root", of), meaning)
        self.root_of[root] = of
        return of**whole * root ** (power - whole)

    def _multiplied(self, base: sp.Expr) -> list[tuple[sp.Expr, sp.Integer]]:
        """Factors of an expression and their powers: those that are positive, and the
        product of all others.
        """
        spelled = self.canonical(base)
        if spelled.is_Symbol:
            return [(self.meant(spelled), sp.S.One)]
        ring = _Ring(self, [spelled])
        value = ring.fraction(spelled)
        known, others = [], sp.S.One
        for poly, sign in ((value.top, 1), (value.bottom, -1)):
            number, factors = ring.factors(poly)
            for prime, many in sp.factorint(abs(int(number))).items():
                known.append((sp.Integer(prime), sp.Integer(sign * many)))
            if number < 0:
                others = -others
            for factor, many in factors:
                if ring.positive(-factor):
                    factor, others = -factor, others * (-1) ** int(many)
                written = ring.written(factor)
                if ring.positive(factor):
                    known.append((self.meant(written), sp.Integer(sign * int(many))))
                else:
                    others *= written ** (sign * int(many))
        rest = self.meant(others)
        return [*known, *([(rest, sp.S.One)] if rest != 1 else [])]

    def _log_of(self, of: sp.Expr) -> sp.Expr:
        """Logarithm of what has no factors any more."""
        for exponent, power in self._exponents.items():
            if power == of and self.meant(exponent).is_real:
                return exponent
        made = self.name(("log", of), sp.log(self.meant(of)))
        self._logarithms[made] = of
        return made

    def _logarithm(self, of: sp.Expr) -> sp.Expr:
        parts = [(self.spelled(x), n) for x, n in self._multiplied(of)]
        return sp.Add(*(n * self._log_of(x) for x, n in parts))

    def _exponential(self, exponent: sp.Expr) -> sp.Expr:
        return self._exponential_of(sp.expand(self.canonical(exponent)))

    def _exponential_of(self, exponent: sp.Expr) -> sp.Expr:
        made = sp.S.One
        for term in sp.Add.make_args(exponent):
            number, part = term.as_coeff_Mul()
            if number == 0:
                continue
            if part in self._logarithms:
                made *= self._root(self._logarithms[part], number)
            else:
                made *= self._independent(part) ** number
        return made

    def _independent(self, part: sp.Expr) -> sp.Expr:
        """Exponential of an exponent, as a product of those that are known if it is a
        sum of theirs.
        """
        if part not in self._exponents:
            shares = self._shares(part)
            if shares is None:
                made = self.name(("exp", part), self._written_exponential(part))
            else:
                made = sp.Mul(*(self._exponents[x] ** c for x, c in shares.items()))
            self._exponents[part] = made
        return self._exponents[part]

    def _written_exponential(self, part: sp.Expr) -> sp.Expr:
        """An exponential, as a power of what has a logarithm in the exponent."""
        logs = [x for x in sp.Mul.make_args(part) if x in self._logarithms]
        if len(logs) != 1:
            return sp.exp(self.meant(part))
        base = self.meant(self._logarithms[logs[0]])
        return base ** self.meant(part / logs[0])

    def _shares(self, part: sp.Expr) -> dict[sp.Expr, sp.Rational] | None:
        """An exponent as a sum of known ones; None if it is none. Products of symbols
        are independent, fractions need not be.
        """
        basis = [x for x, e in self._exponents.items() if e.is_Symbol]
        if not any(x.has(sp.Add) for x in [*basis, part]):
            return None
        if len(basis) > MOST_EXPONENTS:
            raise NotRational("too many exponentials of fractions")
        ring = _Ring(self, [*basis, part])
        values = [ring.fraction(x) for x in [*basis, part]]
        common = ring.common_bottom(values)
        columns = [(v.top * (common / v.bottom)).to_dict() for v in values]
        monomials = sorted({*itertools.chain.from_iterable(columns)})
        rows = [[int(c.get(m, 0)) for c in columns] for m in monomials]
        reduced, rank = flint.fmpq_mat(flint.fmpz_mat(rows)).rref()
        last = len(columns) - 1
        shares = {}
        for k in range(rank):
            pivot = next(j for j in range(last + 1) if reduced[k, j] != 0)
            if pivot == last:
                return None
            value = reduced[k, last]
            shares[basis[pivot]] = sp.Rational(int(value.p), int(value.q))
        return shares

    def _summed(self, e: sp.Expr) -> sp.Expr:
        """A sum or an integral, as sums of products that depend on its variable."""
        inside, *limits = e.args
        *inner, (variable, *bounds) = limits
        if inner:
            inside = e.func(inside, *inner)
        if len(bounds) != 2:
            return self._opaque(e)
        depth = len(inside.atoms(AddWithLimits)) + 1
        index = sp.Symbol(f"_{depth}", **variable.assumptions0)
        spelled = self.spelled(inside.xreplace({variable: index}))
        low, high = map(self.canonical, bounds)
        ring = _Ring(self, [spelled])
        value = ring.fraction(spelled)
        moving = [self.meaning.get(s, s).has(index) for s in ring.symbols]
        bottom, outside = sp.S.One, sp.S.One
        number, factors = value.bottom.factor()
        for factor, many in [(value.bottom.context().constant(number), 1), *factors]:
            written = ring.written(factor) ** int(many)
            if self.meant(written).has(index):
                bottom *= written
            else:
                outside *= written
        total = sp.S.Zero
        for powers, many in ring.parts(value.top, moving).items():
            term = ring.monomial(powers) / bottom
            made = self._term(e.func, term, index, low, high)
            total += ring.written(many) * made
        return total / outside

    def _term(self, kind: Any, term: sp.Expr, index: Any, *ends: sp.Expr) -> sp.Expr:
        low, high = ends
        if term == 1:
            return high - low + int(issubclass(kind, sp.Sum))
        limits = (index, self.meant(low), self.meant(high))
        return self.name((kind, term, index, low, high), kind(self.meant(term), limits))


class _Ring:
    """Polynomials in the symbols for generators that some expressions contain."""

    def __init__(self, names: _Names, spelled: Iterable[sp.Expr]) -> None:
        self.names, shares = names, dict[sp.Symbol, int]()
        ahead, seen = list(spelled), set[sp.Expr]()
        while ahead:
            part = ahead.pop()
            if part in seen:
                continue
            seen.add(part)
            if part.is_Symbol:
                shares.setdefault(part, 1)
                if part in names.root_of:
                    ahead.append(names.root_of[part])
            elif part.is_Pow:
                base, power = part.args
                if power.q > 1:
                    shares[base] = math.lcm(shares.get(base, 1), power.q)
                ahead.append(base)
            else:
                ahead.extend(part.args)
        places = {s: k for k, s in enumerate(names.meaning)}
        roots = [s for s in shares if s in names.root_of]
        others = [s for s in shares if s not in names.root_of]
        roots.sort(key=lambda s: -places[s])
        others.sort(key=lambda s: (places.get(s, -1), s.name, str(s.assumptions0)))
        self.symbols = [*roots, *others]
        self.shares = [shares[s] for s in self.symbols]
        count = max(1, len(self.symbols))
        letters = [f"x{k}" for k in range(count)]
        self.context = flint.fmpz_mpoly_ctx.get(letters, flint.Ordering.lex)
        self.zero, self.one = self.context.constant(0), self.context.constant(1)
        self.generators = dict(zip(self.symbols, self.context.gens(), strict=False))
        self._share = dict(zip(self.symbols, self.shares, strict=True))
        self._memory: dict[sp.Expr, Fraction] = {}
        self.relations: list[tuple[int, int, Fraction]] = []
        for s in reversed(roots):  # a later root may be of earlier ones
            of = self.fraction(names.root_of[s])
            self.relations.insert(0, (roots.index(s), self._share[s], of))

    def common_bottom(self, values: Iterable[Fraction]) -> Poly:
        """The least common multiple of the bottoms of fractions."""
        common = self.one
        for value in values:
            common = common * (value.bottom / common.gcd(value.bottom))
        return common

    def fraction(self, spelled: sp.Expr) -> Fraction:
        """A rational function of symbols for generators, in lowest terms."""
        if spelled not in self._memory:
            self._memory[spelled] = self._fraction(spelled)
        return self._memory[spelled]

    def _fraction(self, e: sp.Expr) -> Fraction:
        if e.is_Rational:
            return Fraction(self.one * int(e.p), self.one * int(e.q))
        if e.is_Symbol:
            return self._lowest(self.generators[e] ** self._share[e], self.one)
        if e.is_Add:
            return self._sum([self.fraction(a) for a in e.args])
        if e.is_Mul:
            return self._product([self.fraction(a) for a in e.args])
        base, power = e.args
        if base.is_Symbol:
            many = int(power * self._share[base])
            top = self.generators[base] ** abs(many)
            return self._lowest(*((top, self.one) if many > 0 else (self.one, top)))
        value, many = self.fraction(base), int(power)
        if many < 0:
            if value.top == 0:
                raise NotRational("division by zero")
            value, many = Fraction(value.bottom, value.top), -many
        size = max(len(value.top), len(value.bottom))
        if size > 1 and math.comb(size + many - 1, many) > MOST_TERMS:
            raise NotRational("too many terms")
        return self._lowest(value.top**many, value.bottom**many)

    def _sum(self, values: Sequence[Fraction]) -> Fraction:
        by_bottom: list[Fraction] = []
        for v in values:
            for k, other in enumerate(by_bottom):
                if other.bottom == v.bottom:
                    by_bottom[k] = Fraction(v.top + other.top, v.bottom)
                    break
            else:
                by_bottom.append(v)
        top, bottom = self.zero, self.one
        for v in sorted(by_bottom, key=lambda v: len(v.bottom)):
            common = bottom.gcd(v.bottom)
            mine, theirs = v.bottom / common, bottom / common
            top = self._times(top, mine) + self._times(v.top, theirs)
            bottom = self._times(bottom, mine)
        return self._lowest(top, bottom)

    def _product(self, values: Sequence[Fraction]) -> Fraction:
        top, bottom = self.one, self.one
        for v in values:
            across, back = top.gcd(v.bottom), v.top.gcd(bottom)
            top = self._times(top / across, v.top / back)
            bottom = self._times(bottom / back, v.bottom / across)
        return self._lowest(top, bottom)

    def solved(
        self, table: list[list[Fraction]], unknown: int
    ) -> list[Fraction] | None:
        """A solution of linear equations by elimination, unknowns that they leave open
        being zero; None if there is none. The last column is the right-hand side.
        """
        pivots: list[int] = []
        for column in range(unknown):
            done = len(pivots)
            ahead = [k for k in range(done, len(table)) if table[k][column].top != 0]
            if not ahead:
                continue
            chosen = table.pop(min(ahead, key=lambda k: len(table[k][column].top)))
            inverse = Fraction(chosen[column].bottom, chosen[column].top)
            chosen = [self._product([inverse, x]) for x in chosen]
            table = [self._eliminated(row, chosen, column) for row in table]
            table.insert(done, chosen)
            pivots.append(column)
        if any(row[-1].top != 0 for row in table[len(pivots) :]):
            return None
        values = [Fraction(self.zero, self.one)] * unknown
        for row, column in zip(table, pivots, strict=False):
            values[column] = row[-1]
        return values

    def partial_fractions(
        self, value: Fraction, place: int, factors: list[tuple[Poly, int]]
    ) -> list[Fraction]:
        """A fraction as a sum of fractions, a power of one factor of its bottom in
        each, that add up to it for all values of one generator.
        """
        generator = self.context.gens()[place]
        moving = math.prod((f**k for f, k in factors), start=self.one)
        fixed = value.bottom / moving
        bottoms: list[Poly] = []
        sizes: list[int] = []  # unknowns in each top
        for f, k in factors:
            bottoms += [f**j for j in range(1, k + 1)]
            sizes += [int(f.degrees()[place])] * k
        over = int(value.top.degrees()[place] - moving.degrees()[place])
        bottoms.append(self.one)
        sizes.append(max(0, over + 1))
        unknown: list[tuple[Poly, Poly]] = []
        for bottom, size in zip(bottoms, sizes, strict=True):
            unknown += [(bottom, generator**m) for m in range(size)]
        columns = [power * (moving / bottom) for bottom, power in unknown]
        moves = [k == place for k in range(len(self.symbols))]
        parts = [self.parts(c, moves) for c in (*columns, value.top)]
        table = []
        for powers in sorted({*itertools.chain.from_iterable(parts)}):
            row = [p.get(powers, self.zero) for p in parts]
            table.append([Fraction(x, self.one) for x in row])
        solution = self.solved(table, len(unknown))
        if solution is None:
            raise NotRational("no partial fractions")
        terms = []
        for bottom in bottoms:
            tops = [
                self._product([c, Fraction(power, self.one)])
                for c, (of, power) in zip(solution, unknown, strict=True)
                if of is bottom
            ]
            over_all = Fraction(self.one, self._times(bottom, fixed))
            terms.append(self._product([self._sum(tops), over_all]))
        return terms

    def _eliminated(
        self, row: list[Fraction], by: list[Fraction], column: int
    ) -> list[Fraction]:
        if row[column].top == 0:
            return row
        share = Fraction(-row[column].top, row[column].bottom)
        pairs = zip(row, by, strict=True)
        return [self._sum([x, self._product([share, y])]) for x, y in pairs]

    def _times(self, a: Poly, b: Poly) -> Poly:
        if len(a) * len(b) > MOST_PRODUCTS:
            raise NotRational("too many terms")
        return a * b

    def _lowest(self, top: Poly, bottom: Poly) -> Fraction:
        """A fraction in lowest terms, high powers of roots written by their bases."""
        top, factor = self._reduced(top)
        bottom, other = self._reduced(bottom)
        top, bottom = self._times(top, other), self._times(bottom, factor)
        if bottom == 0:
            raise NotRational("division by zero")
        if top == 0:
            return Fraction(top, self.one)
        if max(len(top), len(bottom)) > MOST_TERMS:
            raise NotRational("too many terms")
        common = top.gcd(bottom)
        if bottom.leading_coefficient() < 0:
            common = -common
        return Fraction(top / common, bottom / common)

    def _reduced(self, poly: Poly) -> tuple[Poly, Poly]:
        """A polynomial without high powers of roots, and what it was multiplied by for
        that.
        """
        factor = self.one
        for place, share, of in self.relations:
            most = int(poly.degrees()[place]) // share
            if most < 1:
                continue
            parts: dict[int, dict[tuple[int, ...], Any]] = {}
            for powers, c in poly.to_dict().items():
                times, rest = divmod(int(powers[place]), share)
                lower = (*powers[:place], rest, *powers[place + 1 :])
                parts.setdefault(times, {})[lower] = c
            poly = self.zero
            for times, part in parts.items():
                scale = of.top**times * of.bottom ** (most - times)
                poly += self._times(self.context.from_dict(part), scale)
            factor = self._times(factor, of.bottom**most)
        return poly, factor

    def factors(self, poly: Poly) -> tuple[Any, list[tuple[Poly, int]]]:
        """A number, and irreducible factors with their powers. Roots occur in factors
        only where they occur in the polynomial: a - 1 has none for a square root of a.
        """
        common = poly.term_content() if poly != 0 else self.one
        terms = (poly / common).to_dict()
        steps = []
        for k, share in enumerate(self.shares or [1]):
            divides = all(powers[k] % share == 0 for powers in terms)
            steps.append(share if divides else 1)
        number, others = self._scaled(terms, steps, divide=True).factor()
        content, roots = common.factor()
        factors = [(p, int(k)) for p, k in roots]
        factors += [(self._scaled(p.to_dict(), steps), int(k)) for p, k in others]
        return number * content, factors

    def _scaled(self, terms: Any, steps: list[int], divide: bool = False) -> Poly:
        """A polynomial with its powers multiplied, or divided, by some numbers."""
        scale = operator.floordiv if divide else operator.mul
        scaled = {}
        for powers, c in terms.items():
            pairs = zip(powers, steps, strict=True)
            scaled[tuple(scale(int(k), step) for k, step in pairs)] = c
        return self.context.from_dict(scaled)

    def positive(self, poly: Poly) -> bool:
        """Whether a polynomial is positive because all of its terms are, sizes being
        one at least.
        """
        used = [bool(k) for k in poly.degrees()]
        meanings = [self.names.meaning.get(s, s) for s in self.symbols]
        if not all(m.is_positive for m, u in zip(meanings, used, strict=False) if u):
            return False
        sizes = [bool(m.is_integer) for m in meanings] or [False]
        above = [x + int(q) for x, q in zip(self.context.gens(), sizes, strict=True)]
        shifted = poly.compose(*above, ctx=self.context).to_dict()
        # One term without sizes cannot vanish.
        sure = (not any(itertools.compress(powers, sizes)) for powers in shifted)
        return all(c > 0 for c in shifted.values()) and any(sure)

    def written(self, poly: Poly) -> sp.Expr:
        """A polynomial, in symbols for generators."""
        return sp.Add(*(c * x for x, c in self._terms(poly)))

    def _terms(self, poly: Poly) -> Iterator[tuple[sp.Expr, sp.Integer]]:
        for powers, c in poly.to_dict().items():
            yield self.monomial(powers), sp.Integer(int(c))

    def monomial(self, powers: Sequence[int]) -> sp.Expr:
        triples = zip(self.symbols, powers, self.shares, strict=False)
        return sp.Mul(*(s ** sp.Rational(int(k), q) for s, k, q in triples if k))

    def parts(self, poly: Poly, moves: Sequence[bool]) -> dict[tuple[int, ...], Poly]:
        """A polynomial by the powers of the generators that move: what multiplies
        each.
        """
        moves = [*moves] or [False]  # of numbers alone, which have one letter, too
        made: dict[tuple[int, ...], dict[tuple[int, ...], Any]] = {}
        for powers, c in poly.to_dict().items():
            key = tuple(k if m else 0 for k, m in zip(powers, moves, strict=True))
            rest = tuple(0 if m else k for k, m in zip(powers, moves, strict=True))
            made.setdefault(key, {})[rest] = c
        return {key: self.context.from_dict(rest) for key, rest in made.items()}


def vanishing_sum(
    expressions: Sequence[sp.Expr], moving: Collection[sp.Symbol]
) -> list[sp.Expr] | None:
    """Factors, the first of them one, with which some expressions add up to zero
    whatever the values of the moving symbols, on which the factors do not depend; None
    if there are none, or none are found.
    """
    try:
        field = Field(*expressions)
        factors = field.vanishing_sum(expressions, moving)
        if factors is None:
            return None
        return [sp.S.One, *map(field.factored, factors)]
    except NotRational:
        return None


def operations(expr: sp.Expr) -> int:
    """Operations and functions in an expression, parts as often as they occur."""
    known: dict[sp.Basic, int] = {}

    def of(e: sp.Basic) -> int:
        if e not in known:
            known[e] = counted(e)
        return known[e]

    def counted(e: sp.Basic) -> int:
        if not e.args:
            return int(isinstance(e, sp.Rational) and not e.is_Integer)
        total = sum(map(of, e.args))
        if e.is_Add:
            minus = sum(a.is_Mul and a.args[0] == -1 for a in e.args)
            return total + len(e.args) - 1 - minus
        if e.is_Mul:
            return total + len(e.args) - 1
        return total + (not (e.is_Pow and e.args[1] == -1))

    return of(expr)


def factored(expr: sp.Expr) -> sp.Expr:
    """An expression in factors; unchanged if it is no fraction."""
    try:
        field = Field(expr, trigonometric=False)
        return field.factored(field.fraction(expr))
    except NotRational:
        return expr


def shortest(expr: sp.Expr, *others: sp.Expr) -> sp.Expr:
    """The shortest of some equal forms: those that are given, in factors, over one
    denominator, and in partial fractions. Operations are counted, then characters.
    What is under a sum is left as it is.
    """
    forms = [expr, *others]
    best = min(map(operations, forms))
    for form in [f for f in forms if not f.has(AddWithLimits)]:
        try:
            field = Field(form, trigonometric=False)
            value = field.fraction(form)
            if len(value.top) <= best:
                forms.append(field.over_one_denominator(value))
            if field.length(value) <= 2 * best:  # it is not known better
                forms.append(field.factored(value))
            if (apart := field.partial_fractions(value)) is not None:
                forms.append(apart)
        except NotRational:
            continue
    lengths = [operations(form) for form in forms]
    best = min(lengths)
    equal = [f for f, length in zip(forms, lengths, strict=True) if length == best]
    return min(equal, key=lambda form: len(str(form))) if equal[1:] else equal[0]
