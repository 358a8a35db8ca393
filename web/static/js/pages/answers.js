// @ts-check
/* Two samplings of the same prompts side by side: shorter, surer, better or worse? Which prompts? */

import { $, choice, foreign, glyph, h, keepFocus, say } from '../dom.js';
import { at, get, now, runPath } from '../api.js';
import { Board } from '../board.js';
import { bandsOf, paintTrends, putLines } from '../answer-trends.js';
import { clock, count, plural } from '../format.js';
import { Live } from '../live.js';
import { problemPanel, setLamp, start, title } from '../shell.js';
import { Store } from '../store.js';
import { side } from '../pair.js';
import { meanP, median } from '../tokens.js';
import { paintStrip, slots } from '../days.js';

/** @typedef {import('../types').Pair} Pair */
/** @typedef {import('../types').AnswerOut} AnswerOut */
/** @typedef {import('../types').Sampling} Sampling */

const id = document.body.dataset.run ?? '';
const store = new Store(id);
const board = new Board(store);
/** @type {import('../types').RunDetail | null} */
let run = null;
/** @type {Sampling[]} */
let samplings = [];
/** @type {Pair[]} */
let pairs = [];
let current = 0;
let filter = 'all';
let mode = 'diff';
let note = '';
/** @type {import('../types').AnswerTrends | null} */
let trend = null;
/** Whole pairs as they were fetched, by both samplings and the prompt. @type {Map<string, Pair>} */
const whole = new Map();
const asked = new URLSearchParams(location.search);

/** @param {Sampling} one */
function samplingName(one) {
  return `${clock(one.at, run?.zone ?? 'UTC', now())}, step ${count(one.weights_step)}`;
}

/** @param {Pair} pair */
function fate(pair) {
  return pair.fate;
}

const GLYPH = { worse: 'look', better: 'ok', same: 'asleep', changed: 'info', apart: 'lost', missing: 'lost' };

/** @param {string} side */
function chosen(side) {
  const value = /** @type {HTMLSelectElement} */ ($(`#${side}`)).value;
  return samplings.find((one) => one.id === value);
}

/** @param {'left' | 'right'} where */
function sideName(where) {
  const sampling = chosen(where);
  return sampling ? samplingName(sampling) : where;
}

/** @param {Pair} pair */
function promptText(pair) {
  return pair.prompt === '' ? '(empty prompt)' : pair.prompt;
}

/** Whether the prompt is asked in more than one way. @param {Pair} pair */
function repeated(pair) {
  return pairs.some((other) => other !== pair && other.prompt === pair.prompt);
}

const FATES = { worse: 'Worse: ', better: 'Better: ', changed: 'Changed: ', same: 'Unchanged: ', apart: '', missing: '' };

/** @param {Pair} pair */
function verdictOf(pair) {
  const words = FATES[fate(pair)] + pair.verdict.replaceAll('->', '\u2192');
  return words.charAt(0).toUpperCase() + words.slice(1);
}

function paintVerdict() {
  const both = pairs.filter((pair) => pair.left && pair.right);
  const [left, right] = [both.map((pair) => /** @type {AnswerOut} */ (pair.left)), both.map((pair) => /** @type {AnswerOut} */ (pair.right))];
  const words = [left, right].map((side) => median(side.map((answer) => answer.words ?? 0)));
  const sure = [left, right].map((side) => meanP(side.map((answer) => ({ p: answer.confidence ?? null }))));
  const fates = pairs.map(fate);
  const n = (/** @type {string} */ what) => fates.filter((one) => one === what).length;
  $('#verdict-panel').hidden = !both.length;
  const [a, b] = /** @type {[number, number]} */ (words);
  const [p, q] = sure;
  const shorter = b < a * 0.8;
  const surer = p !== null && q !== null && p !== undefined && q !== undefined && q > p + 0.08;
  const kind = (shorter && surer) || n('worse') > n('better') ? 'look' : 'info';
  setLamp($('#lamp'), kind === 'look' ? 'look' : 'done', kind === 'look' ? 'Look' : n('same') === fates.length ? 'Same' : 'Changed', 'big');
  const lead = shorter && surer ? 'Shorter and surer: median' : 'Median';
  const confidence = p === null || q === null || p === undefined || q === undefined ? '' : p.toFixed(2) === q.toFixed(2) ? `, confidence ${p.toFixed(2)} as before` : `, confidence ${p.toFixed(2)} became ${q.toFixed(2)}`;
  if (n('same') === both.length) say($('#sentence'), 'The same answers, word for word');
  else say($('#sentence'), `${lead} ${plural(a, 'word')}${a === b ? ' as before' : ` became ${b}`}${confidence}`);
  const from = chosen('left');
  const apart = n('apart') ? `, ${n('apart')} not comparable` : '';
  say($('#because'), `Of ${plural(pairs.length, 'prompt')} ${n('worse')} are worse, ${n('better')} better, ${n('changed')} changed, ${n('same')} unchanged${apart}${from ? `, since ${samplingName(from)}` : ''}. Fewer words with more confidence are no gain by themselves: read a few.${note ? ` Note: ${note}.` : ''}`);
  title('Answers');
}

function shown() {
  return pairs.map((pair, i) => /** @type {[Pair, number]} */ ([pair, i])).filter(([pair]) => filter === 'all' || (filter === 'worse' ? fate(pair) === 'worse' : fate(pair) !== 'same'));
}

function paintList() {
  const list = shown();
  say($('#filter [data-f=all]'), `All ${pairs.length}`);
  keepFocus($('#list'), () => $('#list').replaceChildren(...list.map(([pair, i]) => {
    const entry = h('button', { type: 'button', 'aria-current': i === current ? 'true' : null }, glyph(GLYPH[fate(pair)]), h('span', { class: 'p' }, foreign(promptText(pair))), h('span', { class: 'v' }, foreign(repeated(pair) ? `${pair.prompt_id}: ${verdictOf(pair)}` : verdictOf(pair))));
    entry.addEventListener('click', () => { current = i; void paintPair(); });
    return entry;
  })));
}

/** The pair with its texts: fetched when it is looked at. */
async function paintPair() {
  paintList();
  const listed = pairs[current];
  if (!listed) return;
  paintDays();
  keepLink();
  const query = new URLSearchParams({ prompt: listed.prompt_id });
  for (const where of ['left', 'right']) {
    const sampling = chosen(where);
    if (sampling) query.set(where, sampling.id);
  }
  const name = query.toString();
  if (!whole.has(name)) {
    const answer = /** @type {import('../types').Pairs} */ (await get(`${runPath(id)}/answers?${query}`));
    const [found] = answer.pairs;
    if (whole.size > 50) whole.clear();
    if (found) whole.set(name, found);
  }
  const pair = whole.get(name);
  if (pair && pairs[current] === listed) paintWhole(pair);
}

/** @param {Pair} pair */
function paintWhole(pair) {
  const kind = fate(pair);
  $('#prompt').replaceChildren(foreign(promptText(pair)));
  say($('#prompt-id'), repeated(pair) ? pair.prompt_id : '');
  $('#verdict').replaceChildren(h('span', { class: `tag ${GLYPH[kind]}` }, glyph(GLYPH[kind]), foreign(verdictOf(pair))));
  $('#pair').replaceChildren(side(pair, 'left', 'cut', sideName('left')), side(pair, 'right', 'add', sideName('right')));
  say($('#conf-note'), '');
  const reads = 'Comparable: prompt, tokenizer and decoding agree; only the weights differ.';
  const why = { worse: reads, better: reads, same: 'Word for word the same.', changed: reads, apart: `Not comparable: ${pair.differs.join(', ')} differ.`, missing: 'One side has no answer to this prompt.' };
  say($('#why'), why[kind] + (pair.rough ? ' Shown roughly, line by line: the texts are long.' : ''));
}

function paintDays() {
  const pair = pairs[current];
  if (!trend || !pair) return;
  paintStrip($('#strip'), slots(trend, pair.prompt_id, chosen('left')?.id ?? '', chosen('right')?.id ?? ''), trend.zone, (sampling) => choose('right', sampling));
}

/** @param {'left' | 'right'} where @param {string} sampling */
function choose(where, sampling) {
  /** @type {HTMLSelectElement} */ ($(`#${where}`)).value = sampling;
  void compare();
}

/** Both sides a day on or back, to the samplings those days show. @param {number} by */
function goDay(by) {
  const days = (trend?.days ?? []).filter((one) => one.shown !== null);
  const next = ['left', 'right'].map((where) => {
    const place = days.findIndex((one) => one.samplings.includes(chosen(where)?.id ?? ''));
    return place < 0 ? undefined : days[place + by]?.shown;
  });
  if (!next[0] || !next[1]) return;
  /** @type {HTMLSelectElement} */ ($('#left')).value = next[0];
  choose('right', next[1]);
}

/** What is looked at, in the address: it can be sent to somebody. */
function keepLink() {
  const query = new URLSearchParams();
  for (const where of ['left', 'right']) query.set(where, chosen(where)?.id ?? '');
  query.set('prompt', pairs[current]?.prompt_id ?? '');
  if (filter !== 'all') query.set('show', filter);
  if (mode !== 'diff') query.set('marks', mode);
  history.replaceState(null, '', `${location.pathname}?${query}`);
}

async function trends() {
  const [{ series }, { alerts }, all] = /** @type {[{series: import('../types').SeriesInfo[]}, {alerts: import('../types').Alert[]}, import('../types').AnswerTrends]} */ (await Promise.all([get(`${runPath(id)}/series`), get(`alerts?run=${encodeURIComponent(id)}&limit=50`), get(`${runPath(id)}/answers/trends`)]));
  trend = all;
  putLines(trend, store);
  paintDays();
  board.lastStep = Math.max(run?.last_step ?? 0, ...samplings.map((one) => one.weights_step));
  board.bands = bandsOf(alerts, board.lastStep);
  paintTrends(new Map(series.map((one) => [one.key, one])), store, board);
  tellAlert(alerts);
}

/** The alert about the answers, where there is one: its page says since when and why. @param {import('../types').Alert[]} alerts */
function tellAlert(alerts) {
  const told = alerts.find((alert) => alert.detector === 'answers_drift' && alert.state !== 'resolved') ?? alerts.find((alert) => alert.detector === 'answers_drift');
  $('#told').hidden = !told;
  if (told) $('#told').replaceChildren(h('a', { href: at(`alerts/${encodeURIComponent(told.id)}`) }, told.state === 'resolved' ? `Alert of step ${count(told.opened_step)}, resolved` : `Alert opened at step ${count(told.opened_step)}`), `, against a fixed earlier day: answers turned at step ${count(told.onset_step)}.`);
}

async function compare() {
  const query = new URLSearchParams({ brief: 'true' });
  for (const where of ['left', 'right']) {
    const sampling = chosen(where);
    if (sampling) query.set(where, sampling.id);
  }
  await show(/** @type {import('../types').Pairs} */ (await get(`${runPath(id)}/answers?${query}`)));
}

/** @param {import('../types').Pairs} answer */
async function show(answer) {
  pairs = answer.pairs;
  note = answer.note;
  for (const [where, one] of /** @type {[string, Sampling | null][]} */ ([['left', answer.left], ['right', answer.right]])) {
    if (one) /** @type {HTMLSelectElement} */ ($(`#${where}`)).value = one.id;
  }
  const wanted = pairs.findIndex((pair) => pair.prompt_id === asked.get('prompt'));
  if (wanted >= 0) current = wanted;
  asked.delete('prompt');
  current = Math.min(current, Math.max(0, pairs.length - 1));
  $('#answers').hidden = !pairs.length;
  paintVerdict();
  await paintPair();
}

/** The guard's word on the last sampling. */
async function guard() {
  const { windows } = /** @type {{windows: {who: string, verdict: string, hurt: boolean}[]}} */ (await get(`${runPath(id)}/samplings/windows`));
  const last = windows.at(-1);
  $('#guard').hidden = !last;
  if (last) $('#guard').replaceChildren('What the last sampling did to the training: ', foreign(`${last.who}: ${last.verdict}`));
}

function fillChoices() {
  const latest = [...samplings].reverse();
  for (const [where, i] of /** @type {[string, number][]} */ ([['left', Math.min(1, latest.length - 1)], ['right', 0]])) {
    const select = /** @type {HTMLSelectElement} */ ($(`#${where}`));
    const before = select.value;
    select.replaceChildren(...latest.map((one, n) => h('option', { value: one.id }, `${samplingName(one)}${n === 0 ? ' (latest)' : n === latest.length - 1 ? ' (first)' : ''}`)));
    const linked = asked.get(where) ?? '';
    asked.delete(where);
    select.value = [before, linked].find((one) => one && latest.some((known) => known.id === one)) ?? latest[i]?.id ?? '';
  }
}

async function load() {
  try {
    const linked = asked.has('left') || asked.has('right');
    const first = linked ? null : get(`${runPath(id)}/answers?brief=true`);
    first?.catch(() => {}); // told below, where it is awaited
    const [known, answer] = await Promise.all([get(runPath(id)), get(`${runPath(id)}/samplings`)]);
    run = /** @type {import('../types').RunDetail} */ (known);
    board.zone = run.zone || 'UTC';
    $('#run-link').replaceChildren(foreign(run.name || run.id));
    for (const kind of ['csv', 'json']) /** @type {HTMLAnchorElement} */ ($(`#export-${kind}`)).href = at(`api/v1/${runPath(id)}/answers/export?format=${kind}`);
    await takeSamplings(/** @type {{samplings: Sampling[]}} */ (answer).samplings, /** @type {Promise<import('../types').Pairs> | null} */ (first));
    await Promise.all([trends(), guard()]);
  } catch (problem) {
    $('#none').hidden = false;
    $('#none').replaceChildren(problemPanel(problem, load));
  }
}

/** There may be new ones: what is chosen stays chosen. */
async function loadSamplings() {
  const answer = /** @type {{samplings: Sampling[]}} */ (await get(`${runPath(id)}/samplings`));
  if (answer.samplings.length === samplings.length && samplings.length) return;
  await takeSamplings(answer.samplings, null);
  await Promise.all([trends(), guard()]);
}

/** @param {Sampling[]} found @param {Promise<import('../types').Pairs> | null} first the pairs that need no choice, asked for already */
async function takeSamplings(found, first) {
  samplings = [...found].sort((a, b) => a.at - b.at);
  $('#none').hidden = samplings.length > 0;
  $('#tools').hidden = !samplings.length;
  const newest = samplings.at(-1);
  say($('#about'), newest ? `${plural(samplings.length, 'sampling')}, ${plural(newest.count, 'answer')} in the latest${newest.prompt_set_hash ? `, prompt set ${newest.prompt_set_hash.slice(0, 8)}` : ''}, days in ${run?.zone ?? 'UTC'}` : '');
  if (!samplings.length) return;
  const isFirst = !/** @type {HTMLSelectElement} */ ($('#right')).options.length;
  fillChoices();
  if (isFirst && first) await show(await first);
  else await compare();
}

function paintMode() {
  $('#k-conf').hidden = mode !== 'conf';
  $('#k-diff').hidden = mode !== 'diff';
  const numbers = /** @type {HTMLInputElement} */ ($('#nums')).checked;
  $('#pair').className = `pair${mode === 'diff' ? ' show-diff' : ''}${mode === 'conf' ? ' show-conf' : ''}${numbers ? ' show-nums' : ''}`;
}

/** @param {number} by */
function go(by) {
  const list = shown().map(([, i]) => i);
  const place = list.indexOf(current);
  current = list[(place + by + list.length) % list.length] ?? current;
  void paintPair();
  document.querySelector('#list [aria-current]')?.scrollIntoView({ block: 'nearest' });
}

start();
choice($('#marks'), (data) => { mode = data.m ?? 'diff'; paintMode(); keepLink(); });
choice($('#filter'), (data) => { filter = data.f ?? 'all'; paintList(); keepLink(); });
/** @type {HTMLElement | null} */ (document.querySelector(`#filter [data-f="${asked.get('show') === 'worse' ? 'worse' : asked.get('show') === 'changed' ? 'changed' : 'all'}"]`))?.click();
/** @type {HTMLElement | null} */ (document.querySelector(`#marks [data-m="${asked.get('marks') === 'conf' ? 'conf' : asked.get('marks') === 'none' ? 'none' : 'diff'}"]`))?.click();
addEventListener('resize', paintDays);
$('#nums').addEventListener('change', paintMode);
for (const where of ['left', 'right']) $(`#${where}`).addEventListener('change', () => void compare());
addEventListener('keydown', (event) => {
  if (event.ctrlKey || event.metaKey || event.altKey) return;
  if (event.target instanceof Element && /^(INPUT|SELECT|TEXTAREA)$/.test(event.target.tagName)) return;
  if (event.key === 'n' || event.key === 'j') go(1);
  else if (event.key === 'p' || event.key === 'k') go(-1);
  else if (event.key === '[') goDay(-1);
  else if (event.key === ']') goDay(1);
});
void load().then(() => {
  if (!run) return;
  new Live({
    runs: [id],
    cursor: run.cursor,
    zone: run.zone,
    on: {
      points: ({ attempt, rows }) => store.take(attempt, rows),
      phase: (phase) => { if (phase.name === 'sampling' && phase.end_step !== null) void loadSamplings(); },
      resync: () => { void loadSamplings(); },
    },
  });
});
