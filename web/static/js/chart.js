// @ts-check
/* One chart: the library draws the lines, `overlay.js` all that stands below and above them. */

import { logTicks, range, tickNames, ticks } from './axis.js';
import { $, h, s } from './dom.js';
import { num } from './format.js';
import { drawOver, drawUnder } from './overlay.js';
import { fits } from './patterns.js';
import { hasLibrary, wantLibrary } from './plotting.js';
import { Pointer } from './pointer.js';
import { token } from './theme.js';
import { ema, extent, nearest, withGaps } from './tracks.js';

/** @typedef {import('./types').Track} Track */
/** @typedef {import('./types').LineSpec} LineSpec */
/** @typedef {{spec: LineSpec, track: Track, shown: number[]}} Line one track as drawn */

/** @type {Record<string, string>} */
const DASHES = { solid: 'solid', dash: '7px,4px', dot: '2px,3px' };

export class Chart {
  /**
   * @param {HTMLElement} host with the class `plot`
   * @param {import('./types').ChartSpec} spec @param {import('./board.js').Board} board
   * @param {HTMLElement | null} [out] where the cursor's place is written
   */
  constructor(host, spec, board, out = null) {
    this.host = host;
    this.spec = spec;
    this.board = board;
    this.out = out;
    this.keys = spec.lines.map((line) => line.key);
    this.visible = false;
    this.dirty = true;
    /** @type {Line[]} */
    this.lines = [];
    /** @type {import('./types').Frame | null} */
    this.frame = null;
    this.under = s('svg', { class: 'under chart', 'aria-hidden': 'true' });
    this.plot = h('div', { 'aria-hidden': 'true' });
    this.over = s('svg', { class: 'over chart', 'aria-hidden': 'true' });
    this.stage = h('div', { class: 'stage waiting', role: 'img', 'aria-label': `${spec.title}. Loading.` }, this.under, this.plot, this.over);
    this.stage.style.height = `${this.height}px`;
    host.replaceChildren(this.stage);
    this.pointer = new Pointer(this);
    board.add(this);
  }

  get height() {
    return this.spec.height ?? (this.spec.small ? 104 : 190);
  }

  /** Bands that concern this chart. */
  get bands() {
    return this.board.bands.filter((band) => band.series.some((pattern) => this.keys.some((key) => fits(pattern, key))));
  }

  /** @returns {boolean} */
  get log() {
    return this.board.view.log && this.spec.log !== false && !this.spec.small;
  }

  /** Whether anything has come for it. */
  get ready() {
    return this.keys.some((key) => this.board.store.loaded(key));
  }

  draw() {
    const { spec } = this;
    if (!this.ready) return;
    this.stage.classList.remove('waiting');
    this.lines = this.#lines();
    if (!this.lines.some((line) => line.track.steps.length)) return this.#empty();
    this.stage.querySelector('.empty')?.remove();
    const [low, high, under] = this.#extent();
    const frame = this.#frame(range(low, high, { log: this.log, min: spec.yMin, max: spec.yMax }));
    this.frame = frame;
    drawUnder(this.under, this, frame);
    if (hasLibrary()) this.#full(frame);
    else this.#quick(frame);
    drawOver(this.over, this, frame, under);
    this.#describe();
  }

  /** @param {import('./types').Frame} frame */
  #full(frame) {
    this.plot.querySelector(':scope > .quick')?.remove();
    void Plotly.react(this.plot, this.#traces(), this.#layout(frame), { staticPlot: true, displayModeBar: false, responsive: false });
  }

  /** The lines alone, until the library is there. @param {import('./types').Frame} frame */
  #quick(frame) {
    const lines = this.lines.map(({ spec, track, shown }) => s('path', {
      class: 'quick', fill: 'none', stroke: token(track.ghost ? 'ghost' : spec.colour), 'stroke-width': '1.5', d: outline(frame, track.steps, shown),
    }));
    this.plot.replaceChildren(s('svg', { class: 'quick', width: String(frame.width), height: String(frame.height) }, ...lines));
    wantLibrary(() => this.board.again(this));
  }

  #empty() {
    if (this.stage.querySelector('.empty')) return;
    this.stage.append(h('p', { class: 'empty' }, this.spec.empty ?? 'No point yet.'));
    this.stage.setAttribute('aria-label', `${this.spec.title}. ${this.spec.empty ?? 'No point yet.'}`);
  }

  /** @returns {Line[]} ghosts first, so that what counts lies on top */
  #lines() {
    const { store, view } = this.board;
    const lines = this.spec.lines.flatMap((spec) =>
      store.tracks(spec.key).filter((track) => view.ghosts || !track.ghost).map((track) => this.#line(spec, track)),
    );
    return lines.sort((a, b) => Number(b.track.ghost) - Number(a.track.ghost));
  }

  /** @param {LineSpec} spec @param {Track} track @returns {Line} */
  #line(spec, track) {
    const scale = spec.scale ?? 1;
    const scaled = scale === 1 ? track : scaleTrack(track, scale);
    const weight = spec.noisy && !this.spec.small ? (track.ghost ? 0.85 : this.board.view.smooth) : 0;
    return { spec, track: scaled, shown: ema(scaled.values, weight) };
  }

  /** @returns {[number, number, number]} */
  #extent() {
    const [from, to] = this.#judgedSpan();
    let [low, high, under] = [Infinity, -Infinity, 0];
    for (const { track } of this.lines) {
      const [a, b, n] = extent(track, from, to, this.log);
      [low, high, under] = [Math.min(low, a), Math.max(high, b), under + n];
    }
    const ref = this.spec.ref;
    if (ref !== undefined && Number.isFinite(low)) [low, high] = [Math.min(low, ref), Math.max(high, ref)];
    return [low, high, under];
  }

  /** The steps the vertical range is made for: the first, steep ones of a whole run may run out at
   * the top, or the rest would be a flat line. @returns {[number, number]} */
  #judgedSpan() {
    const [from, to] = this.board.domain();
    const steep = this.board.view.from === null && !this.log && this.spec.lines.some((line) => line.noisy);
    return [steep && to - from > 200 ? from + Math.min(128, (to - from) * 0.05) : from, to];
  }

  /** @param {[number, number]} ys @returns {import('./types').Frame} */
  #frame([low, high]) {
    const { board, spec } = this;
    const width = Math.max(150, this.stage.clientWidth);
    const narrow = width < 370;
    const left = spec.small ? 40 : 48;
    const right = width - (spec.names === false || spec.small ? 12 : narrow ? 84 : 96);
    const top = spec.small ? 10 : this.bands.length ? 26 : 12;
    const bottom = this.height - (spec.small ? 20 : 24);
    const [from, to] = board.domain();
    const [x0, x1] = [board.x(from), board.x(to)];
    const t = this.log ? Math.log : (/** @type {number} */ one) => one;
    return {
      width, height: this.height, left, right, top, bottom, from, to,
      x: (step) => left + ((board.x(step) - x0) / (x1 - x0 || 1)) * (right - left),
      y: (one) => (this.log && one <= 0 ? null : bottom - ((t(one) - t(low)) / (t(high) - t(low))) * (bottom - top)),
    };
  }

  #traces() {
    return [...this.#fill(), ...this.lines.flatMap((line) => this.#trace(line))];
  }

  /** @param {Line} line @returns {object[]} */
  #trace({ spec, track, shown }) {
    const colour = token(track.ghost ? 'ghost' : spec.colour);
    const xs = track.steps.map((step, i) => this.board.x(step, track.times[i]));
    const base = { type: 'scatter', mode: 'lines', hoverinfo: 'skip', connectgaps: false };
    const main = {
      ...base, ...withGaps(xs, shown),
      line: { color: colour, width: track.ghost ? 1.5 : this.spec.small ? 1.5 : 1.8, dash: track.ghost ? '4px,3px' : DASHES[spec.dash ?? 'solid'] },
      ...(spec.dots && track.steps.length <= 40 && !this.spec.small ? { mode: 'lines+markers', marker: { size: 4.5, color: colour } } : {}),
      ...(track.steps.length === 1 ? { mode: 'markers', marker: { size: 5, color: colour } } : {}),
    };
    if (track.ghost || this.spec.small || (shown === track.values && !track.low)) return [main];
    const behind = track.low && track.high
      ? envelope(xs, track.low, track.high).map((edge) => ({ ...base, ...edge, line: { width: 0, color: colour }, fillcolor: faint(colour, 0.22) }))
      : [{ ...base, ...withGaps(xs, track.values), opacity: 0.28, line: { color: colour, width: 1 } }];
    return [...behind, main];
  }

  /** The space between two named lines, where the first lies above the second. @returns {object[]} */
  #fill() {
    if (!this.spec.between) return [];
    const [a, b] = this.spec.between.map((name) => this.lines.find((line) => line.spec.name === name && !line.track.ghost));
    if (!a || !b) return [];
    const steps = a.track.steps.filter((step) => b.track.steps.includes(step));
    const xs = steps.map((step) => this.board.x(step));
    const at = (/** @type {Line} */ line) => steps.map((step) => /** @type {number} */ (line.shown[nearest(line.track.steps, step)]));
    const colour = faint(token(a.spec.colour), 0.16);
    return envelope(xs, at(b), at(a)).map((edge) => ({ type: 'scatter', mode: 'lines', hoverinfo: 'skip', ...edge, line: { width: 0, color: colour }, fillcolor: colour }));
  }

  /** @param {import('./types').Frame} frame */
  #layout(frame) {
    const { board } = this;
    const [x0, x1] = [board.x(frame.from), board.x(frame.to)];
    const [low, high] = [this.#inverse(frame, frame.bottom), this.#inverse(frame, frame.top)];
    const xs = board.xTicks(x0, x1, Math.max(2, Math.floor((frame.right - frame.left) / 64)));
    const yCount = this.spec.small ? 3 : frame.height > 240 ? 6 : 5;
    const ys = (this.log ? logTicks(low, high) : ticks(low, high, yCount)).filter((one) => one >= low - 1e-12 && one <= high + 1e-12);
    const font = { family: 'inherit', size: 12, color: token('axis') };
    return {
      width: frame.width, height: frame.height, autosize: false, showlegend: false, hovermode: false, dragmode: false,
      paper_bgcolor: 'rgba(0,0,0,0)', plot_bgcolor: 'rgba(0,0,0,0)', font,
      margin: { l: frame.left, r: frame.width - frame.right, t: frame.top, b: frame.height - frame.bottom, pad: 0 },
      xaxis: {
        range: [x0, x1], fixedrange: true, showgrid: false, zeroline: false, showline: true, linecolor: token('edge'),
        ticks: 'outside', ticklen: 4, tickcolor: token('edge'), tickvals: xs, ticktext: xs.map((x) => board.xName(x)), tickangle: 0, automargin: false,
      },
      yaxis: {
        type: this.log ? 'log' : 'linear', range: this.log ? [Math.log10(low), Math.log10(high)] : [low, high], fixedrange: true,
        gridcolor: token('grid'), zeroline: false, tickvals: ys, ticktext: tickNames(ys, this.log), tickangle: 0, automargin: false,
      },
    };
  }

  /** @param {import('./types').Frame} frame @param {number} place pixels */
  #inverse(frame, place) {
    const y = frame.y;
    let [a, b] = this.log ? [1e-12, 1e12] : [-1e15, 1e15];
    if (!this.log) {
      const [y0, y1] = [/** @type {number} */ (y(0)), /** @type {number} */ (y(1))];
      return (place - y0) / (y1 - y0);
    }
    for (let i = 0; i < 120; i++) {
      const middle = Math.sqrt(a * b);
      if (/** @type {number} */ (y(middle)) > place) a = middle;
      else b = middle;
    }
    return a;
  }

  /** Values at a step, said and written at the ends of the lines. @param {number | null} step */
  cursor(step) {
    const frame = this.frame;
    const mark = this.over.querySelector('.cursor');
    if (!frame || !mark) return;
    const inside = step !== null && step >= frame.from && step <= frame.to;
    mark.setAttribute('visibility', inside ? 'visible' : 'hidden');
    if (inside) mark.setAttribute('transform', `translate(${frame.x(step).toFixed(1)} 0)`);
    /** @type {string[]} */
    const said = [];
    for (const node of this.over.querySelectorAll('.endvalue')) {
      const line = this.lines.find((one) => one.spec.key === node.getAttribute('data-key') && !one.track.ghost);
      if (!line) continue;
      const text = inside ? this.valueAt(line, step) : node.getAttribute('data-rest') || '';
      node.textContent = text;
      node.classList.toggle('now', inside);
      said.push(`${line.spec.name} ${text}`);
    }
    if (this.out) this.out.replaceChildren(...(inside ? [`at ${this.board.xName(this.board.x(Math.round(step)))}`, h('span', { class: 'sr' }, said.join(', '))] : []));
  }

  /** @param {Line} line @param {number} step */
  valueAt({ spec, track, shown }, step) {
    const index = nearest(track.steps, step);
    const found = shown[index];
    const [, broken, all] = track.mixed.find(([first]) => first === track.steps[index]) ?? [];
    const left = broken ? ` (${broken} of ${all} not finite)` : '';
    if (found !== undefined && !Number.isNaN(found)) return (spec.format ?? num)(found) + left;
    return track.broken.includes(track.steps[index] ?? -1) ? 'not finite' : '-';
  }

  #describe() {
    const words = this.lines.filter((line) => !line.track.ghost).map((line) => `${line.spec.name} ${this.valueAt(line, this.board.lastStep)}`);
    const bands = this.bands.map((band) => `${band.name} since step ${band.from}.`);
    this.stage.setAttribute('aria-label', `${this.spec.title}. ${words.join(', ')}. ${bands.join(' ')} Arrow keys move the cursor.`);
  }

  /** Forget the chart and what the library holds for it. */
  remove() {
    this.board.charts.delete(this);
    if (hasLibrary()) Plotly.purge(this.plot);
  }
}

/** A line as the `d` of a path, broken where there is no value. @param {import('./types').Frame} frame
 * @param {number[]} steps @param {number[]} values */
function outline(frame, steps, values) {
  let text = '';
  let down = false;
  steps.forEach((step, i) => {
    const y = frame.y(/** @type {number} */ (values[i]));
    const inside = y !== null && Number.isFinite(y) && y >= frame.top && y <= frame.bottom;
    if (inside) text += `${down ? 'L' : 'M'}${frame.x(step).toFixed(1)} ${y.toFixed(1)}`;
    down = inside;
  });
  return text;
}

/** @param {Track} track @param {number} scale @returns {Track} */
function scaleTrack(track, scale) {
  const times = (/** @type {number[] | null} */ list) => list && list.map((one) => one * scale);
  return { ...track, values: track.values.map((one) => one * scale), low: times(track.low), high: times(track.high) };
}

/** Two lines with the space between them filled. @param {number[]} xs @param {number[]} low @param {number[]} high */
function envelope(xs, low, high) {
  const keep = xs.map((_, i) => i).filter((i) => !Number.isNaN(low[i]) && !Number.isNaN(high[i]));
  const pick = (/** @type {number[]} */ list) => keep.map((i) => list[i]);
  return [{ x: pick(xs), y: pick(low) }, { x: pick(xs), y: pick(high), fill: 'tonexty' }];
}

/** A colour of ours (`#rrggbb`) made faint. @param {string} colour @param {number} alpha */
function faint(colour, alpha) {
  const part = (/** @type {number} */ i) => parseInt(colour.slice(i, i + 2), 16);
  return `rgba(${part(1)},${part(3)},${part(5)},${alpha})`;
}

/**
 * The panel a chart stands in.
 * @param {import('./types').ChartSpec} spec @param {import('./board.js').Board} board @param {string} [id]
 */
export function figure(spec, board, id) {
  const head = spec.small ? 'h3' : 'h2';
  const out = h('span', { class: 'out', 'aria-live': 'polite' });
  const plot = h('div', { class: 'plot' });
  const node = h('figure', { class: spec.small ? 'mult' : 'panel fig', id }, h('header', {}, h(head, {}, h('bdi', {}, spec.title), h('span', { class: 'mark' })), out, h('span', { class: 'unit' }, spec.unit ?? '')), plot);
  return { node, mark: $('.mark', node), chart: new Chart(plot, spec, board, out) };
}

