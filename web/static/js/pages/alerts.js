// @ts-check
/* All alerts: what is open, since when, and the button that says "I have it". */

import { $, button, choice, foreign, h, keepFocus, say } from '../dom.js';
import { alertPage, get, now, post, runPage, whoAmI } from '../api.js';
import { clock, count, duration, money, plural } from '../format.js';
import { Live } from '../live.js';
import { alertKind, countAlerts, problemPanel, setLamp, start, title, toast } from '../shell.js';

/** @typedef {import('../types').Alert} Alert */

const ZONE = Intl.DateTimeFormat().resolvedOptions().timeZone;
const WORDS = { act: 'Act', look: 'Look', info: 'Info', done: 'Over' };
/** @type {Map<string, Alert>} */
const alerts = new Map();
let show = 'open';

/** @param {Alert} alert */
function stateText(alert) {
  if (alert.state === 'resolved') return `resolved ${clock(alert.resolved_at, ZONE, now())}${alert.resolved_reason ? `: ${alert.resolved_reason.replaceAll('_', ' ')}` : ''}`;
  if (alert.state === 'acknowledged') return `acknowledged by ${alert.acknowledged_by ?? 'somebody'}, ${clock(alert.acknowledged_at, ZONE, now())}`;
  return `${alert.severity}, nobody has acknowledged it`;
}

/** @param {Alert} alert */
async function acknowledge(alert) {
  try {
    await post(`alerts/${encodeURIComponent(alert.id)}/acknowledge`, { by: whoAmI(), note: '' });
    toast('Acknowledged.');
    setTimeout(load, 300);
  } catch (problem) {
    toast(problem instanceof Error ? problem.message : 'That did not work.');
  }
}

const SEVERITY = ['critical', 'warning', 'info'];

/** What one cause did to one run is one card: its worst open alert, and the others. @param {Alert[]} all @returns {Alert[][]} */
function cards(all) {
  /** @type {Map<string, Alert[]>} */
  const found = new Map();
  for (const alert of all) {
    const key = alert.incident || alert.id;
    found.set(key, [...(found.get(key) ?? []), alert]);
  }
  /** @param {Alert} alert */
  const over = (alert) => Number(alert.state === 'resolved');
  for (const kin of found.values()) kin.sort((a, b) => over(a) - over(b) || SEVERITY.indexOf(a.severity) - SEVERITY.indexOf(b.severity) || a.onset_step - b.onset_step || a.opened_step - b.opened_step);
  return [...found.values()];
}

/** @param {Alert[]} others */
function also(others) {
  const links = others.flatMap((other, index) => [index ? '; ' : ' ', h('a', { href: alertPage(other.id) }, foreign(other.title || other.detector)), ` since ${count(other.onset_step)} (${other.state === 'resolved' ? 'over' : other.severity})`]);
  return h('p', { class: 'small also' }, 'Of the same cause:', ...links);
}

/** @param {Alert} alert @param {Alert[]} others of the same incident */
function item(alert, others) {
  const kind = alertKind(alert);
  const lamp = h('span');
  setLamp(lamp, kind === 'info' ? 'done' : kind, WORDS[kind], 'mid');
  const spent = alert.hours_since_onset === null || alert.state === 'resolved' ? '' : `So far ${duration(alert.hours_since_onset * 3600)}${alert.cost_so_far === null ? '' : `, ${money(alert.cost_so_far, alert.currency)}`}; `;
  return h('li', { 'data-alert': alert.id },
    lamp,
    h('div', {},
      h('h2', {}, h('a', { href: alertPage(alert.id) }, foreign(alert.title || alert.detector), alert.subject ? ' ' : null, alert.subject ? foreign(alert.subject) : null, ` since step ${count(alert.onset_step)}`)),
      h('p', { class: 'small' }, foreign(alert.evidence.summary ?? '')),
      others.length ? also(others) : null,
      h('p', { class: 'small quiet' }, h('a', { href: runPage(alert.run) }, foreign(alert.run_name || alert.run)), ` \u00b7 ${spent}told at step ${count(alert.opened_step)}, ${clock(alert.opened_at, ZONE, now())} \u00b7 `, foreign(stateText(alert)))),
    h('div', { class: 'do' }, alert.state === 'firing' ? button('Acknowledge', () => void acknowledge(alert)) : null, h('a', { class: 'btn', href: alertPage(alert.id) }, 'Open')));
}

function paint() {
  const rank = { act: 0, look: 1, info: 2, done: 3 };
  const all = [...alerts.values()];
  const open = all.filter((alert) => alert.state !== 'resolved');
  const waiting = open.filter((alert) => alert.state === 'firing').length;
  say($('#count'), `${open.length} open, ${waiting} waiting for a person`);
  title(waiting ? `${plural(waiting, 'alert')} waiting` : 'Alerts');
  const shown = cards(show === 'open' ? open : all).sort(([a], [b]) => rank[alertKind(a)] - rank[alertKind(b)] || b.opened_at - a.opened_at);
  const none = show === 'open' ? 'No alert is open. What was told before is under All.' : 'Nothing has ever been told.';
  keepFocus($('#alerts'), () => $('#alerts').replaceChildren(...(shown.length ? shown.map(([lead, ...others]) => item(lead, others)) : [h('li', {}, h('p', { class: 'quiet' }, none))])));
}

async function load() {
  try {
    const answer = /** @type {{alerts: Alert[]}} */ (await get(`alerts?${show === 'open' ? 'open=true&' : ''}limit=200`));
    if (show === 'all') alerts.clear();
    else for (const [id, alert] of alerts) if (alert.state !== 'resolved') alerts.delete(id);
    for (const alert of answer.alerts) alerts.set(alert.id, alert);
    paint();
  } catch (problem) {
    $('#alerts').replaceChildren(h('li', {}, problemPanel(problem, load)));
  }
  await countAlerts().catch(() => {});
}

start();
choice($('#show'), (data) => { show = data.show ?? 'open'; void load(); });
void load().then(() => {
  new Live({
    zone: ZONE,
    on: { alert: (alert) => { alerts.set(alert.id, alert); paint(); void countAlerts(); }, resync: load, back: load },
  });
});
