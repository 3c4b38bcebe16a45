"use strict";
// Numbers of the page: a stiff integrator, first times, and a run length at which nothing moves any more.

const BERNOULLI = [1 / 6, -1 / 30, 1 / 42, -1 / 30, 5 / 66, -691 / 2730, 7 / 6];

function factorial(n) {
  let found = 1;
  for (let k = 2; k <= n; k++) found *= k;
  return found;
}

// Derivative of order n + 1 of ln Gamma, x > 0: recurrence up to x = 20, then its asymptotic series.
function polygamma(n, x) {
  const sign = n % 2 ? 1 : -1;
  let found = 0;
  for (; x < 20; x += 1) found += sign * factorial(n) / x ** (n + 1);
  let series = n ? factorial(n - 1) / x ** n : -Math.log(x);
  series += factorial(n) / (2 * x ** (n + 1));
  BERNOULLI.forEach((b, i) => {
    const k = 2 * (i + 1);
    series += (b * factorial(k + n - 1)) / (factorial(k) * x ** (k + n));
  });
  return found + sign * series;
}

// Solution of (matrix) x = right by elimination with row exchanges; both are overwritten.
function solved(matrix, right) {
  const n = right.length;
  for (let k = 0; k < n; k++) {
    let best = k;
    for (let i = k + 1; i < n; i++) if (Math.abs(matrix[i][k]) > Math.abs(matrix[best][k])) best = i;
    [matrix[k], matrix[best]] = [matrix[best], matrix[k]];
    [right[k], right[best]] = [right[best], right[k]];
    for (let i = k + 1; i < n; i++) {
      const factor = matrix[i][k] / matrix[k][k];
      for (let j = k; j < n; j++) matrix[i][j] -= factor * matrix[k][j];
      right[i] -= factor * right[k];
    }
  }
  for (let k = n - 1; k >= 0; k--) {
    for (let j = k + 1; j < n; j++) right[k] -= matrix[k][j] * right[j];
    right[k] /= matrix[k][k];
  }
  return right;
}

const ORDER = 7; // of the extrapolation

// One step of linearly implicit Euler, extrapolated in the number of its parts: new state and its error.
function step(flow, p, y, h) {
  const slopes = flow.slopes(y, p), rows = [];
  for (let j = 1; j <= ORDER; j++) {
    let z = y;
    for (let part = 0; part < j; part++) {
      const matrix = slopes.map((row, i) => row.map((s, k) => (i === k) - (h / j) * s));
      const moved = solved(matrix, flow.rates(z, p).map((r) => (h / j) * r));
      z = z.map((v, i) => v + moved[i]);
    }
    const row = [z];
    for (let k = 1; k < j; k++) {
      const weight = 1 / (j / (j - k) - 1);
      row.push(row[k - 1].map((v, i) => v + weight * (v - rows[j - 2][k - 1][i])));
    }
    rows.push(row);
  }
  const last = rows[ORDER - 1];
  return [last[ORDER - 1], last[ORDER - 1].map((v, i) => Math.abs(v - last[ORDER - 2][i]))];
}

// States at increasing times, from a state at time `from`. Errors are measured by the numbers that the flow begins with:
// one that passes through zero later on is not followed below their rounding.
function states(flow, p, times, start, from = 0, rtol = 1e-9) {
  const sizes = flow.start(p).map(Math.abs).filter((v) => v > 0);
  const atol = rtol * Math.min(1, ...sizes), found = [];
  let y = start, t = from, h = (times[times.length - 1] - from) / 100;
  for (const target of times) {
    while (t < target) {
      const trial = Math.min(h, target - t), [next, error] = step(flow, p, y, trial);
      const off = Math.max(...error.map((e, i) => e / (atol + rtol * Math.max(Math.abs(y[i]), Math.abs(next[i])))));
      const good = off <= 1 && next.every(Number.isFinite);
      if (good) {
        y = next;
        t = trial === target - t ? target : t + trial;
      }
      const factor = Number.isFinite(off) ? 0.9 * Math.max(off, 1e-10) ** (-1 / ORDER) : 0.1;
      if (!good || factor < 1 || trial === h) h = trial * Math.min(4, Math.max(0.1, factor));
      if (!(h > 1e-14 * Math.max(t, target))) throw new Error("the integration stopped at t = " + t);
    }
    found.push(y);
  }
  return found;
}

// Times with all quantities along them: order parameters, then observables.
function curve(flow, p, end, count = 240) {
  const times = [0];
  for (let k = 0; k < count; k++) times.push(end * 10 ** (-4 * (1 - k / (count - 1))));
  for (let k = 1; k < count; k++) times.push((end * k) / count);
  times.sort((a, b) => a - b);
  const path = states(flow, p, times, flow.start(p));
  return {times, path, values: path.map((y) => [...y, ...flow.seen(y, p)])};
}

// First time at which a quantity reaches a level, to the accuracy of the integration; NaN if it does not.
function first(flow, p, found, quantity, level) {
  const side = Math.sign(found.values[0][quantity] - level);
  if (side === 0) return 0;
  const after = found.values.findIndex((v) => Math.sign(v[quantity] - level) !== side);
  if (after < 0) return NaN;
  let low = found.times[after - 1], high = found.times[after], y = found.path[after - 1];
  for (let k = 0; k < 60 && high - low > 1e-12 * high; k++) {
    const middle = (low + high) / 2, [z] = states(flow, p, [middle], y, low);
    const value = [...z, ...flow.seen(z, p)][quantity];
    if (Math.sign(value - level) === side) [low, y] = [middle, z];
    else high = middle;
  }
  return (low + high) / 2;
}

// A time by which every order parameter has changed by less than a tenth since half of it.
function settled(flow, p) {
  let t = 1e-3, y = flow.start(p);
  [y] = states(flow, p, [t], y);
  for (let k = 0; k < 60; k++) {
    const [next] = states(flow, p, [2 * t], y, t);
    const still = next.every((v, i) => Math.abs(v - y[i]) <= 0.1 * Math.abs(v));
    t *= 2;
    y = next;
    if (still && k > 3) return Number((0.75 * t).toPrecision(2));
  }
  return t;
}
