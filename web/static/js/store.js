// @ts-check
/* The points of one run as this tab holds them: whole lines, and finer ones of the zoomed stretch.
   Bounded: a line that has grown too long is fetched anew, thinned by the server. */

import { get, runPath } from './api.js';
import { MAX_POINTS, append, insertion, toTrack } from './tracks.js';

/** @typedef {import('./types').Track} Track */
/** @typedef {Map<string, Track[]>} Held */

const KEYS_A_REQUEST = 12;

export class Store {
  /** @param {string} run */
  constructor(run) {
    this.run = run;
    /** @type {Held} */
    this.whole = new Map();
    /** @type {Held} */
    this.fine = new Map();
    /** @type {{from: number, to: number} | null} */
    this.zoom = null;
    /** @type {Set<string>} */
    this.asked = new Set();
    /** @type {Set<string>} */
    this.thinning = new Set();
    /** @type {(keys: string[]) => void} */
    this.changed = () => {};
    /** @type {(problem: unknown) => void} */
    this.failed = () => {};
    /** @type {number | undefined} */
    this.timer = undefined;
    /** Fetches under way, and the live rows that came meanwhile: an answer may be older than they.
     * @type {number} */
    this.fetching = 0;
    /** @type {{attempt: string, rows: import('./types').Rows}[]} */
    this.meanwhile = [];
  }

  /** Whether a series was asked for and has been answered. @param {string} key */
  loaded(key) {
    return this.whole.has(key);
  }

  /** Lines of a series, the zoomed ones where they are there: what is owned joined to one line, and
   * the ghosts. @param {string} key @returns {Track[]} */
  tracks(key) {
    const held = (this.zoom && this.fine.get(key)) || this.whole.get(key) || [];
    const own = held.filter((track) => !track.ghost && track.steps.length);
    return [...(own.length > 1 ? [join(own)] : own), ...held.filter((track) => track.ghost && track.steps.length)];
  }

  /** The line that counts: of all that is owned, joined. @param {string} key @returns {Track | undefined} */
  owned(key) {
    const parts = (this.whole.get(key) || []).filter((track) => !track.ghost);
    return parts.length > 1 ? join(parts) : parts[0];
  }

  /** Ask for series not asked for yet; all asked for within a moment travel together. @param {string[]} keys */
  want(keys) {
    for (const key of keys) {
      if (!this.loaded(key)) this.asked.add(key);
      if (this.zoom && !this.fine.has(key)) this.asked.add(key);
    }
    if (!this.asked.size || this.timer !== undefined) return;
    this.timer = setTimeout(() => this.#flush(), 15);
  }

  async #flush() {
    this.timer = undefined;
    const keys = [...this.asked];
    this.asked.clear();
    /** @type {Promise<void>[]} */
    const jobs = [];
    for (let i = 0; i < keys.length; i += KEYS_A_REQUEST) {
      const some = keys.slice(i, i + KEYS_A_REQUEST);
      const fresh = some.filter((key) => !this.loaded(key));
      if (fresh.length) jobs.push(this.#fetch(fresh, this.whole, null));
      const fine = some.filter((key) => this.zoom && !this.fine.has(key));
      if (fine.length) jobs.push(this.#fetch(fine, this.fine, this.zoom));
    }
    await Promise.all(jobs);
  }

  /** @param {string[]} keys @param {Held} into @param {{from: number, to: number} | null} zoom */
  async #fetch(keys, into, zoom) {
    const query = new URLSearchParams(keys.map((key) => ['key', key]));
    query.set('max_points', '1000');
    if (zoom) {
      query.set('from_step', String(Math.floor(zoom.from)));
      query.set('to_step', String(Math.ceil(zoom.to)));
    }
    this.fetching += 1;
    try {
      const answer = await get(`${runPath(this.run)}/points?${query}`);
      if (zoom && zoom !== this.zoom) return;
      const series = /** @type {{series: import('./types').PointSeries[]}} */ (answer).series;
      for (const key of keys) into.set(key, series.filter((one) => one.key === key).map(toTrack));
      for (const { attempt, rows } of this.meanwhile) this.#put(attempt, rows, new Set(keys));
      this.changed(keys);
    } catch (problem) {
      this.failed(problem);
    } finally {
      this.fetching -= 1;
      if (!this.fetching) this.meanwhile = [];
    }
  }

  /** Look closer, or (null) at everything. @param {number | null} from @param {number | null} to @param {string[]} keys */
  look(from, to, keys) {
    this.fine = new Map();
    this.zoom = from === null || to === null ? null : { from, to };
    if (this.zoom) this.want(keys);
  }

  /** Take live rows. @param {string} attempt @param {import('./types').Rows} rows */
  take(attempt, rows) {
    if (this.fetching) this.meanwhile.push({ attempt, rows });
    this.#put(attempt, rows, null);
    this.changed(Object.keys(rows));
  }

  /** @param {string} attempt @param {import('./types').Rows} rows @param {Set<string> | null} only these series */
  #put(attempt, rows, only) {
    for (const [key, points] of Object.entries(rows)) {
      if (only && !only.has(key)) continue;
      const tracks = this.whole.get(key);
      if (!tracks) continue;
      this.#append(tracks, key, attempt, points);
      const fine = this.fine.get(key);
      const inside = points.filter(([step]) => this.zoom && step <= this.zoom.to);
      if (fine && inside.length) this.#append(fine, key, attempt, inside);
    }
  }

  /** @param {Track[]} tracks @param {string} key @param {string} attempt @param {[number, number, import('./types').Cell][]} points */
  #append(tracks, key, attempt, points) {
    let track = tracks.find((one) => one.attempt === attempt && !one.ghost);
    if (!track) {
      track = { key, attempt, ghost: false, raw: true, steps: [], times: [], values: [], low: null, high: null, broken: [], mixed: [] };
      tracks.push(track);
    }
    append(track, points);
    if (track.steps.length > MAX_POINTS) this.#thin(key);
  }

  /** Fetch a line anew that has grown too long; what is held stays until it comes. @param {string} key */
  #thin(key) {
    if (this.thinning.has(key)) return;
    this.thinning.add(key);
    this.#fetch([key], this.whole, null).finally(() => this.thinning.delete(key));
  }

  /** Forget all and fetch again what was held. */
  reload() {
    const keys = [...this.whole.keys()];
    this.fine = new Map();
    for (let i = 0; i < keys.length; i += KEYS_A_REQUEST) {
      void this.#fetch(keys.slice(i, i + KEYS_A_REQUEST), this.whole, null);
    }
    if (this.zoom) this.want(keys);
  }
}

/** One line out of the owned parts of several attempts. @param {Track[]} parts @returns {Track} */
function join(parts) {
  const sorted = [...parts].sort((a, b) => (a.steps[0] ?? 0) - (b.steps[0] ?? 0));
  const thinned = parts.some((part) => part.low && part.high);
  const all = /** @type {Track} */ ({ ...sorted[0], steps: [], times: [], values: [], low: thinned ? [] : null, high: thinned ? [] : null, broken: [], mixed: [] });
  for (const part of sorted) {
    const from = part.steps[0];
    if (from === undefined) continue;
    const keep = insertion(all.steps, from);
    all.steps = [...all.steps.slice(0, keep), ...part.steps];
    all.times = [...all.times.slice(0, keep), ...part.times];
    all.values = [...all.values.slice(0, keep), ...part.values];
    if (all.low) all.low = [...all.low.slice(0, keep), ...(part.low ?? part.values)];
    if (all.high) all.high = [...all.high.slice(0, keep), ...(part.high ?? part.values)];
    all.broken.push(...part.broken);
    all.mixed.push(...part.mixed);
  }
  return all;
}
