// @ts-check
/* What all charts of a page share: the points, the view, the alerts' bands, the cursor, and the one
   clock that lets them draw: at most once a second, only those in sight, never in a hidden tab. */

import { clock, short } from './format.js';
import { CLOCK_STEPS, ticks } from './axis.js';
import { between } from './tracks.js';
import { now } from './api.js';
import { onTheme } from './theme.js';

/** @typedef {import('./types').View} View */
/** @typedef {{draw: () => void, cursor: (step: number | null) => void, visible: boolean, dirty: boolean, ready?: boolean, keys: string[], host: HTMLElement}} Drawn */

const DRAW_EVERY_MS = 1000;

export class Board {
  /** @param {import('./store.js').Store} store */
  constructor(store) {
    this.store = store;
    this.zone = 'UTC';
    this.stale = false;
    this.lastStep = 0;
    /** @type {View} */
    this.view = { x: 'step', log: false, smooth: 0.85, from: null, to: null, ghosts: true };
    /** @type {import('./types').Band[]} */
    this.bands = [];
    /** @type {Set<Drawn>} */
    this.charts = new Set();
    /** Steps and times that belong together, for placing what has a step only.
     * @type {{steps: number[], times: number[]}} */
    this.base = { steps: [], times: [] };
    /** Steps and the tokens seen by then. @type {{steps: number[], counts: number[]}} */
    this.tokens = { steps: [], counts: [] };
    /** @type {(step: number) => void} */
    this.picked = () => {};
    /** @type {(view: View) => void} */
    this.viewed = () => {};
    /** @type {number | undefined} */
    this.timer = undefined;
    this.drawnAt = 0;
    this.seer = new IntersectionObserver((entries) => this.#seen(entries), { rootMargin: '120px' });
    store.changed = (keys) => this.#changed(keys);
    onTheme(() => this.all());
    document.addEventListener('visibilitychange', () => this.soon());
    let width = innerWidth;
    addEventListener('resize', () => {
      if (width !== innerWidth) this.all();
      width = innerWidth;
    });
  }

  /** @param {Drawn} chart */
  add(chart) {
    this.charts.add(chart);
    this.seer.observe(chart.host);
  }

  /** @param {IntersectionObserverEntry[]} entries */
  #seen(entries) {
    for (const entry of entries) {
      for (const chart of this.charts) {
        if (chart.host !== entry.target) continue;
        chart.visible = entry.isIntersecting;
        if (chart.visible) this.store.want(chart.keys);
      }
    }
    this.now();
  }

  /** @param {string[]} keys */
  #changed(keys) {
    const some = new Set(keys);
    for (const chart of this.charts) if (chart.keys.some((key) => some.has(key))) chart.dirty = true;
    this.soon();
  }

  /** Everything is to be drawn anew. */
  all() {
    for (const chart of this.charts) chart.dirty = true;
    this.now();
  }

  /** One chart is to be drawn anew, soon. @param {Drawn} chart */
  again(chart) {
    chart.dirty = true;
    this.soon();
  }

  /** Draw when a second has passed since the last time. */
  soon() {
    if (this.timer !== undefined || document.hidden) return;
    const wait = Math.max(0, this.drawnAt + DRAW_EVERY_MS - performance.now());
    this.timer = setTimeout(() => {
      this.timer = undefined;
      requestAnimationFrame(() => this.now());
    }, wait);
  }

  /** Draw what is dirty and in sight. */
  now() {
    if (document.hidden) return;
    let drew = false;
    for (const chart of this.charts) {
      // One for which nothing has come stays due, and does not make the others wait.
      if (!chart.dirty || !chart.visible || chart.ready === false) continue;
      chart.dirty = false;
      chart.draw();
      drew = true;
    }
    if (drew) this.drawnAt = performance.now();
  }

  /** Change the view and redraw. @param {Partial<View>} change */
  set(change) {
    Object.assign(this.view, change);
    if ('from' in change) {
      const seen = [...this.charts].filter((chart) => chart.visible).flatMap((chart) => chart.keys);
      this.store.look(this.view.from, this.view.to, seen);
    }
    this.viewed(this.view);
    this.all();
  }

  /** @param {number | null} step */
  cursor(step) {
    for (const chart of this.charts) if (chart.visible) chart.cursor(step);
  }

  /** Steps from and to. @returns {[number, number]} */
  domain() {
    const from = this.view.from ?? this.base.steps[0] ?? 0;
    const to = this.view.to ?? Math.max(this.lastStep, from + 1);
    return [from, Math.max(to, from + 1)];
  }

  /** Where a step, or a point with its own time, lies on the horizontal axis.
   * @param {number} step @param {number} [time] */
  x(step, time) {
    if (this.view.x === 'step') return step;
    if (this.view.x === 'tokens') return between(this.tokens.steps, this.tokens.counts, step);
    const at = time ?? between(this.base.steps, this.base.times, step);
    return this.view.x === 'clock' ? at : (at - (this.base.times[0] ?? 0)) / 3600;
  }

  /** The step at a place of the horizontal axis. @param {number} x */
  step(x) {
    if (this.view.x === 'step') return x;
    if (this.view.x === 'tokens') return between(this.tokens.counts, this.tokens.steps, x);
    const time = this.view.x === 'clock' ? x : x * 3600 + (this.base.times[0] ?? 0);
    return between(this.base.times, this.base.steps, time);
  }

  /** Ticks of the horizontal axis. @param {number} from @param {number} to @param {number} wanted */
  xTicks(from, to, wanted) {
    return this.view.x === 'clock' ? ticks(from, to, Math.max(1, wanted / 1.5), CLOCK_STEPS) : ticks(from, to, wanted);
  }

  /** @param {number} x */
  xName(x) {
    if (this.view.x === 'clock') return clock(x, this.zone, now());
    if (this.view.x === 'tokens') return short(x);
    const text = Number(x.toFixed(3)).toLocaleString('en-US');
    return this.view.x === 'hours' ? `${text} h` : text;
  }

  /** The instant of a step in words. @param {number} step */
  instant(step) {
    return this.base.steps.length ? clock(between(this.base.steps, this.base.times, step), this.zone, now()) : '';
  }
}
