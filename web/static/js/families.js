// @ts-check
/* The six charts that stay open, and all other signals by family, folded until asked for. */

import { glyph, h } from './dom.js';
import { figure } from './chart.js';
import { fits } from './patterns.js';
import { briefly, groupName, isShare, num, percent } from './format.js';
import { spark } from './spark.js';
import { value } from './tracks.js';

/** @typedef {import('./types').SeriesInfo} SeriesInfo */
/** @typedef {import('./types').ChartSpec} ChartSpec */
/** @typedef {import('./board.js').Board} Board */

const points = (/** @type {number} */ one) => `${num(one, 1)} %`;

/** @type {[string, ChartSpec][]} */
const MAIN = [
  ['c-loss', { title: 'Loss', unit: 'nats per token', lines: [{ key: 'loss/heldout', name: 'held-out', colour: 's2', dots: true }, { key: 'loss/probe', name: 'probe', colour: 's2', dots: true }, { key: 'loss/train', name: 'train', colour: 's1', noisy: true }] }],
  ['c-conf', { title: 'Confidence against accuracy', unit: 'held-out probe, %', log: false, between: ['confidence', 'accuracy'], empty: 'Asleep: no probe was given.', lines: [{ key: 'confidence/probe', name: 'confidence', colour: 's4', scale: 100, format: points }, { key: 'top1/probe', name: 'accuracy', colour: 's3', dash: 'dash', scale: 100, format: points }] }],
  ['c-top', { title: 'Top-1 and top-10', unit: 'held-out probe, %', log: false, empty: 'Asleep: no probe was given.', lines: [{ key: 'top10/probe', name: 'top-10', colour: 's3', scale: 100, format: points }, { key: 'top1/probe', name: 'top-1', colour: 's3', dash: 'dash', scale: 100, format: points }] }],
  ['c-rot', { title: 'Effective learning rate', unit: 'rotation per step, mrad', lines: [] }],
  ['c-norm', { title: 'Weight norm', unit: 'all weights', lines: [{ key: 'weight_norm/total', name: 'total', colour: 's1' }] }],
  ['c-wait', { title: 'Step time and data wait', unit: 'seconds', yMin: 0, lines: [{ key: 'step_s', name: 'step', colour: 's1', noisy: true, format: briefly }, { key: 'data_wait_s', name: 'wait', colour: 's2', format: briefly }] }],
];

/** What the charts at the top show, asked for before it is known which of them a run has. */
export const FIRST = MAIN.slice(0, 2).flatMap(([, spec]) => spec.lines.map((line) => line.key));

/** Parameter groups whose rotation is shown open, most telling first. */
const ROTATION = ['attn_qkv', 'attn_q', 'attn_k', 'attn_v', 'attn_o', 'mlp_in', 'mlp_out', 'total', 'head', 'emb', 'other'];

/** The main charts, with the lines this run has. @param {SeriesInfo[]} series @returns {[string, ChartSpec][]} */
export function mainSpecs(series) {
  const has = new Set(series.map((one) => one.key));
  return MAIN.map(([id, spec]) => {
    if (id === 'c-rot') return [id, { ...spec, lines: rotation(has) }];
    let lines = spec.lines.filter((line) => has.has(line.key));
    if (lines.some((line) => line.key === 'loss/heldout')) lines = lines.filter((line) => line.key !== 'loss/probe');
    return [id, { ...spec, lines: lines.length ? lines : spec.lines.slice(0, 1) }];
  });
}

/** @param {Set<string>} has @returns {import('./types').LineSpec[]} */
function rotation(has) {
  const found = ROTATION.filter((group) => has.has(`effective_lr/${group}`)).slice(0, 3);
  const groups = found.length ? found : ['total'];
  const dashes = /** @type {const} */ (['solid', 'dash', 'dot']);
  return groups.map((group, i) => ({ key: `effective_lr/${group}`, name: groupName(group).replace('attention', 'attn'), colour: `s${i + 1}`, dash: dashes[i] ?? 'solid', scale: 1000, format: (one) => num(one, 1) }));
}

/** Families in the order they are shown, and their names. @type {[string, string][]} */
const FAMILIES = [
  ['loss', 'Loss'], ['learning_rate', 'Learning rate'], ['gradient', 'Gradient'], ['weights', 'Weights by group'], ['rotation', 'Rotation and updates'],
  ['calibration', 'Calibration'], ['accuracy', 'Accuracy'], ['logits', 'Logits'], ['data', 'Data'], ['speed', 'Speed'], ['other', 'Everything else'],
];

/** @param {SeriesInfo} one @param {SeriesInfo[]} all of its family */
function seriesTitle(one, all) {
  const group = one.group && one.group !== 'probe' ? `, ${groupName(one.group)}` : '';
  const source = one.source ? ` @ ${one.source}` : '';
  const names = new Set(all.map((other) => other.name));
  const name = one.name.replace(one.unit === 's' ? /_s$/ : /$^/, '').replaceAll('_', ' ');
  return names.size === 1 && one.group ? `${groupName(one.group)}${source}` : `${name}${group}${source}`;
}

/** @param {SeriesInfo} one */
function lastText(one) {
  const last = typeof one.last_value === 'string' ? NaN : value(one.last_value);
  if (typeof one.last_value === 'string') return one.last_value;
  return isShare(one.name, one.unit) ? percent(last) : one.unit === 's' ? briefly(last) : num(last);
}

export class Families {
  /** @param {HTMLElement} host @param {Board} board */
  constructor(host, board) {
    this.host = host;
    this.board = board;
    /** @type {Map<string, {node: HTMLDetailsElement, series: SeriesInfo[], filled: Set<string>}>} */
    this.open = new Map();
    this.visible = false;
    this.dirty = true;
    /** Series whose small line stands in a folded family's head. @type {string[]} */
    this.keys = [];
    board.add(this);
  }

  /** Heads again, now that their lines have come. */
  draw() {
    for (const [key, name] of FAMILIES) {
      const held = this.open.get(key);
      if (held) this.#summary(held.node, name, held.series);
    }
  }

  cursor() {}

  /** @param {SeriesInfo[]} series */
  set(series) {
    const known = new Set(FAMILIES.map(([key]) => key));
    for (const [key, name] of FAMILIES) {
      const some = series.filter((one) => one.family === key || (key === 'other' && !known.has(one.family)));
      if (some.length) this.#family(key, name, some);
    }
    this.host.hidden = !series.length;
    this.keys = [...this.open.values()].map((held) => this.#lead(held.series)?.key ?? '').filter(Boolean);
    if (this.visible) this.board.store.want(this.keys);
  }

  /** @param {string} key @param {string} name @param {SeriesInfo[]} series */
  #family(key, name, series) {
    const held = this.open.get(key);
    if (held) {
      held.series = series;
      this.#summary(held.node, name, series);
      if (held.node.open) this.#fill(key);
      return;
    }
    const node = /** @type {HTMLDetailsElement} */ (h('details', { class: 'family', 'data-family': key }, h('summary'), h('div', { class: 'body' }, h('div', { class: 'charts' }))));
    this.open.set(key, { node, series, filled: new Set() });
    this.#summary(node, name, series);
    node.addEventListener('toggle', () => node.open && this.#fill(key));
    const after = FAMILIES.slice(FAMILIES.findIndex(([one]) => one === key) + 1).map(([one]) => this.open.get(one)?.node).find(Boolean);
    this.host.insertBefore(node, after ?? null);
  }

  /** @param {SeriesInfo[]} series */
  #bands(series) {
    return this.board.bands.filter((band) => series.some((one) => band.series.some((pattern) => fits(pattern, one.key))));
  }

  /** The series that stands for its family: one an alert names, else the total, else the first. @param {SeriesInfo[]} series */
  #lead(series) {
    const judged = this.#bands(series).flatMap((band) => band.series);
    const named = judged.map((pattern) => series.find((one) => fits(pattern, one.key))).find(Boolean);
    return named ?? series.find((one) => one.group === 'total') ?? series[0];
  }

  /** @param {HTMLElement} node @param {string} name @param {SeriesInfo[]} series */
  #summary(node, name, series) {
    const bands = this.#bands(series);
    const kind = bands.some((band) => band.kind === 'act') ? 'act' : bands.length ? 'look' : 'ok';
    const word = { act: 'act', look: 'look', ok: 'no alert' }[kind];
    const lead = this.#lead(series);
    const track = lead && this.board.store.owned(lead.key);
    const line = track && track.steps.length > 1 ? spark(track.steps, track.values, { height: 28, onset: bands[0]?.from ?? null, kind, say: lead.key }) : null;
    const why = lead ? `${series.length === 1 ? '' : `${series.length} signals; `}${seriesTitle(lead, series)} ${lastText(lead)}` : '';
    const text = `${name}|${why}|${kind}|${track?.steps.length ?? 0}`;
    const summary = /** @type {HTMLElement} */ (node.querySelector('summary'));
    if (summary.dataset.text === text) return;
    summary.dataset.text = text;
    summary.replaceChildren(h('b', {}, name), h('span', { class: 'sparkbox' }, line), h('span', { class: 'why quiet small' }, h('bdi', {}, why)), h('span', { class: `tag ${kind}` }, glyph(kind), word));
  }

  /** @param {string} key */
  #fill(key) {
    const family = this.open.get(key);
    if (!family) return;
    const grid = /** @type {HTMLElement} */ (family.node.querySelector('.charts'));
    for (const one of family.series) {
      if (family.filled.has(one.key)) continue;
      family.filled.add(one.key);
      const share = isShare(one.name, one.unit);
      /** @type {ChartSpec} */
      const spec = { title: seriesTitle(one, family.series), unit: share ? '%' : one.unit, small: true, names: false, lines: [{ key: one.key, name: one.key, colour: 's1', scale: share ? 100 : 1 }] };
      const made = figure(spec, this.board);
      made.node.title = one.help;
      made.node.querySelector('.out')?.before(h('span', { class: 'quiet', 'data-last': one.key }, lastText(one)));
      grid.append(made.node);
    }
  }

  /** Newest values at the small charts. @param {Record<string, import('./types').Cell>} values by key */
  newest(values) {
    for (const { series } of this.open.values()) for (const one of series) if (one.key in values) one.last_value = values[one.key] ?? null;
    for (const node of this.host.querySelectorAll('[data-last]')) {
      for (const { series } of this.open.values()) {
        const one = series.find((some) => some.key === node.getAttribute('data-last'));
        if (one) node.textContent = lastText(one);
      }
    }
  }
}
