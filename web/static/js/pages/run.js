// @ts-check
/* One run: healthy, look or act? Since when, why, which checkpoint is good, when does it end? */

import { $, $$, button, choice, foreign, glyph, h, keepFocus, press, say, tag } from '../dom.js';
import { alertPage, get, now, post, runPath, whoAmI } from '../api.js';
import { Board } from '../board.js';
import { figure } from '../chart.js';
import { fits } from '../patterns.js';
import { FIRST, Families, mainSpecs } from '../families.js';
import { ago, clock, clockSeconds, count, duration, plural } from '../format.js';
import { fourNumbers } from '../four.js';
import { Live } from '../live.js';
import { Rail } from '../rail.js';
import { alertKind, bandKind, countAlerts, lampOf, problemPanel, setLamp, start, title, toast } from '../shell.js';
import { Store } from '../store.js';
import { usual } from '../tracks.js';
import { VITALS, read, vitalNode } from '../vitals.js';

/** @typedef {import('../types').RunDetail} RunDetail */
/** @typedef {import('../types').Alert} Alert */
/** @typedef {import('../types').SeriesInfo} SeriesInfo */

const id = document.body.dataset.run ?? '';
const store = new Store(id);
const board = new Board(store);
const rail = new Rail($('#rail'), $('#near'), board);
const families = new Families($('#families'), board);

/** @type {RunDetail | null} */
let run = null;
/** @type {Map<string, Alert>} */
const alerts = new Map();
/** @type {Map<string, SeriesInfo>} */
const series = new Map();
/** @type {Map<string, {spec: string, mark: HTMLElement}>} */
const figures = new Map();
/** @type {Live | null} */
let live = null;
let lastPoint = 0;
let seriesDue = false;
/** @type {number | undefined} */
let painting;

/** Open alerts that need a person, worst first. */
function open() {
  const rank = { act: 0, look: 1, info: 2, done: 3 };
  return [...alerts.values()].filter((alert) => alert.state !== 'resolved' && alert.severity !== 'info').sort((a, b) => rank[alertKind(a)] - rank[alertKind(b)] || a.onset_step - b.onset_step);
}

/** Those that count for the signs: open ones, and those closed only because the run ended. */
function standing() {
  const ended = [...alerts.values()].filter((alert) => run?.ended_at !== null && alert.severity !== 'info' && /run.?ended/.test(alert.resolved_reason ?? ''));
  return [...open(), ...ended];
}

function paintHead() {
  if (!run) return;
  const [worst] = open();
  const [last] = standing();
  const [kind, word] = lampOf(run.health);
  setLamp($('#lamp'), kind, word, 'big');
  say($('#name'), run.name || run.id);
  $('#state').replaceChildren(h('span', { 'aria-hidden': 'true' }, run.ended_at === null ? '\u25b6' : '\u25a0'), run.state);
  const attempt = run.attempts.at(-1);
  say($('#attempt'), attempt && run.attempts.length > 1 ? `attempt ${run.attempts.length}, since step ${count(attempt.first_step)}` : '');
  say($('#about'), about(run));
  const cut = live?.cut ? `As of ${clock(live.cutSince ?? now(), run.zone, now())}: ` : '';
  $('#sentence').replaceChildren(cut, foreign(worst?.evidence.summary || run.sentence));
  paintBecause(worst ?? last);
  paintActs(worst ?? last);
  title(`${run.name || run.id}: ${word.toLowerCase()}`);
}

/** @param {RunDetail} detail */
function about(detail) {
  const { optimizer, host, world_size: size } = /** @type {Record<string, unknown>} */ (detail.facts);
  return [detail.kind, optimizer, typeof size === 'number' && size > 1 ? `${size} ranks` : '', host].filter((one) => typeof one === 'string' && one).join(', ');
}

/** @param {Alert | undefined} worst */
function paintBecause(worst) {
  if (!run) return;
  const parts = [];
  if (worst) {
    if (worst.state === 'resolved') parts.push('When it ended: ', foreign(worst.title), ` since step ${count(worst.onset_step)}. `);
    const cause = worst.evidence.causes?.[0]?.text;
    if (cause) parts.push('Likely cause: ', foreign(cause.replace(/\.$/, '')), '. ');
    const good = worst.last_checkpoint;
    if (good) parts.push('Last good checkpoint: ', h('b', {}, count(good.step)), `, ${clock(good.at, run.zone, now())}.`);
    if (open().length > 1) parts.push(` ${plural(open().length - 1, 'more alert')} open.`);
  } else if (run.last_checkpoint) {
    parts.push('Last checkpoint: ', h('b', {}, count(run.last_checkpoint.step)), `, ${clock(run.last_checkpoint.at, run.zone, now())}. No alert is open.`);
  } else parts.push('No alert is open.');
  $('#because').replaceChildren(...parts);
}

/** @param {Alert | undefined} worst */
function paintActs(worst) {
  const wanted = worst ? `${worst.id} ${worst.state}` : '';
  if ($('#do').dataset.shown === wanted) return;
  $('#do').dataset.shown = wanted;
  if (!worst) {
    $('#do').replaceChildren();
    return;
  }
  const acts = [h('a', { class: 'btn main', href: alertPage(worst.id) }, 'Open the alert')];
  if (worst.state === 'firing') acts.push(button('Acknowledge', () => void acknowledge(worst)));
  $('#do').replaceChildren(...acts);
}

/** @param {Alert} alert */
async function acknowledge(alert) {
  try {
    await post(`alerts/${encodeURIComponent(alert.id)}/acknowledge`, { by: whoAmI(), note: '' });
    toast('Acknowledged. The alert stays open, without reminders.');
  } catch (problem) {
    toast(problem instanceof Error ? problem.message : 'That did not work.');
  }
}

function paintNumbers() {
  if (!run) return;
  const [worst] = open();
  $('#four').replaceChildren(...fourNumbers(run, worst, store));
  const onset = worst ? worst.onset_step : null;
  const signs = VITALS.map((vital) => {
    const key = vital.keys.find((one) => series.has(one));
    const track = key && (!vital.minus || series.has(vital.minus)) ? store.owned(key) : undefined;
    const minus = vital.minus ? store.owned(vital.minus) : undefined;
    const reading = track ? read(vital, track, minus, onset) : null;
    if (!key) return vitalNode(vital, null, 'asleep', sleeper(vital.name));
    const found = standing().filter((alert) => (alert.evidence.series ?? []).some((pattern) => fits(pattern, key)));
    const state = found.some((alert) => alert.severity === 'critical') ? 'act' : found.length ? 'look' : 'ok';
    return vitalNode(vital, reading, state, found[0]?.title ?? (reading ? '' : 'no value yet'));
  });
  keepFocus($('#vitals'), () => $('#vitals').replaceChildren(...signs));
}

/** Why a vital sign sleeps, from what the hooks said at the start. @param {string} name */
function sleeper(name) {
  const probe = ['Held-out loss', 'Top-1', 'Surer than right', 'Logit scale'].includes(name);
  return probe ? 'needs a probe' : { 'Data wait': 'needs w.data(loader)', 'Tokens/s': 'needs tokens=' }[name] ?? 'no value yet';
}

function paintBands() {
  board.bands = [...alerts.values()].filter((alert) => alert.severity !== 'info').sort((a, b) => a.onset_step - b.onset_step).map((alert) => ({
    id: alert.id,
    kind: bandKind(alert),
    from: alert.onset_step,
    told: alert.opened_step,
    to: alert.state === 'resolved' ? alert.resolved_step ?? alert.last_step : Infinity,
    name: `${alert.title || alert.detector}${alert.subject ? ` ${alert.subject}` : ''}`,
    series: alert.evidence.series ?? [],
  }));
  for (const band of board.bands) band.to = Math.min(band.to, Math.max(board.lastStep, band.told));
  for (const [, { spec, mark }] of figures) {
    const keys = spec.split('|');
    const found = standing().filter((alert) => (alert.evidence.series ?? []).some((pattern) => keys.some((key) => fits(pattern, key))));
    const kind = found.some((alert) => bandKind(alert) === 'act') ? 'act' : found.length ? 'look' : 'ok';
    mark.className = `mark ${kind}`;
    mark.replaceChildren(glyph(kind), h('span', { class: 'sr' }, kind === 'ok' ? 'no open alert' : kind));
  }
  $('#range [data-r=onset]').hidden = !board.bands.length;
}

function paintCharts() {
  for (const [name, spec] of mainSpecs([...series.values()])) {
    const keys = spec.lines.map((line) => line.key).join('|');
    const held = figures.get(name);
    if (held?.spec === keys) continue;
    const made = figure(spec, board, name);
    const old = document.getElementById(name);
    for (const chart of board.charts) if (old?.contains(chart.host) && 'remove' in chart) /** @type {import('../chart.js').Chart} */ (chart).remove();
    if (old) old.replaceWith(made.node);
    else $('#charts').append(made.node);
    figures.set(name, { spec: keys, mark: made.mark });
  }
  families.set([...series.values()]);
  paintBands();
}

function paintFoot() {
  if (!run) return;
  const sleepers = run.asleep;
  $('#asleep').hidden = !sleepers.length;
  $('#asleep').replaceChildren(h('h2', {}, 'Asleep until you wake it'), h('ul', { class: 'sleepers' }, ...sleepers.map((one) => h('li', {}, h('span', { class: 'tag asleep' }, glyph('asleep'), foreign(one.what)), h('p', { class: 'quiet' }, foreign(one.missing), one.wake ? ': ' : null, one.wake ? h('code', {}, one.wake) : null)))));
  const a = run.accounts;
  const names = /** @type {const} */ (['produced', 'stored', 'duplicate', 'refused', 'queued', 'spooled', 'dropped']);
  $('#account').hidden = !Object.keys(a).length;
  const lost = (a.dropped ?? 0) + (a.refused ?? 0);
  const arrived = names.slice(1).reduce((sum, name) => sum + (a[name] ?? 0), 0);
  const open_ = (a.produced ?? 0) - arrived; // what the trainer said last may be older than what came
  /** @type {Record<string, number>} */
  const shown = { ...a, produced: Math.max(a.produced ?? 0, arrived) };
  const verdict = lost ? tag('look', `${count(lost)} did not make it`) : open_ > 0 ? tag('info', `${count(open_)} on their way`) : tag('ok', 'nothing was lost');
  $('#account').replaceChildren(h('h2', {}, 'Account of values'), h('p', { class: 'account' }, ...names.map((name) => h('span', {}, h('b', {}, count(shown[name] ?? 0)), ` ${name}`)), verdict, a.hook_errors ? tag('look', `${count(a.hook_errors)} errors caught in the hooks`) : null));
}

function paint() {
  painting = undefined;
  const base = store.owned('loss/train') ?? store.owned([...series.keys()].find((key) => store.loaded(key)) ?? '');
  const first = !board.base.steps.length;
  if (base?.steps.length) board.base = { steps: base.steps, times: base.times };
  if (first && base?.steps.length) rail.tell(standing()[0]?.onset_step ?? base.steps.at(-1) ?? 0);
  const tokens = store.owned('tokens_seen');
  if (tokens?.steps.length) board.tokens = { steps: tokens.steps, counts: tokens.values };
  $('#xaxis [data-x=tokens]').hidden = !tokens?.steps.length;
  board.lastStep = Math.max(run?.last_step ?? 0, base?.steps.at(-1) ?? 0);
  paintBands();
  paintHead();
  paintNumbers();
  families.set([...series.values()]);
  rail.attempts = run?.attempts ?? [];
  rail.dirty = true;
  board.soon();
}

/** At most once a second, and not in a hidden tab. */
function soon() {
  if (document.hidden) return;
  painting ??= setTimeout(paint, 500);
}

/** What the vital signs and the numbers read, in sight or not. */
function wantVitals() {
  const keys = VITALS.flatMap((vital) => [...vital.keys.filter((key) => series.has(key)).slice(0, 1), ...(vital.minus ? [vital.minus] : [])]);
  store.want([...new Set([...keys, 'loss/train', 'loss/heldout', 'loss/probe', 'tokens_seen'])].filter((key) => series.has(key)));
}

async function loadSeries() {
  seriesDue = false;
  takeSeries(await get(`${runPath(id)}/series`));
}

/** @param {unknown} answer */
function takeSeries(answer) {
  for (const one of /** @type {{series: SeriesInfo[]}} */ (answer).series) series.set(one.key, one);
  paintCharts();
  wantVitals();
  soon();
}

async function loadAround() {
  const [told, happened] = await Promise.all([get(`alerts?run=${encodeURIComponent(id)}&limit=200`), get(`${runPath(id)}/events`)]);
  for (const alert of /** @type {{alerts: Alert[]}} */ (told).alerts) alerts.set(alert.id, alert);
  const { events, phases } = /** @type {{events: import('../types').RunEvent[], phases: import('../types').Phase[]}} */ (happened);
  rail.events = events;
  rail.setPhases(phases);
}

async function load() {
  try {
    store.want(FIRST);
    const [detail, listed] = await Promise.all([get(runPath(id)), get(`${runPath(id)}/series`)]);
    run = /** @type {RunDetail} */ (detail);
    board.zone = run.zone || 'UTC';
    board.lastStep = run.last_step ?? 0;
    lastPoint = run.last_seen_at;
    takeSeries(listed);
    board.now();
    await loadAround();
    paint();
    paintFoot();
  } catch (problem) {
    setLamp($('#lamp'), 'lost', 'Not shown', 'big');
    $('#sentence').replaceChildren(problemPanel(problem, load));
  }
}

/** @param {{attempt: string, rows: import('../types').Rows}} message */
function takePoints({ attempt, rows }) {
  lastPoint = now();
  store.take(attempt, rows);
  /** @type {Record<string, import('../types').Cell>} */
  const newest = {};
  for (const [key, points] of Object.entries(rows)) {
    const end = points.at(-1);
    if (!end) continue;
    newest[key] = end[2];
    board.lastStep = Math.max(board.lastStep, end[0]);
    if (!series.has(key) && !seriesDue) {
      seriesDue = true;
      setTimeout(() => void loadSeries().catch(() => {}), 800);
    }
  }
  families.newest(newest);
  if (run && !run.attempts.some((one) => one.id === attempt)) void refresh();
  soon();
}

/** After a new attempt who owns which steps has changed: all is fetched anew. */
async function refresh() {
  run = /** @type {RunDetail} */ (await get(runPath(id)));
  await loadAround();
  store.reload();
  paintFoot();
  soon();
}

function second() {
  if (!run) return;
  const silent = now() - lastPoint;
  const base = board.base.times;
  const pace = usual(base.slice(-200));
  const late = run.ended_at === null && silent > Math.max(30, pace * 5);
  if (board.stale !== late) {
    board.stale = late;
    board.all();
  }
  const node = $('#last');
  if (live?.cut) say(node, `Last point ${clockSeconds(lastPoint, run.zone)}`);
  else say(node, `Last point ${ago(silent)}${late && pace ? ` (usual: ${duration(pace)})` : ''}`);
  node.classList.toggle('look', late);
}

/** Details move slowly: attempts, accounts, checkpoints. What an open alert costs grows by the second,
 * and an alert is told once, when it opens: so its cost is asked for while the run goes on. */
let detailAt = 0;
let costAt = 0;

/** @param {import('../types').RunSummary} summary */
function takeRun(summary) {
  if (!run) return;
  const ended = run.ended_at !== summary.ended_at;
  run = { ...run, ...summary };
  soon();
  if (open().length && now() - costAt > 5) {
    costAt = now();
    get(`alerts?run=${encodeURIComponent(id)}&open=true&limit=200`).then((told) => {
      for (const alert of /** @type {{alerts: Alert[]}} */ (told).alerts) alerts.set(alert.id, alert);
      soon();
    }).catch(() => {});
  }
  if (ended || now() - detailAt > 15) {
    detailAt = now();
    get(runPath(id)).then((detail) => { run = /** @type {RunDetail} */ (detail); paintFoot(); soon(); }).catch(() => {});
  }
}

function controls() {
  choice($('#xaxis'), (data) => board.set({ x: /** @type {import('../types').View['x']} */ (data.x) }));
  choice($('#yaxis'), (data) => board.set({ log: data.log === '1' }));
  choice($('#range'), (data) => board.set(rangeOf(data.r ?? 'all')));
  $('#smooth').addEventListener('input', (event) => {
    const smooth = Number(/** @type {HTMLInputElement} */ (event.target).value);
    say($('#smoothv'), smooth.toFixed(2));
    board.set({ smooth });
  });
  $('#ghosts').addEventListener('change', (event) => board.set({ ghosts: /** @type {HTMLInputElement} */ (event.target).checked }));
  board.picked = (step) => rail.tell(step);
  board.viewed = (view) => {
    if (view.from === null) press($('#range'), $('#range [data-r=all]'));
    else if ($('#range [data-r=all]').getAttribute('aria-pressed') === 'true') for (const one of $$('#range button')) one.setAttribute('aria-pressed', 'false');
  };
}

/** @param {string} name @returns {Partial<import('../types').View>} */
function rangeOf(name) {
  const onset = open()[0]?.onset_step ?? board.bands.at(-1)?.from;
  if (name === 'late') return { from: Math.max(0, board.lastStep - 200), to: board.lastStep };
  if (name === 'onset' && onset !== undefined) {
    const reach = Math.max(40, Math.round((board.lastStep - (board.base.steps[0] ?? 0)) * 0.12));
    return { from: Math.max(0, onset - reach), to: Math.min(board.lastStep, onset + 2 * reach) };
  }
  return { from: null, to: null };
}

start();
controls();
const wake = store.changed;
store.changed = (/** @type {string[]} */ keys) => { wake(keys); soon(); };
store.failed = (/** @type {unknown} */ problem) => run && toast(problem instanceof Error ? problem.message : 'Some points could not be read.');
document.addEventListener('visibilitychange', soon);
void load().then(() => {
  live = new Live({
    runs: [id],
    cursor: run?.cursor ?? '',
    zone: board.zone,
    on: {
      points: takePoints,
      run: takeRun,
      alert: (alert) => { alerts.set(alert.id, alert); soon(); void countAlerts(); },
      event: (event) => { rail.events.push(event); soon(); },
      phase: (phase) => { rail.setPhases([phase]); soon(); },
      resync: () => { void refresh(); },
      cut: paintHead,
      back: paintHead,
      second,
    },
  });
});
