// @ts-check
/* One stream per tab. It resumes where it broke off, tries again by itself, lets go while the tab is
   hidden, and says plainly when the page no longer knows what is going on. */

import { $, glyph, h, tag } from './dom.js';
import { at, now } from './api.js';
import { ago, clockSeconds, duration } from './format.js';

const SILENT_S = 45;
const HIDDEN_S = 10;
const EVENTS = ['points', 'alert', 'run', 'event', 'phase', 'resync', 'bye', 'ping'];

/** @typedef {(data: any) => void} Handler */

export class Live {
  /**
   * @param {{runs?: string[], cursor?: string, zone?: string, on: Record<string, Handler>}} options
   */
  constructor({ runs = [], cursor = '', zone = 'UTC', on }) {
    this.runs = runs;
    this.cursor = cursor;
    this.zone = zone;
    this.on = on;
    this.heard = now();
    this.tries = 0;
    this.retryAt = 0;
    /** @type {EventSource | null} */
    this.source = null;
    /** @type {number | null} */
    this.cutSince = null;
    /** @type {number | undefined} */
    this.letGo = undefined;
    document.addEventListener('visibilitychange', () => this.#visibility());
    addEventListener('pagehide', () => this.#close());
    setInterval(() => this.#tick(), 1000);
    this.#connect();
  }

  get cut() {
    return this.cutSince !== null;
  }

  #connect() {
    this.#close();
    const query = new URLSearchParams(this.runs.map((run) => ['run', run]));
    if (this.cursor) query.set('cursor', this.cursor);
    const source = new EventSource(at(`api/v1/stream?${query}`));
    this.source = source;
    source.addEventListener('open', () => this.#hear());
    source.addEventListener('error', () => this.#lost());
    for (const name of EVENTS) source.addEventListener(name, (event) => this.#take(name, event));
  }

  #close() {
    this.source?.close();
    this.source = null;
  }

  /** @param {string} name @param {MessageEvent} event */
  #take(name, event) {
    if (event.lastEventId) this.cursor = event.lastEventId;
    this.#hear();
    if (name === 'bye') return this.#lost();
    if (name === 'ping') return;
    this.on[name]?.(JSON.parse(event.data || '{}'));
  }

  #hear() {
    const again = this.cut;
    this.heard = now();
    this.tries = 0;
    this.cutSince = null;
    if (again) this.on.back?.({});
    this.#paint();
  }

  #lost() {
    this.#close();
    this.tries += 1;
    const wait = Math.min(30, 2 ** Math.min(5, this.tries - 1)) * (0.75 + Math.random() / 2);
    this.retryAt = now() + wait;
  }

  /** Try now, whatever the plan was. */
  retry() {
    this.retryAt = 0;
    this.#connect();
  }

  #visibility() {
    clearTimeout(this.letGo);
    if (document.hidden) {
      this.letGo = setTimeout(() => this.#close(), HIDDEN_S * 1000);
    } else if (!this.source || now() - this.heard > SILENT_S) {
      this.#connect();
    }
  }

  #tick() {
    if (document.hidden) return;
    if (this.source && now() - this.heard > SILENT_S) this.#connect();
    else if (!this.source && now() >= this.retryAt) this.#connect();
    const silent = now() - this.heard;
    const open = this.source?.readyState === EventSource.OPEN;
    if (!this.cut && ((!open && silent > 3) || silent > SILENT_S + 5)) {
      this.cutSince = this.heard;
      this.on.cut?.({});
    }
    this.#paint();
    this.on.second?.({});
  }

  #paint() {
    document.body.classList.toggle('cut', this.cut);
    const place = $('#link');
    const banner = $('#cut-banner');
    if (this.cutSince === null) {
      banner.hidden = true;
      place.dataset.state = 'live';
      place.replaceChildren(tag('ok', 'Live'), ' ', h('span', { class: 'hide-phone', 'aria-hidden': 'true' }, ago(now() - this.heard)));
      return;
    }
    const since = clockSeconds(this.cutSince, this.zone);
    place.dataset.state = 'cut';
    place.replaceChildren(tag('lost', `Disconnected ${duration(now() - this.cutSince)}`));
    if (banner.hidden) this.#banner(banner, since);
    const wait = Math.max(0, Math.ceil(this.retryAt - now()));
    $('.wait', banner).textContent = this.source ? 'Trying now. ' : `Trying again in ${wait} s. `;
  }

  /** @param {HTMLElement} banner @param {string} since */
  #banner(banner, since) {
    const now_ = h('a', { href: '#main' }, 'Try now');
    now_.addEventListener('click', (event) => {
      event.preventDefault();
      this.retry();
    });
    banner.replaceChildren(
      h('span', { class: 'lost' }, glyph('lost')),
      h('div', {}, h('b', {}, `Cut off from the server since ${since}. `), 'What you see is from then; the run itself may be going on. ', h('span', { class: 'wait' }), now_),
    );
    banner.hidden = false;
  }
}
