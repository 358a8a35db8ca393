// @ts-check
/* Pointer and keyboard on a chart: the shared cursor, drag to zoom, click to ask what was near. */

export class Pointer {
  /** @param {import('./chart.js').Chart} chart */
  constructor(chart) {
    this.chart = chart;
    this.board = chart.board;
    /** @type {number | null} */
    this.down = null;
    /** @type {number | null} */
    this.at = null;
    const stage = chart.stage;
    if (!chart.spec.small) stage.tabIndex = 0;
    stage.addEventListener('pointermove', (event) => this.#move(event));
    stage.addEventListener('pointerleave', () => this.#leave());
    stage.addEventListener('pointerdown', (event) => this.#press(event));
    stage.addEventListener('pointerup', (event) => this.#release(event));
    stage.addEventListener('dblclick', () => this.board.set({ from: null, to: null }));
    stage.addEventListener('keydown', (event) => this.#key(event));
    stage.addEventListener('blur', () => this.board.cursor(null));
  }

  /** @param {PointerEvent} event */
  #place(event) {
    return event.clientX - this.chart.stage.getBoundingClientRect().left;
  }

  /** @param {number} place pixels @returns {number} */
  #step(place) {
    const frame = this.chart.frame;
    if (!frame) return 0;
    const [x0, x1] = [this.board.x(frame.from), this.board.x(frame.to)];
    const share = (place - frame.left) / (frame.right - frame.left);
    return Math.round(this.board.step(x0 + Math.max(0, Math.min(1, share)) * (x1 - x0)));
  }

  /** @param {PointerEvent} event */
  #move(event) {
    if (!this.chart.frame) return;
    const place = this.#place(event);
    this.board.cursor(this.#step(place));
    if (this.down !== null && event.buttons) this.#choose(this.down, place);
  }

  /** @param {number} from @param {number} to pixels */
  #choose(from, to) {
    const rect = this.chart.over.querySelector('.chosen');
    rect?.setAttribute('x', String(Math.min(from, to)));
    rect?.setAttribute('width', String(Math.abs(to - from)));
  }

  #leave() {
    this.board.cursor(null);
    this.down = null;
    this.#choose(0, 0);
  }

  /** @param {PointerEvent} event */
  #press(event) {
    this.down = event.button === 0 ? this.#place(event) : null;
  }

  /** @param {PointerEvent} event */
  #release(event) {
    if (this.down === null || !this.chart.frame) return;
    const place = this.#place(event);
    const [from, to] = [Math.min(this.down, place), Math.max(this.down, place)];
    this.down = null;
    this.#choose(0, 0);
    if (to - from <= 8) return this.board.picked(this.#step(place));
    const [a, b] = [this.#step(from), this.#step(to)];
    if (b - a > 2) this.board.set({ from: a, to: b });
  }

  /** @param {KeyboardEvent} event */
  #key(event) {
    const frame = this.chart.frame;
    if (!frame) return;
    const jump = Math.max(1, Math.round((frame.to - frame.from) / (event.shiftKey ? 10 : 60)));
    const now = this.at ?? frame.to;
    if (event.key === 'ArrowLeft') this.at = Math.max(frame.from, now - jump);
    else if (event.key === 'ArrowRight') this.at = Math.min(frame.to, now + jump);
    else if (event.key === 'Enter') return this.board.picked(now);
    else if (event.key === 'Escape') return this.board.set({ from: null, to: null });
    else return;
    event.preventDefault();
    this.board.cursor(this.at);
  }
}
