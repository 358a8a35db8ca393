// @ts-check
/* What every page does first: colours, glyphs, the number of alerts in the bar, lamps and problems. */

import { $, $$, button, foreign, glyph, h, say } from './dom.js';
import { Problem, get } from './api.js';
import { count } from './format.js';
import { wireTheme } from './theme.js';

/** @typedef {import('./types').Alert} Alert */

/** Glyph and word of each state of health. @type {Record<string, [string, string]>} */
export const LAMPS = {
  act: ['act', 'Act'],
  look: ['look', 'Look'],
  healthy: ['ok', 'Healthy'],
  lost: ['lost', 'Lost'],
  finished: ['done', 'Finished'],
  failed: ['fail', 'Failed'],
  stopped: ['done', 'Stopped'],
};

/** @param {string} health @returns {[string, string]} */
export function lampOf(health) {
  return LAMPS[health] ?? ['lost', health];
}

/** Set a lamp. @param {HTMLElement} lamp @param {string} kind @param {string} word @param {string} size */
export function setLamp(lamp, kind, word, size) {
  const quiet = kind === 'done' || kind === 'fail';
  lamp.className = `lamp ${size} ${kind}${quiet && word.length > 5 ? ' long' : ''}`;
  if (lamp.dataset.word === word && lamp.querySelector(`.glyph.${kind}`)) return;
  lamp.dataset.word = word;
  lamp.replaceChildren(glyph(kind), h('span', {}, word));
}

/** The state an alert puts a run into. @param {Pick<Alert, 'severity' | 'state'>} alert @returns {'act' | 'look' | 'info' | 'done'} */
export function alertKind(alert) {
  if (alert.state === 'resolved') return 'done';
  if (alert.severity === 'critical' && alert.state === 'firing') return 'act';
  return alert.severity === 'info' ? 'info' : 'look';
}

/** Severity alone, for bands. @param {Pick<Alert, 'severity'>} alert @returns {'act' | 'look'} */
export function bandKind(alert) {
  return alert.severity === 'critical' ? 'act' : 'look';
}

/** How many open alerts need a person, in the bar. */
export async function countAlerts() {
  const badge = document.getElementById('alert-count');
  if (!badge) return;
  const { alerts } = /** @type {{alerts: Alert[]}} */ (await get('alerts?open=true&limit=100'));
  const waiting = alerts.filter((alert) => alert.state === 'firing' && alert.severity !== 'info').length;
  badge.hidden = !waiting;
  badge.setAttribute('aria-label', `${waiting} waiting for a person`);
  say(badge, count(waiting));
}

/** One panel, one sentence, and the way to try again. @param {unknown} problem @param {() => void} again */
export function problemPanel(problem, again) {
  const text = problem instanceof Error ? problem.message : String(problem);
  const hint = problem instanceof Problem ? problem.hint : '';
  return h('div', { class: 'problem', role: 'alert' }, h('span', { class: 'tag act' }, glyph('act'), 'Not shown'), foreign(text), hint ? foreign(hint) : null, button('Try again', again));
}

/** @type {number | undefined} */
let toastTimer;

/** Say something for a few seconds. @param {string} text */
export function toast(text) {
  document.querySelector('.toast')?.remove();
  const node = h('div', { class: 'toast', role: 'status' }, text);
  document.body.append(node);
  clearTimeout(toastTimer);
  toastTimer = setTimeout(() => node.remove(), 5000);
}

/** Wire what all pages have. */
export function start() {
  for (const node of $$('[data-glyph]')) node.prepend(glyph(node.dataset.glyph ?? 'info'));
  wireTheme(/** @type {HTMLSelectElement} */ ($('#theme')));
  if (document.body.dataset.page !== 'login') countAlerts().catch(() => {});
}

/** The page's title, led by what matters. @param {string} text */
export function title(text) {
  const whole = `${text} - Watchkeeper`;
  if (document.title !== whole) document.title = whole;
}
