// @ts-check
/* The rail: one axis for all that happened, in five lanes; and the line that says what was near. */

import { foreign, h, s } from './dom.js';
import { hatch } from './overlay.js';

/** @typedef {import('./types').RunEvent} RunEvent */
/** @typedef {import('./types').Phase} Phase */
/** @typedef {import('./types').Attempt} Attempt */

const LANES = ['Attempts', 'Alerts', 'Checkpoints', 'Evals, answers', 'Notes'];
const LANE = 20;

export class Rail {
  /** @param {HTMLElement} host @param {HTMLElement} near @param {import('./board.js').Board} board */
  constructor(host, near, board) {
    this.host = host;
    this.near = near;
    this.board = board;
    this.visible = true;
    this.dirty = true;
    /** @type {string[]} */
    this.keys = [];
    /** @type {Attempt[]} */
    this.attempts = [];
    /** @type {RunEvent[]} */
    this.events = [];
    /** @type {Map<string, Phase>} */
    this.phases = new Map();
    board.add(this);
    host.addEventListener('click', (event) => board.picked(Math.round(this.step(event.clientX - host.getBoundingClientRect().left))));
  }

  /** @param {Phase[]} phases */
  setPhases(phases) {
    for (const phase of phases) this.phases.set(phase.phase_id, phase);
  }

  get left() {
    return this.host.clientWidth < 420 ? 104 : 112;
  }

  get right() {
    return this.host.clientWidth - (this.host.clientWidth < 420 ? 12 : 78);
  }

  /** @param {number} step */
  x(step) {
    const [from, to] = this.board.domain();
    const [x0, x1] = [this.board.x(from), this.board.x(to)];
    return this.left + ((this.board.x(step) - x0) / (x1 - x0 || 1)) * (this.right - this.left);
  }

  /** @param {number} place */
  step(place) {
    const [from, to] = this.board.domain();
    const [x0, x1] = [this.board.x(from), this.board.x(to)];
    return this.board.step(x0 + ((place - this.left) / (this.right - this.left)) * (x1 - x0));
  }

  /** @param {number} step */
  inside(step) {
    const [from, to] = this.board.domain();
    return step >= from && step <= to;
  }

  draw() {
    const width = this.host.clientWidth;
    const height = LANES.length * LANE + 26;
    const svg = s('svg', { viewBox: `0 0 ${width} ${height}`, width, height, class: 'rail chart', role: 'img', 'aria-label': this.#label() });
    const { name, defs } = hatch();
    defs.append(s('clipPath', { id: 'rail-clip' }, s('rect', { x: this.left - 6, y: 0, width: Math.max(0, this.right - this.left + 12), height })));
    svg.append(defs);
    LANES.forEach((lane, i) => {
      svg.append(s('text', { x: 8, y: i * LANE + 14 }, lane), s('path', { d: `M${this.left} ${i * LANE + 10}H${this.right}`, class: 'lane' }));
    });
    const lanes = s('g', { 'clip-path': 'url(#rail-clip)' });
    svg.append(lanes);
    this.#attempts(lanes);
    this.#alerts(lanes, name);
    this.#checkpoints(lanes);
    this.#evaluations(lanes);
    this.#notes(lanes);
    this.#axis(svg, height);
    svg.append(s('g', { class: 'cursor', visibility: 'hidden' }, s('path', { d: `M0 0V${height - 24}` })));
    this.host.replaceChildren(svg);
  }

  #label() {
    const saved = [...this.phases.values()].filter((phase) => phase.name === 'checkpoint').length;
    return `Events of the run: ${this.attempts.length} attempts, ${this.board.bands.length} alerts, ${saved} checkpoints, ${this.events.length} notes.`;
  }

  /** @param {SVGElement} g */
  #attempts(g) {
    const [from, to] = this.board.domain();
    for (const attempt of this.attempts) {
      const end = attempt.before_step ?? this.board.lastStep;
      const reached = attempt.last_step ?? end;
      if (end > attempt.first_step) g.append(s('path', { d: `M${this.x(Math.max(attempt.first_step, from))} 7H${this.x(Math.min(end, to))}`, class: 'att' }));
      if (this.board.view.ghosts && reached > end) g.append(s('path', { d: `M${this.x(end)} 14H${this.x(reached)}`, class: 'gho' }));
      if (attempt.ordinal > 0 && this.inside(attempt.first_step)) g.append(s('path', { d: `M${this.x(attempt.first_step)} 3V16`, class: 'onset own' }));
    }
  }

  /** @param {SVGElement} g @param {string} pattern */
  #alerts(g, pattern) {
    let reached = -1;
    const mildFirst = [...this.board.bands].sort((a, b) => Number(a.kind === 'act') - Number(b.kind === 'act') || b.from - a.from);
    for (const band of mildFirst) {
      const [begun, told, end] = [this.x(band.from), this.x(band.told), this.x(band.to)];
      g.append(s('rect', { x: told, y: LANE + 3, width: Math.max(0, end - told), height: 14, class: `band ${band.kind}` }));
      g.append(s('rect', { x: begun, y: LANE + 3, width: Math.max(0, told - begun), height: 14, fill: `url(#${pattern})` }));
      g.append(s('path', { d: `M${begun} ${LANE + 2}v16`, class: `onset ${band.kind}` }));
    }
    for (const band of mildFirst.reverse()) {
      const told = this.x(band.told);
      const words = this.host.clientWidth < 420 ? band.name : `${band.name}: since ${band.from}, told ${band.told}`;
      const wide = words.length * 7.2;
      const x = Math.max(this.left, Math.min(told + 6, this.right - wide));
      if (x > reached) {
        g.append(s('text', { x, y: LANE + 14, class: band.kind }, words));
        reached = x + wide;
      }
    }
  }

  /** @param {SVGElement} g */
  #checkpoints(g) {
    const onset = Math.min(...this.board.bands.map((band) => band.from), Infinity);
    const steps = [...this.phases.values()].filter((phase) => phase.name === 'checkpoint').map((phase) => phase.end_step ?? phase.begin_step).sort((a, b) => a - b);
    const good = steps.filter((step) => step <= onset).at(-1);
    steps.forEach((step, i) => {
      if (!this.inside(step)) return;
      const best = step === good && onset < Infinity;
      g.append(s('rect', { x: this.x(step) - 4.5, y: 2 * LANE + 5.5, width: 9, height: 9, class: `cp ${step > onset ? 'spoiled' : best ? 'best' : ''}` }));
      const room = this.x(steps[i + 1] ?? Infinity) - this.x(step);
      if (best && !(room < 104) && this.x(step) + 110 < this.right) g.append(s('text', { x: this.x(step) + 9, y: 2 * LANE + 14, class: 'good' }, `${step}, last good`));
    });
  }

  /** @param {SVGElement} g */
  #evaluations(g) {
    for (const phase of this.phases.values()) {
      if (!this.inside(phase.begin_step)) continue;
      const x = this.x(phase.begin_step);
      const y = 3 * LANE + 10;
      if (phase.name === 'evaluation') g.append(s('path', { d: `M${x} ${y - 5}v10`, class: 'ev' }));
      if (phase.name === 'sampling') g.append(s('path', { d: `M${x} ${y - 6}l6 6-6 6-6-6Z`, class: 'sam' }));
    }
  }

  /** @param {SVGElement} g */
  #notes(g) {
    const noted = [...this.events.map((event) => event.step), ...[...this.phases.values()].filter((phase) => phase.name === 'note' || phase.name === 'data_mix').map((phase) => phase.begin_step)];
    const y = 4 * LANE + 10;
    for (const step of noted.slice(-400)) {
      if (this.inside(step)) g.append(s('path', { d: `M${this.x(step) - 1} ${y + 7}V${y - 7}h9l-3 3.5 3 3.5h-7v7Z`, class: 'nt' }));
    }
  }

  /** @param {SVGElement} svg @param {number} height */
  #axis(svg, height) {
    const [from, to] = this.board.domain();
    const [x0, x1] = [this.board.x(from), this.board.x(to)];
    for (const tick of this.board.xTicks(x0, x1, Math.max(2, Math.floor((this.right - this.left) / 120)))) {
      const x = this.left + ((tick - x0) / (x1 - x0 || 1)) * (this.right - this.left);
      svg.append(s('path', { d: `M${x} ${height - 24}v4`, class: 'axis' }));
      svg.append(s('text', { x, y: height - 7, class: 'tick', 'text-anchor': x < this.left + 10 ? 'start' : 'middle' }, this.board.xName(tick)));
    }
    svg.append(s('path', { d: `M${this.left} ${height - 24}H${this.right}`, class: 'axis' }));
    if (this.host.clientWidth >= 420) svg.append(s('text', { x: this.right + 8, y: height - 7 }, this.board.view.x));
  }

  /** @param {number | null} step */
  cursor(step) {
    const mark = this.host.querySelector('.cursor');
    const inside = step !== null && this.inside(step);
    mark?.setAttribute('visibility', inside ? 'visible' : 'hidden');
    if (inside) mark?.setAttribute('transform', `translate(${this.x(step)} 0)`);
  }

  /** Write what happened near a step. @param {number} step */
  tell(step) {
    const [from, to] = this.board.domain();
    const reach = Math.max(12, (to - from) * 0.03);
    const hits = this.#all().filter(([at]) => Math.abs(at - step) <= reach).slice(0, 12);
    const when = this.board.instant(step);
    this.near.replaceChildren(h('b', {}, `Near step ${step.toLocaleString('en-US')}${when ? ` (${when})` : ''}:`), ...(hits.length ? hits.map(([at, text]) => h('span', {}, `${at.toLocaleString('en-US')} `, foreign(text))) : [h('span', {}, 'nothing was noted.')]));
  }

  /** @returns {[number, string][]} */
  #all() {
    /** @type {[number, string][]} */
    const all = [];
    for (const attempt of this.attempts) if (attempt.ordinal > 0) all.push([attempt.first_step, `attempt ${attempt.ordinal + 1} begins`]);
    for (const band of this.board.bands) all.push([band.from, `onset: ${band.name}`], [band.told, `alert opened: ${band.name}`]);
    for (const phase of this.phases.values()) all.push([phase.begin_step, `${phase.name === 'sampling' ? 'answers sampled' : phase.name}${phase.text ? `: ${phase.text}` : ''}${phase.path ? ` ${phase.path.split('/').at(-1)}` : ''}`]);
    for (const event of this.events) all.push([event.step, `${event.name.replaceAll('_', ' ')}${event.text ? `: ${event.text}` : ''}`]);
    return all.sort((a, b) => a[0] - b[0]);
  }
}
