// @ts-check
/* The list of runs: which one needs me, which first, what has it cost? */

import { $, choice, foreign, glyph, h, keepFocus, say } from '../dom.js';
import { ROOT, get, now, runPage } from '../api.js';
import { ago, clock, count, duration, money, plural, short } from '../format.js';
import { Live } from '../live.js';
import { countAlerts, lampOf, problemPanel, setLamp, start, title, toast } from '../shell.js';
import { spark } from '../spark.js';

/** @typedef {import('../types').RunSummary} Run */

/** @type {Map<string, Run>} */
const runs = new Map();
const ORDER = ['act', 'look', 'lost', 'healthy', 'failed', 'stopped', 'finished'];
const LIVE = new Set(['act', 'look', 'lost', 'healthy']);
const opened = now();
let [show, sort, query] = ['all', 'worst', ''];
/** @type {number | undefined} */
let painting;

/** Whether the run may still go on. @param {Run} run */
function isLive(run) {
  return run.ended_at === null && LIVE.has(run.health);
}

/** @param {Run} a @param {Run} b */
function compare(a, b) {
  if (sort === 'name') return a.name.localeCompare(b.name);
  const worse = ORDER.indexOf(a.health) - ORDER.indexOf(b.health);
  return (sort === 'worst' && worse) || b.last_seen_at - a.last_seen_at;
}

/** @param {string} key */
function seriesName(key) {
  return { 'loss/heldout': 'held-out loss', 'loss/probe': 'probe loss', 'loss/train': 'train loss' }[key] ?? key;
}

/** @param {Run} run */
function steps(run) {
  const share = run.planned_steps ? Math.min(1, (run.last_step ?? 0) / run.planned_steps) : null;
  const cell = h('td', { class: 'plan' }, h('span', { class: 'nowrap' }, run.planned_steps ? `${count(run.last_step ?? 0)} of ${count(run.planned_steps)}` : `step ${count(run.last_step ?? 0)}`));
  if (share !== null) {
    const fill = h('i');
    fill.style.width = `${(share * 100).toFixed(1)}%`;
    cell.append(h('span', { class: 'meter', 'aria-hidden': 'true' }, fill));
  }
  cell.append(h('span', { class: 'note' }, share === null ? 'no plan given' : run.tokens_seen ? `${short(run.tokens_seen)} tokens` : ''));
  return cell;
}

/** @param {Run} run */
function costs(run) {
  const zone = run.zone || 'UTC';
  const live = isLive(run);
  const finish = live ? (run.finish_at ? clock(run.finish_at, zone, now()) : '-') : clock(run.ended_at ?? run.last_seen_at, zone, now());
  const cost = run.cost_so_far === null ? 'no price given' : `${money(run.cost_so_far, run.currency)}${live ? ' so far' : ''}`;
  return h('td', { class: 'num opt' }, finish, h('br'), h('span', { class: 'note' }, cost));
}

/** @param {Run} run */
function row(run) {
  const [kind, word] = lampOf(run.health);
  const lamp = h('span');
  setLamp(lamp, kind, word, 'mid');
  const line = run.spark && run.spark.steps.length > 1
    ? [spark(run.spark.steps, run.spark.values, { say: seriesName(run.spark.key) }), h('span', { class: 'note' }, foreign(seriesName(run.spark.key)))]
    : [h('span', { class: 'note' }, 'no line yet')];
  const calm = run.health === 'act' || run.health === 'look' ? '' : 'calm';
  return h('tr', { class: calm, 'data-run': run.id },
    h('td', {}, lamp),
    h('td', { class: 'who' }, h('a', { href: runPage(run.id) }, foreign(run.name || run.id)), h('p', {}, foreign(run.sentence))),
    h('td', { class: 'opt' }, ...line),
    steps(run),
    h('td', { class: 'num opt' }, isLive(run) && run.tokens_per_s ? short(run.tokens_per_s) : '-'),
    costs(run),
    h('td', { class: 'num', 'data-seen': run.last_seen_at }, ago(now() - run.last_seen_at)));
}

/** @param {Run[]} some @param {string} caption */
function table(some, caption) {
  const heads = [['c-state', 'State'], ['', 'Run'], ['c-spark', 'Since warm-up'], ['c-steps', 'Steps'], ['c-speed num', 'Tokens/s'], ['c-cost num', 'Finish, cost'], ['c-seen num', 'Last word']];
  return h('table', { class: 'runs' }, h('caption', { class: 'sr' }, caption),
    h('thead', {}, h('tr', {}, ...heads.map(([kind, name]) => h('th', { class: kind, scope: 'col' }, name)))),
    h('tbody', {}, ...some.map(row)));
}

/** @param {Run[]} all */
function tally(all) {
  /** @type {[string, (some: Run[]) => string][]} */
  const cards = [
    ['act', (some) => (some.length ? `${money(sum(some), some[0]?.currency)} spent on ${some.length === 1 ? 'it' : 'them'} so far` : 'nothing to act on')],
    ['look', (some) => (some.length ? plural(alerts(some), 'open warning') : 'nothing to look at')],
    ['lost', (some) => (some.length ? `silent for ${duration(Math.floor(now() - Math.min(...some.map((run) => run.last_seen_at))))}` : 'none silent')],
    ['healthy', (some) => (some.length ? 'no open warning' : 'none running')],
  ];
  $('#tally').replaceChildren(...cards.map(([health, note]) => {
    const some = all.filter((run) => run.health === health);
    const [kind, word] = lampOf(health);
    const lamp = h('span', { class: `lamp ${kind}` }, glyph(kind), h('b', {}, String(some.length)), word);
    const text = some.length && health === 'act' && sum(some) === 0 ? plural(some.reduce((n, run) => n + run.open_alerts.critical, 0), 'open critical alert') : note(some);
    return h('a', { class: `panel${some.length ? '' : ' none'}`, href: '#live' }, lamp, h('span', {}, text));
  }));
}

/** @param {Run[]} some */
function sum(some) {
  return some.reduce((total, run) => total + (run.cost_so_far ?? 0), 0);
}

/** @param {Run[]} some */
function alerts(some) {
  return some.reduce((total, run) => total + run.open_alerts.warning + run.open_alerts.critical, 0);
}

function paint() {
  painting = undefined;
  keepFocus($('#listing'), rebuild);
}

function rebuild() {
  const all = [...runs.values()].sort(compare);
  $('#listing').hidden = !all.length;
  $('#first-use').hidden = all.length > 0;
  const live = all.filter(isLive);
  const over = all.filter((run) => !isLive(run));
  say($('.crumb h1'), all.length ? 'Runs' : 'Your first run');
  say($('#count'), all.length ? `${live.length} running or expected, ${over.length} over` : 'Three lines in the training script; nothing else to set up');
  title(all.length ? heading(live) : 'Your first run');
  tally(live);
  const fit = (/** @type {Run} */ run) => !query || `${run.name} ${run.id} ${run.kind}`.toLowerCase().includes(query);
  const [shownLive, shownOver] = [live.filter(fit), over.filter(fit)];
  $('#live').hidden = show === 'over';
  $('#live').replaceChildren(shownLive.length ? table(shownLive, 'Runs that go on') : h('p', { class: 'nothing' }, query ? 'No running run has this in its name.' : 'Nothing is running now.'));
  $('#over').hidden = show === 'live' || !shownOver.length;
  if (!$('#over').hidden) paintOver(shownOver);
}

/** @param {Run[]} live */
function heading(live) {
  const [act, look] = ['act', 'look'].map((health) => live.filter((run) => run.health === health).length);
  return act ? `${act} to act on - runs` : look ? `${look} to look at - runs` : 'Runs';
}

/** @param {Run[]} over */
function paintOver(over) {
  const failed = over.filter((run) => run.health === 'failed').length;
  const before = $('#over').querySelector('details');
  const summary = h('summary', { class: 'over-head' }, h('b', {}, `Over (${over.length})`), h('span', { class: 'quiet small' }, failed ? `${failed} failed` : ''));
  $('#over').replaceChildren(h('details', { class: 'family', open: before ? before.open : true }, summary, h('div', { class: 'scroll' }, table(over, 'Runs that are over'))));
}

/** At most once a second, so that fifty live runs do not keep the page busy. */
function soon() {
  painting ??= setTimeout(paint, 700);
}

function tick() {
  for (const cell of document.querySelectorAll('[data-seen]')) {
    say(/** @type {HTMLElement} */ (cell), ago(now() - Number(cell.getAttribute('data-seen'))));
  }
  const zone = Intl.DateTimeFormat().resolvedOptions().timeZone;
  say($('#now'), `${zone}, ${clock(now(), zone, now() - 86400 * 2)}`);
  if (!runs.size) say($('#waited'), `Nothing has arrived in ${duration(Math.floor(now() - opened))}. This page turns into the list of runs by itself.`);
}

function firstUse() {
  const server = ROOT.href.replace(/\/$/, '');
  say($('#origin'), server);
  say($('#server'), server);
  $('#copy').addEventListener('click', () => {
    navigator.clipboard?.writeText($('#paste').textContent ?? '').then(() => toast('Copied.'), () => toast('The browser did not let it be copied.'));
  });
}

async function load() {
  try {
    const answer = /** @type {{runs: Run[]}} */ (await get('runs?limit=300'));
    runs.clear();
    for (const run of answer.runs) runs.set(run.id, run);
    paint();
  } catch (problem) {
    $('#listing').hidden = false;
    $('#live').replaceChildren(problemPanel(problem, load));
  }
}

start();
firstUse();
choice($('#show'), (data) => { show = data.show ?? 'all'; paint(); });
$('#sort').addEventListener('change', (event) => { sort = /** @type {HTMLSelectElement} */ (event.target).value; paint(); });
$('#search').addEventListener('input', (event) => { query = /** @type {HTMLInputElement} */ (event.target).value.trim().toLowerCase(); soon(); });
void load().then(() => {
  new Live({
    zone: Intl.DateTimeFormat().resolvedOptions().timeZone,
    on: {
      run: (run) => { runs.set(run.id, run); soon(); },
      alert: () => { void countAlerts(); },
      resync: () => { void load(); },
      back: () => { void load(); },
      second: tick,
    },
  });
});
