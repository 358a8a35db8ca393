// @ts-check
/* What the answers became over all samplings, as lines of the usual charts, and what to see beside. */

import { $, h } from './dom.js';
import { figure } from './chart.js';
import { num } from './format.js';

/** @typedef {import('./types').AnswerTrends} AnswerTrends */
/** @typedef {import('./types').TrendPoint} TrendPoint */
/** @typedef {import('./types').SeriesInfo} SeriesInfo */
/** @typedef {import('./types').Alert} Alert */
/** @typedef {[string, string, (point: TrendPoint) => number | null | undefined]} Line key, name, how it is read */
/** @typedef {[string, string, string]} Shown key, name, colour */

/** @type {Line[]} */
const ALWAYS = [
  ['answers/length', 'Length, tokens', (point) => point.numbers.length],
  ['answers/confidence', 'Confidence of answers', (point) => point.numbers.confidence],
  ['answers/repeats', 'Repetition', (point) => point.numbers.repeats],
  ['answers/reference_nll', 'NLL of reference answers', (point) => point.numbers.reference_nll],
  ['answers/like_first', 'Like the first answers', (point) => point.like_first],
];
/** Those that are folded away. @type {Line[]} */
const MORE = [
  ['answers/ends', 'Probability of ending', (point) => point.numbers.ends],
  ['answers/first_token', 'Confidence of first token', (point) => point.numbers.first_token],
  ['answers/entropy', 'Entropy of tokens', (point) => point.numbers.entropy],
  ['answers/stopped', 'Ended by themselves, share', stopped],
  ['answers/like_before', 'Like the sampling before', (point) => point.like_before],
  ['answers/python', 'Code that parses, share', (point) => point.numbers.checks.python],
  ['answers/brackets', 'Brackets closed, share', (point) => point.numbers.checks.brackets],
  ['answers/pattern', 'Pattern found, share', (point) => point.numbers.checks.pattern],
  ['answers/templates', 'Template tokens', (point) => point.numbers.templates],
];
/** Of the run, as far as it has them. @type {Shown[]} */
const BESIDE = [['confidence/probe', 'Probe confidence', 's4'], ['entropy_minus_nll/probe', 'Entropy minus NLL', 's1'], ['loss/heldout', 'Held-out loss', 's2'], ['loss/probe', 'Probe loss', 's2'], ['weight_norm/total', 'Weight norm', 's1'], ['logit_scale/probe', 'Logit scale', 's1'], ['top1/probe', 'Top-1', 's3']];
const MOST_BESIDE = 5;
const MOST_EVALUATIONS = 10;

/** @param {TrendPoint} point */
function stopped(point) {
  const all = Object.values(point.numbers.stops).reduce((sum, n) => sum + n, 0);
  return all ? (point.numbers.stops.end ?? 0) / all : null;
}

/**
 * Put the samplings' numbers into the store, as series of an attempt of their own.
 * @param {AnswerTrends} all @param {import('./store.js').Store} store
 */
export function putLines(all, store) {
  const latest = all.points.at(-1)?.prompt_set_hash;
  const points = all.points.filter((point) => point.prompt_set_hash === latest).sort((a, b) => a.weights_step - b.weights_step);
  for (const [key, , read] of [...ALWAYS, ...MORE]) {
    const told = points.filter((point) => typeof read(point) === 'number');
    if (!told.length) continue;
    store.whole.set(key, [{ key, attempt: 'answers', ghost: false, raw: true, steps: told.map((point) => point.weights_step), times: told.map((point) => point.at), values: told.map((point) => /** @type {number} */ (read(point))), low: null, high: null, broken: [], mixed: [] }]);
  }
}

/** @param {Line[]} lines @param {import('./store.js').Store} store @returns {Shown[]} */
function loaded(lines, store) {
  return lines.filter(([key]) => store.loaded(key)).map(([key, name]) => [key, name, 's3']);
}

/** Evaluations that the loop reported: pass@1, pass@k, any share. @param {Map<string, SeriesInfo>} has @returns {Shown[]} */
function evaluations(has) {
  const keys = [...has.keys()].filter((key) => key.startsWith('eval/')).sort();
  return keys.slice(0, MOST_EVALUATIONS).map((key) => [key, key.slice('eval/'.length).replace(/\/pass_at_(\d+)$/, ' pass@$1'), 's4']);
}

/**
 * Alerts as bands: those about the answers lie under the answers' own lines.
 * @param {Alert[]} alerts @param {number} lastStep @returns {import('./types').Band[]}
 */
export function bandsOf(alerts, lastStep) {
  const own = [...ALWAYS, ...MORE].map(([key]) => key);
  const shown = alerts.filter((alert) => alert.severity !== 'info' && (alert.state !== 'resolved' || alert.detector === 'answers_drift'));
  return shown.slice(0, 3).map((alert) => ({
    id: alert.id, kind: alert.severity === 'critical' ? 'act' : 'look', from: alert.onset_step, told: alert.opened_step, to: lastStep, name: alert.title,
    series: alert.detector === 'answers_drift' ? [...(alert.evidence.series ?? []), ...own] : alert.evidence.series ?? [],
  }));
}

/**
 * @param {Map<string, SeriesInfo>} has @param {import('./store.js').Store} store
 * @param {import('./board.js').Board} board
 */
export function paintTrends(has, store, board) {
  const beside = BESIDE.filter(([key]) => has.has(key) && !(key === 'loss/probe' && has.has('loss/heldout'))).slice(0, MOST_BESIDE);
  const first = [...loaded(ALWAYS, store), ...evaluations(has), ...beside];
  const more = loaded(MORE, store);
  $('#trends').hidden = !first.length;
  $('#trends').replaceChildren(...first.map((one) => small(one, has, store, board)));
  const details = /** @type {HTMLDetailsElement} */ ($('#more-trends'));
  details.hidden = !more.length;
  const fill = () => { if (details.open) $('#trends-more').replaceChildren(...more.map((one) => small(one, has, store, board))); };
  details.ontoggle = fill;
  fill();
}

/**
 * @param {Shown} shown @param {Map<string, SeriesInfo>} has @param {import('./store.js').Store} store
 * @param {import('./board.js').Board} board
 */
function small([key, name, colour], has, store, board) {
  const made = figure({ title: name, small: true, names: false, height: 112, lines: [{ key, name, colour, dots: true }] }, board);
  const last = has.get(key)?.last_value ?? store.owned(key)?.values.at(-1);
  return h('div', { 'data-key': key }, h('h2', {}, h('span', { title: name }, name), h('b', {}, typeof last === 'number' ? num(last) : last ?? '-')), ...made.node.querySelectorAll('.plot'));
}
