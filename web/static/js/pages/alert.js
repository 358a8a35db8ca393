// @ts-check
/* One alert: what happened, how sure, what do I do now, what does going back lose? */

import { $, button, choice, foreign, h, say } from '../dom.js';
import { alertPage, at, get, iAm, now, post, runPage, runPath, whoAmI } from '../api.js';
import { Board } from '../board.js';
import { Chart, figure } from '../chart.js';
import { ago, briefly, clock, count, duration, groupName, isShare, money, num, percent, plural, short } from '../format.js';
import { Live } from '../live.js';
import { alertKind, bandKind, countAlerts, problemPanel, setLamp, start, title, toast } from '../shell.js';
import { Store } from '../store.js';

/** @typedef {import('../types').AlertDetail} AlertDetail */
/** @typedef {import('../types').SeriesInfo} SeriesInfo */

const id = document.body.dataset.alert ?? '';
const WORDS = { act: 'Act', look: 'Look', info: 'Info', done: 'Over' };
/** @type {AlertDetail | null} */
let alert = null;
/** @type {import('../types').RunDetail | null} */
let run = null;
/** @type {Board | null} */
let board = null;
let loadedAt = 0;
let span = 'onset';

/** @param {number | null | undefined} instant */
function when(instant) {
  return clock(instant, run?.zone ?? 'UTC', now());
}

/** @param {AlertDetail} one */
function paintText(one) {
  const kind = alertKind(one);
  const lamp = kind === 'info' ? 'done' : kind;
  setLamp($('#lamp'), lamp, WORDS[kind], 'big');
  const evidence = one.evidence;
  const chip = h('span', { class: `chip ${kind}` }, one.severity);
  const cause = evidence.causes?.[0]?.text;
  const good = one.last_checkpoint;
  const hours = (one.hours_since_onset ?? 0) * 3600;
  const spent = [duration(hours), one.tokens_since_onset ? `${short(one.tokens_since_onset)} tokens` : '', one.cost_so_far === null ? '' : money(one.cost_so_far, one.currency)].filter(Boolean).join(', ');
  $('#text').replaceChildren(
    h('p', { class: 'small quiet' }, chip, ' \u00a0', foreign(stateText(one))),
    h('h1', {}, foreign(one.run_name || one.run), ': ', foreign(headline(one)), ` since step ${count(one.onset_step)} (${when(one.onset_at)})`),
    evidence.summary ? h('p', {}, foreign(evidence.summary)) : '',
    ...numbers(one),
    cause ? h('p', {}, 'Likely cause: ', foreign(cause.replace(/\.$/, '')), '.') : '',
    h('p', {}, one.state === 'resolved' ? 'It lasted ' : 'So far ', h('b', {}, spent), '. ', ...(good ? ['Last good checkpoint before it: ', h('b', {}, count(good.step)), one.lost_by_going_back_hours === null ? '.' : `; going back loses ${duration(one.lost_by_going_back_hours * 3600)}.`] : ['No good checkpoint before it is known.'])),
    h('p', {}, ...(evidence.first_action ? ['First: ', foreign(evidence.first_action.replace(/\.$/, '')), '. '] : []), h('a', { href: at(one.runbook.replace(/^\//, '')) }, 'What this means')),
  );
  title(`${headline(one)} since step ${one.onset_step}: ${WORDS[kind].toLowerCase()}`);
}

/** @param {AlertDetail} one */
function headline(one) {
  return `${one.title || one.detector}${one.subject ? ` ${one.subject}` : ''}`;
}

/** @param {AlertDetail} one */
function stateText(one) {
  if (one.state === 'resolved') return `resolved ${when(one.resolved_at)}${one.resolved_reason ? `: ${one.resolved_reason.replaceAll('_', ' ')}` : ''}`;
  if (one.state === 'firing') return 'firing, nobody has acknowledged it';
  return `acknowledged by ${one.acknowledged_by || 'somebody'}, ${when(one.acknowledged_at)}${one.acknowledged_note ? `: ${one.acknowledged_note}` : ''}`;
}

/** @param {AlertDetail} one */
function numbers(one) {
  const rows = one.evidence.numbers ?? [];
  if (!rows.length || one.evidence.summary) return [];
  return rows.map(([name, value, unit, ref]) => h('p', {}, foreign(name), ': ', h('b', {}, said(value, unit)), ref ? ' (' : null, ref ? foreign(ref) : null, ref ? ')' : null));
}

/** @param {AlertDetail} one */
function paintSide(one) {
  const good = one.last_checkpoint;
  const rate = run && run.price_per_hour !== null ? money(run.price_per_hour, run.currency) : null;
  /** @type {[string, string, string][]} */
  const rows = good
    ? [['Checkpoint', `${count(good.step)}, ${when(good.at)}`, 'ok'], ['Going back loses', `${plural(one.lost_by_going_back_steps ?? 0, 'sound step')}, ${duration((one.lost_by_going_back_hours ?? 0) * 3600)}`, '']]
    : [['Checkpoint', 'none before the onset', '']];
  rows.push(['Time since onset', duration((one.hours_since_onset ?? 0) * 3600), ''], ['Tokens since onset', one.tokens_since_onset ? short(one.tokens_since_onset) : 'not told', ''], ['Cost since onset', one.cost_so_far === null ? 'no price given' : money(one.cost_so_far, one.currency), '']);
  if (rate && one.state !== 'resolved') rows.push(['Each more hour', rate, '']);
  $('#back').replaceChildren(...rows.map(([name, text, kind]) => h('div', {}, h('dt', {}, name), h('dd', { class: kind }, text))), ...(good?.path ? [h('div', {}, h('dt', {}, 'Path'), h('dd', {}, foreign(good.path)))] : []));
  paintHistory(one);
}

/** What came of each try, where that was not one that went well. @param {import('../types').Message} message */
function triesOf(message) {
  if (message.tries.length === 1 && !message.tries[0].error) return [];
  const texts = message.tries.map((one) => `${when(one.at)} ${one.status ?? 'no answer'} in ${one.latency_s.toFixed(1)} s${one.error ? `: ${one.error}` : ''}`);
  return texts.map((text) => h('span', { class: 'try note' }, foreign(text)));
}

/** @param {AlertDetail} one */
function paintHistory(one) {
  /** @type {[number, Node[], boolean][]} */
  const rows = [[one.onset_at, [h('span', {}, `Onset, step ${count(one.onset_step)}`)], false]];
  for (const change of one.changes) {
    const who = change.by ? ` by ${change.by}` : '';
    rows.push([change.at, [h('span', {}, h('b', {}, change.new), foreign(`${who}${change.step === null ? '' : `, step ${count(change.step)}`}${change.reason ? `: ${change.reason.replaceAll('_', ' ')}` : ''}`))], true]);
  }
  for (const message of one.messages) {
    const took = message.settled_at === null ? '' : `, ${duration(message.settled_at - message.created_at)}`;
    const said = foreign(`${message.moment}: ${message.channel_name || message.channel} ${message.state.replaceAll('_', ' ')}${took}`);
    rows.push([message.settled_at ?? message.created_at ?? one.opened_at, [h('span', { class: 'quiet' }, said), ...triesOf(message)], true]);
  }
  rows.sort((a, b) => a[0] - b[0]);
  if (one.state !== 'resolved') rows.push([now(), [h('span', {}, `Now, step ${count(run?.last_step ?? one.last_step)}. ${one.state === 'firing' ? 'Waiting for a person' : 'Somebody has it'}`)], false]);
  $('#history').replaceChildren(...rows.map(([instant, kids, full]) => h('li', {}, h('time', {}, when(instant)), h('i', { class: full ? 'dot full' : 'dot' }), h('span', {}, ...kids))));
}

/** @param {AlertDetail} one */
function paintBook(one) {
  const evidence = one.evidence;
  const causes = evidence.causes ?? [];
  $('#causes-panel').hidden = !causes.length;
  $('#causes').replaceChildren(...causes.map((cause, i) => h('li', {}, h('span', { class: 'rank' }, String(i + 1)), h('div', {}, h('b', {}, foreign(cause.text.charAt(0).toUpperCase() + cause.text.slice(1))), cause.why ? h('p', { class: 'small quiet' }, foreign(cause.why)) : null), h('span', { class: 'fit' }, `${cause.signs_seen} of ${cause.signs_of} signs`))));
  /** @type {[string, string][]} */
  const rule = [['Rule', `${evidence.rule ?? one.detector}, version ${evidence.version ?? '?'}`]];
  if (evidence.value !== null && evidence.value !== undefined) rule.push(['Value against threshold', `${said(evidence.value, evidence.unit)} against ${said(evidence.threshold, evidence.unit)}`]);
  if (evidence.n) rule.push(['Judged on', `${count(evidence.n)} points`]);
  for (const [name, value, u, ref] of evidence.numbers ?? []) rule.push([name, `${said(value, u)}${ref ? ` (${ref})` : ''}`]);
  rule.push(['Series', (evidence.series ?? []).join(', ') || '-'], ['Told at', `step ${count(one.opened_step)}, ${when(one.opened_at)}`]);
  $('#book').replaceChildren(
    h('h2', {}, 'The rule, in numbers'),
    evidence.clears ? h('p', { class: 'small quiet gap-1' }, h('b', {}, 'It clears: '), foreign(evidence.clears.replace(/^(it )?clears /i, ''))) : '',
    h('dl', { class: 'facts rule' }, ...rule.map(([name, text]) => h('div', {}, h('dt', {}, foreign(name)), h('dd', {}, foreign(text))))),
    h('p', { class: 'small gap-2' }, h('a', { href: at(one.runbook.replace(/^\//, '')) }, 'What this means and what to do: the run-book')),
  );
}

/** @param {import('../types').Cell | undefined} cell @param {string} [unit] */
function said(cell, unit = '') {
  if (unit.startsWith('share') && typeof cell === 'number') return percent(cell);
  const text = typeof cell === 'string' ? cell : num(cell ?? NaN);
  return unit ? `${text} ${unit}` : text;
}

/** @param {string} act @param {object} more @param {string} done */
async function doAct(act, more, done) {
  const name = /** @type {HTMLInputElement | null} */ (document.getElementById('person'))?.value.trim();
  const note = /** @type {HTMLInputElement | null} */ (document.getElementById('note'))?.value.trim() ?? '';
  if (name) iAm(name);
  try {
    await post(`alerts/${encodeURIComponent(id)}/${act}`, { by: whoAmI(), note, ...more });
    toast(done);
    setTimeout(() => void reload(), 400);
  } catch (problem) {
    toast(problem instanceof Error ? problem.message : 'That did not work.');
  }
}

/** @param {AlertDetail} one */
function paintActs(one) {
  const wanted = one.state;
  $('#acts .note').hidden = one.state === 'resolved';
  if ($('#actions').dataset.shown === wanted) return;
  $('#actions').dataset.shown = wanted;
  const acts = () => one.state === 'resolved' ? [h('p', { class: 'quiet small' }, 'This alert is over.')] : [
    ...(one.state === 'firing' ? [button('Acknowledge', () => void doAct('acknowledge', {}, 'Acknowledged.'), { class: 'btn main' })] : []),
    button('This was fine', () => void doAct('resolve', { was_fine: true }, 'Closed, and marked as fine.')),
    button('Close it', () => void doAct('resolve', { was_fine: false }, 'Closed.')),
  ];
  const fields = one.state === 'resolved' ? [] : [
    h('label', { class: 'field' }, 'Your name', h('input', { type: 'text', id: 'person', value: whoAmI() === 'dashboard' ? '' : whoAmI(), maxlength: 100, autocomplete: 'name' })),
    h('label', { class: 'field' }, 'Note', h('input', { type: 'text', id: 'note', maxlength: 500 })),
  ];
  $('#actions').replaceChildren(...acts(), ...fields);
  $('#do-narrow').replaceChildren(...acts());
}

/** Which series to show: those judged, with those that make sense of them. @param {AlertDetail} one @param {SeriesInfo[]} all */
function judged(one, all) {
  const exact = (one.evidence.series ?? []).filter((key) => all.some((info) => info.key === key));
  const losses = ['loss/heldout', 'loss/probe', 'loss/train'].filter((key) => all.some((info) => info.key === key));
  const heldout = losses.filter((key) => key !== 'loss/probe' || !losses.includes('loss/heldout'));
  const rest = exact.filter((key) => !heldout.includes(key));
  return { losses: heldout, rest: rest.slice(0, 6) };
}

/** @param {AlertDetail} one @param {SeriesInfo[]} all */
function paintCharts(one, all) {
  const store = new Store(one.run);
  const made = new Board(store);
  board = made;
  made.zone = run?.zone ?? 'UTC';
  made.lastStep = run?.last_step ?? one.last_step;
  const { losses, rest } = judged(one, all);
  const bandSeries = [...(one.evidence.series ?? []), ...losses];
  made.bands = [{ id: one.id, kind: bandKind(one), from: one.onset_step, told: one.opened_step, to: Math.max(one.opened_step, one.resolved_step ?? made.lastStep), name: headline(one), series: bandSeries }];
  const names = { 'loss/heldout': 'held-out', 'loss/probe': 'probe', 'loss/train': 'train' };
  const lines = losses.map((key) => ({ key, name: names[/** @type {keyof typeof names} */ (key)], colour: key === 'loss/train' ? 's1' : 's2', noisy: key === 'loss/train', dots: key !== 'loss/train' }));
  const main = lines.length ? lines : rest.slice(0, 1).map((key) => ({ key, name: key, colour: 's1' }));
  const panel = $('#judged');
  say($('.unit', panel), lines.length ? 'loss, nats per token' : '');
  new Chart($('.plot', panel), { title: 'What is judged', height: 300, lines: main, empty: 'No point of it is stored.' }, made, $('.out', panel));
  $('#companions').replaceChildren(...rest.map((key) => {
    const info = all.find((one_) => one_.key === key);
    const share = isShare(info?.name ?? '', info?.unit ?? '');
    const name = (info?.name ?? key).replace(info?.unit === 's' ? /_s$/ : /$^/, '').replaceAll('_', ' ');
    return figure({ title: `${name}${info?.group ? `, ${groupName(info.group)}` : ''}`, unit: share ? '%' : info?.unit ?? '', height: 150, lines: [{ key, name: 'now', colour: 's4', scale: share ? 100 : 1, format: info?.unit === 's' ? briefly : num }] }, made).node;
  }));
  const wake = store.changed;
  store.changed = (keys) => {
    const base = store.owned('loss/train');
    if (base?.steps.length) made.base = { steps: base.steps, times: base.times };
    wake(keys);
  };
  store.want(['loss/train', ...main.map((line) => line.key), ...rest].filter((key) => all.some((info) => info.key === key)));
  look();
}

function look() {
  if (!board || !alert) return;
  const last = board.lastStep;
  const reach = Math.max(30, Math.round((alert.opened_step - alert.onset_step) * 1.5), Math.round(last * 0.05));
  board.set(span === 'all' ? { from: null, to: null } : { from: Math.max(0, alert.onset_step - reach), to: Math.min(Math.max(last, alert.opened_step + 10), alert.opened_step + 2 * reach) });
}

async function reload() {
  alert = /** @type {AlertDetail} */ (await get(`alerts/${encodeURIComponent(id)}`));
  run = /** @type {import('../types').RunDetail} */ (await get(runPath(alert.run)));
  loadedAt = now();
  paintText(alert);
  paintSide(alert);
  paintBook(alert);
  paintActs(alert);
  paintIncident(alert);
  void countAlerts().catch(() => {});
}

async function load() {
  try {
    await reload();
    if (!alert) return;
    const link = /** @type {HTMLAnchorElement} */ ($('#run-link'));
    link.href = runPage(alert.run);
    link.replaceChildren(foreign(alert.run_name || alert.run));
    const { series } = /** @type {{series: SeriesInfo[]}} */ (await get(`${runPath(alert.run)}/series`));
    paintCharts(alert, series);
    await paintOthers(alert);
  } catch (problem) {
    $('#text').replaceChildren(h('h1', {}, 'This alert cannot be shown'), problemPanel(problem, load));
  }
}

/** What the same cause did to this run besides: one card. @param {AlertDetail} one */
function paintIncident(one) {
  document.getElementById('incident')?.remove();
  if (one.incident_alerts.length < 2) return;
  const list = h('ul', { class: 'stack-small small' }, ...one.incident_alerts.map((other) => {
    const name = foreign(other.title || other.detector);
    const shown = other.id === one.id ? h('b', {}, name) : h('a', { href: alertPage(other.id) }, name);
    return h('li', {}, shown, ` since ${count(other.onset_step)}, ${other.severity}, ${other.state}`);
  }));
  const panel = h('section', { class: 'panel pad', id: 'incident' }, h('h2', {}, one.incident_headline), list);
  $('#history').parentElement?.before(panel);
}

/** Other alerts of the run that lie near this one. @param {AlertDetail} one */
async function paintOthers(one) {
  const { alerts } = /** @type {{alerts: import('../types').Alert[]}} */ (await get(`alerts?run=${encodeURIComponent(one.run)}&limit=50`));
  const others = alerts.filter((other) => !one.incident_alerts.some((kin) => kin.id === other.id) && other.severity !== 'info');
  if (!others.length || document.getElementById('others')) return;
  const list = h('ul', { class: 'stack-small small' }, ...others.slice(0, 8).map((other) => h('li', {}, h('a', { href: alertPage(other.id) }, foreign(other.title || other.detector)), ` since ${count(other.onset_step)}, told at ${count(other.opened_step)}, ${other.state}`)));
  const panel = h('section', { class: 'panel pad', id: 'others' }, h('h2', {}, 'Other alerts of this run'), list);
  $('#history').parentElement?.before(panel);
}

start();
choice($('#span'), (data) => { span = data.r ?? 'onset'; look(); });
void load().then(() => {
  if (!alert) return;
  new Live({
    runs: [alert.run],
    cursor: run?.cursor ?? '',
    zone: run?.zone ?? 'UTC',
    on: {
      points: ({ attempt, rows }) => board?.store.take(attempt, rows),
      alert: (told) => { if (told.id === id || told.incident === alert?.incident) void reload(); else void countAlerts(); },
      resync: () => { void reload(); board?.store.reload(); },
      second: () => say($('#updated'), `Updated ${ago(now() - loadedAt)}`),
    },
  });
});
