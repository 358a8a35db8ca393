// @ts-check
/* Talking to the server this page came from; every address is relative to where the page lies. */

/** The root of the dashboard, whatever path a proxy put it under. */
export const ROOT = new URL(document.body.dataset.base || './', location.href);

/** @param {string} path without a leading slash @returns {string} */
export function at(path) {
  return new URL(path, ROOT).href;
}

/** @param {string} run */
export function runPage(run) {
  return at(`runs/${encodeURIComponent(run)}`);
}

/** @param {string} alert */
export function alertPage(alert) {
  return at(`alerts/${encodeURIComponent(alert)}`);
}

/** What the server answered when it could not do as asked. */
export class Problem extends Error {
  /** @param {number} status @param {{title?: string, detail?: string, hint?: string, instance?: string}} body */
  constructor(status, body) {
    super(body.detail || body.title || `The server answered ${status}.`);
    this.status = status;
    this.hint = body.hint || '';
    this.instance = body.instance || '';
  }
}

/** How far the server's clock is ahead of this browser's, in seconds. */
let skewS = 0;

/** The server's time, seconds UTC: ages are told by its clock, not by this machine's. */
export function now() {
  return Date.now() / 1000 + skewS;
}

/** @param {Response} answer */
function readClock(answer) {
  const date = Date.parse(answer.headers.get('Date') || '');
  const skew = (date - Date.now()) / 1000;
  if (Number.isFinite(skew)) skewS = Math.abs(skew) > 2 ? skew : 0;
}

/** @param {Response} answer @returns {Promise<unknown>} */
async function understood(answer) {
  readClock(answer);
  if (answer.status === 401) {
    const back = encodeURIComponent(location.pathname + location.search);
    location.assign(at(`login?next=${back}`));
  }
  if (!answer.ok) {
    const body = await answer.json().catch(() => ({}));
    throw new Problem(answer.status, body);
  }
  return answer.status === 204 ? null : answer.json().catch(() => null);
}

/**
 * @template T
 * @param {string} path @param {AbortSignal} [signal] @returns {Promise<T>}
 */
export async function get(path, signal) {
  const answer = await fetch(at(`api/v1/${path}`), { headers: { Accept: 'application/json' }, signal });
  return /** @type {Promise<T>} */ (understood(answer));
}

/** @param {'POST' | 'PATCH' | 'PUT' | 'DELETE'} method @param {string} path @param {object} [body] */
export async function send(method, path, body) {
  const answer = await fetch(at(`api/v1/${path}`), {
    method,
    headers: { 'Content-Type': 'application/json', Accept: 'application/json' },
    body: body === undefined ? null : JSON.stringify(body),
  });
  return understood(answer);
}

/** @param {string} path @param {object} body */
export function post(path, body) {
  return send('POST', path, body);
}

/** @param {string} run */
export function runPath(run) {
  return `runs/${encodeURIComponent(run)}`;
}

/** The name a person acts under, remembered by this browser. */
export function whoAmI() {
  try {
    return localStorage.getItem('person') || 'dashboard';
  } catch {
    return 'dashboard';
  }
}

/** @param {string} name */
export function iAm(name) {
  try {
    localStorage.setItem('person', name);
  } catch {
    /* private mode */
  }
}
