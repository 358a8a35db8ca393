// @ts-check
/* Ticks and ranges of axes. Pure. */

import { num } from './format.js';

/**
 * Few round values between a and b.
 * @param {number} a @param {number} b @param {number} wanted @param {number[]} [steps] allowed steps
 */
export function ticks(a, b, wanted, steps) {
  const rough = (b - a) / Math.max(1, wanted) || 1;
  const power = 10 ** Math.floor(Math.log10(rough));
  const step = steps
    ? (steps.find((one) => one >= rough) ?? Math.ceil(rough / 86400) * 86400)
    : ([1, 2, 2.5, 5, 10].map((k) => k * power).find((k) => k >= rough * 0.999) ?? 10 * power);
  const out = [];
  for (let value = Math.ceil(a / step - 1e-9) * step; value <= b + step * 1e-6; value += step) {
    out.push(Number(value.toPrecision(12)));
    if (out.length > 100) break;
  }
  return out;
}

/** Steps of a clock axis, in seconds. */
export const CLOCK_STEPS = [1, 2, 5, 10, 15, 30, 60, 120, 300, 600, 900, 1800, 3600, 7200, 10800, 21600, 43200, 86400];

/** Digits after the point that tell ticks apart. @param {number[]} values */
export function decimals(values) {
  const [first, second] = values;
  if (first === undefined || second === undefined) return undefined;
  const step = Math.abs(second - first);
  if (step >= 1 && Number.isInteger(step)) return 0;
  if (step < 1e-4) return undefined;
  const needed = Math.ceil(-Math.log10(step) - 1e-9);
  return Math.min(5, Math.max(1, needed + (/25$/.test(step.toPrecision(2).replace(/0+$/, '')) ? 1 : 0)));
}

/** Ticks of a logarithmic axis: 1, 2, 5 of each power, thinned. @param {number} a @param {number} b */
export function logTicks(a, b) {
  /** @type {number[]} */
  const out = [];
  for (let e = Math.floor(Math.log10(a)); e <= Math.ceil(Math.log10(b)); e++) {
    for (const k of [1, 2, 5]) {
      const value = k * 10 ** e;
      if (value >= a * 0.999 && value <= b * 1.001) out.push(value);
    }
  }
  const tens = out.filter((value) => Number.isInteger(Math.round(Math.log10(value) * 1e6) / 1e6));
  return out.length > 6 && tens.length > 1 ? tens : out.length >= 2 ? out : ticks(a, b, 3).filter((value) => value > 0);
}

/**
 * Range of y over values, with air; never below zero for what never is.
 * @param {number} low @param {number} high @param {{log: boolean, min?: number, max?: number}} how
 * @returns {[number, number]}
 */
export function range(low, high, how) {
  if (!Number.isFinite(low) || !Number.isFinite(high)) return how.log ? [0.1, 10] : [how.min ?? 0, how.max ?? 1];
  if (how.log) return low === high ? [low / 2, high * 2] : [low / 1.08, high * 1.08];
  let [a, b] = [how.min ?? low, how.max ?? high];
  if (!(b > a)) {
    const size = Math.abs(a) || 1;
    [a, b] = [a - (how.min === undefined ? size * 0.1 : 0), b + size * 0.1];
  }
  const air = (b - a) * 0.06;
  if (how.max === undefined) b += air;
  if (how.min === undefined) a = a >= 0 && a - air < 0 ? 0 : a - air;
  return [a, b];
}

/** Names of y ticks. @param {number[]} values @param {boolean} log */
export function tickNames(values, log) {
  const [only] = values;
  const digits = log ? undefined : values.length === 1 && Number.isInteger(only) ? 0 : decimals(values);
  return values.map((value) => {
    if (log && value >= 1e-3 && value < 1e4) return String(Number(value.toPrecision(3))).replace('-', '\u2212');
    return value === 0 ? '0' : num(value, digits);
  });
}
