// @ts-check
/* Vital signs: value, direction, reference, and a gauge of where this run itself has been.
   What is needed for them is read from the lines; nothing is judged here: the glyph is the state of
   the open alerts that name the series. */

import { glyph, h, s, say } from './dom.js';
import { num, percent, short } from './format.js';
import { ema, last, nearest } from './tracks.js';

/** @typedef {import('./types').Track} Track */
/**
 * @typedef {object} Vital
 * @property {string} name
 * @property {string[]} keys the first that the run has is shown
 * @property {string} [minus] a series to subtract
 * @property {string} chart where it leads to
 * @property {(value: number) => string} format
 * @property {[number, number]} [healthy] a span fixed by definition
 * @property {string} [says] the reference in words
 * @property {boolean} [noisy] shown as its running mean
 */

const points = (/** @type {number} */ value) => `${value > 0 ? '+' : ''}${num(value * 100, 1)} pt`;

/** @type {Vital[]} */
export const VITALS = [
  { name: 'Train loss', keys: ['loss/train'], noisy: true, chart: 'c-loss', format: (one) => num(one) },
  { name: 'Held-out loss', keys: ['loss/heldout', 'loss/probe'], chart: 'c-loss', format: (one) => num(one) },
  { name: 'Top-1', keys: ['top1/probe'], chart: 'c-top', format: (one) => percent(one) },
  { name: 'Surer than right', keys: ['confidence/probe'], minus: 'top1/probe', chart: 'c-conf', format: points, healthy: [-0.03, 0.03], says: '0 \u00b1 3 when calibrated' },
  { name: 'Rotation per step', keys: ['effective_lr/mlp_in', 'effective_lr/mlp_out', 'effective_lr/attn_qkv', 'effective_lr/total', 'effective_lr/other'], chart: 'c-rot', format: (one) => `${num(one * 1000, one < 0.1 ? 1 : 0)} mrad` },
  { name: 'Weight norm', keys: ['weight_norm/total'], chart: 'c-norm', format: (one) => num(one) },
  { name: 'Logit scale', keys: ['logit_scale/probe'], chart: 'families', format: (one) => num(one) },
  { name: 'Data wait', keys: ['data_wait_share'], noisy: true, chart: 'c-wait', format: (one) => percent(one), healthy: [0, 0.05], says: 'limit 5 %' },
  { name: 'Tokens/s', keys: ['tokens_per_s'], noisy: true, chart: 'families', format: short },
];

/** What a vital sign shows. @typedef {{value: number, ref: number | null, refStep: number, low: number, high: number, good: [number, number] | null, broken: boolean}} Reading */

/**
 * Read a vital sign off its lines.
 * @param {Vital} vital @param {Track} track @param {Track | undefined} minus
 * @param {number | null} onset step before which the reference lies, or null: half of the run
 * @returns {Reading | null}
 */
export function read(vital, track, minus, onset) {
  const plain = minus ? subtract(track, minus) : track;
  const line = vital.noisy ? { ...plain, values: ema(plain.values, 0.85) } : plain;
  const end = last(line);
  if (!end) return null;
  const ref = last(line, onset ?? end.step / 2);
  const calm = line.values.filter((one, i) => !Number.isNaN(one) && /** @type {number} */ (line.steps[i]) <= (onset ?? end.step) && /** @type {number} */ (line.steps[i]) >= (onset ?? end.step) / 2);
  const seen = line.values.filter((one, i) => !Number.isNaN(one) && /** @type {number} */ (line.steps[i]) >= Math.min(128, end.step / 4));
  const span = vital.healthy ?? spanOf(calm);
  const all = [...seen, end.value, ...(span ?? [])];
  const [low, high] = [Math.min(...all), Math.max(...all)];
  const air = (high - low) * 0.12 || Math.abs(high) * 0.1 || 1;
  return { value: end.value, ref: ref?.value ?? null, refStep: ref?.step ?? 0, low: low - air, high: high + air, good: span, broken: track.broken.includes(track.steps.at(-1) ?? -1) };
}

/** The middle nine tenths of what was. @param {number[]} values @returns {[number, number] | null} */
function spanOf(values) {
  if (values.length < 3) return null;
  const sorted = [...values].sort((a, b) => a - b);
  const at = (/** @type {number} */ share) => /** @type {number} */ (sorted[Math.round((sorted.length - 1) * share)]);
  return [at(0.05), at(0.95)];
}

/** @param {Track} a @param {Track} b @returns {Track} */
function subtract(a, b) {
  return { ...a, values: a.values.map((one, i) => one - (b.values[nearest(b.steps, /** @type {number} */ (a.steps[i]))] ?? NaN)) };
}

/** @param {Reading} reading */
function gauge(reading) {
  const at = (/** @type {number} */ value) => Math.max(0, Math.min(98.2, ((value - reading.low) / (reading.high - reading.low)) * 100));
  const svg = s('svg', { class: 'gauge', viewBox: '0 0 100 16', preserveAspectRatio: 'none', 'aria-hidden': 'true' }, s('path', { class: 'track', d: 'M0 9H100' }));
  if (reading.good) svg.append(s('rect', { class: 'good', x: at(reading.good[0]), y: 5, width: Math.max(1.5, at(reading.good[1]) - at(reading.good[0])), height: 8 }));
  svg.append(s('path', { class: 'needle', d: `M${at(reading.value).toFixed(1)} 1h1.8v14h-1.8Z` }));
  return svg;
}

/** @param {Reading} reading */
function arrow(reading) {
  if (reading.ref === null) return '';
  const change = reading.value - reading.ref;
  const size = Math.max(Math.abs(reading.ref), Math.abs(reading.high - reading.low) / 4, 1e-12);
  return Math.abs(change) < size * 0.03 ? '\u2192' : change > 0 ? '\u2197' : '\u2198';
}

/**
 * One vital sign as a link to its chart.
 * @param {Vital} vital @param {Reading | null} reading @param {'ok' | 'look' | 'act' | 'asleep'} state @param {string} why
 */
export function vitalNode(vital, reading, state, why) {
  const words = { ok: 'no open alert', look: `look: ${why}`, act: `act: ${why}`, asleep: `asleep: ${why}` };
  const head = h('span', { class: 'name' }, h('span', {}, vital.name), h('span', { class: state }, glyph(state), h('span', { class: 'sr' }, words[state])));
  const link = h('a', { class: `vital ${state === 'asleep' ? 'asleep' : ''}`, href: `#${vital.chart}` }, head);
  if (!reading) {
    link.append(h('span', { class: 'val' }, state === 'asleep' ? 'asleep' : '-'), h('span', { class: 'ref' }, why));
    return link;
  }
  const ref = vital.says ?? (reading.ref === null ? 'first value' : `${vital.format(reading.ref)} at step ${reading.refStep.toLocaleString('en-US')}`);
  const value = h('span', { class: 'val' });
  say(value, reading.broken ? 'not finite' : vital.format(reading.value));
  if (!reading.broken) value.append(' ', h('span', { class: 'quiet small', 'aria-hidden': 'true' }, arrow(reading)));
  link.append(value, gauge(reading), h('span', { class: 'ref' }, ref));
  return link;
}
