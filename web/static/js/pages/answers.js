// @ts-check
/* Two samplings of the same prompts side by side: shorter, surer, better or worse? Which prompts? */

import { $, choice, foreign, glyph, h, keepFocus, s, say } from '../dom.js';
import { at, get, now, runPath } from '../api.js';
import { Board } from '../board.js';
import { figure } from '../chart.js';
import { clock, count, num, plural } from '../format.js';
import { Live } from '../live.js';
import { problemPanel, setLamp, start, title } from '../shell.js';
import { Store } from '../store.js';
import { meanP, median, pieces, shade, tokensOf, wordCount } from '../tokens.js';
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

/** @param {Pair} pair */
function promptText(pair) {
  return pair.prompt === '' ? '(empty prompt)' : pair.prompt;
}

/** Whether the prompt is asked in more than one way. @param {Pair} pair */
function repeated(pair) {
  return pairs.some((other) => other !== pair && other.prompt === pair.prompt);
}

/** @param {Pair} pair */
function verdictOf(pair) {
  return pair.verdict.replaceAll('->', '\u2192');
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
  const confidence = p === null || q === null || p === undefined || q === undefined ? '' : `, confidence ${p.toFixed(2)} became ${q.toFixed(2)}`;
  if (n('same') === both.length) say($('#sentence'), 'The same answers, word for word');
  else say($('#sentence'), `${lead} ${plural(a, 'word')} became ${b}${confidence}`);
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
  $('#pair').replaceChildren(side(pair, 'left', 'cut'), side(pair, 'right', 'add'));
  say($('#conf-note'), '');
  const reads = 'Comparable: prompt, tokenizer and decoding agree; only the weights differ.';
  const why = { worse: reads, better: reads, same: 'Word for word the same.', changed: reads, apart: `Not comparable: ${pair.differs.join(', ')} differ.`, missing: 'One side has no answer to this prompt.' };
  say($('#why'), why[kind] + (pair.rough ? ' Shown roughly, line by line: the texts are long.' : ''));
}

/** @param {Pair} pair @param {'left' | 'right'} where @param {'cut' | 'add'} mine */
function side(pair, where, mine) {
  const answer = pair[where];
  const sampling = chosen(where);
  const name = sampling ? samplingName(sampling) : where;
  const head = h('h3', {}, name, h('span', { class: 'note' }, where));
  if (!answer) return h('div', {}, head, h('p', { class: 'text quiet' }, 'No answer to this prompt in this sampling.'));
  const tokens = tokensOf(answer);
  const text = h('p', { class: 'text', tabindex: 0, 'aria-label': `${name}: ${answer.text || 'an empty answer'}`, role: 'group' }, ...textKids(answer, pair.diff, mine));
  if (!answer.text) text.append(h('span', { class: 'quiet' }, '(nothing: the first token ended it)'));
  wireTokens(text, tokens);
  return h('div', {}, head, text, profile(tokens), lowest(tokens), measures(answer, tokens));
}

/** @param {AnswerOut} answer @param {Pair['diff']} diff @param {'cut' | 'add'} mine */
function textKids(answer, diff, mine) {
  /** @type {(Node | string)[]} */
  const kids = [];
  /** @type {HTMLElement | null} */
  let run_ = null;
  const all = pieces(answer, diff, mine);
  for (const [i, piece] of all.entries()) {
    const ends = all[i + 1]?.token !== piece.token; // one number a token, at its end
    const token = piece.p === null ? h('span', {}, piece.text) : h('span', { class: `tok ${shade(piece.p)}`, 'data-token': piece.token, 'data-p': ends && piece.text.trim() ? piece.p.toFixed(2).replace(/^0/, '') : null }, piece.text);
    if (!piece.only) {
      run_ = null;
      kids.push(token);
    } else if (run_) run_.append(token);
    else {
      run_ = h(mine === 'cut' ? 'del' : 'ins', {}, token);
      kids.push(run_);
    }
  }
  return kids;
}

/** Pointer and arrow keys read single tokens. @param {HTMLElement} text @param {{text: string, p: number | null}[]} tokens */
function wireTokens(text, tokens) {
  let at = -1;
  const tell = (/** @type {number} */ i) => {
    const token = tokens[i];
    if (!token) return;
    at = i;
    say($('#conf-note'), `Token ${i + 1} of ${tokens.length}, \u201c${token.text}\u201d: confidence ${token.p === null ? 'not sent' : token.p.toFixed(3)}`);
  };
  text.addEventListener('pointerover', (event) => {
    const found = event.target instanceof Element ? event.target.closest('[data-token]') : null;
    if (found) tell(Number(found.getAttribute('data-token')));
  });
  text.addEventListener('keydown', (event) => {
    if (event.key === 'ArrowRight') tell(Math.min(tokens.length - 1, at + 1));
    else if (event.key === 'ArrowLeft') tell(Math.max(0, at - 1));
    else return;
    event.preventDefault();
  });
}

/** @param {{p: number | null}[]} tokens */
function profile(tokens) {
  const mean = meanP(tokens);
  if (mean === null) return h('p', { class: 'note' }, 'No token probabilities were sent.');
  const few = tokens.slice(0, 400);
  const svg = s('svg', { viewBox: `0 0 ${Math.max(52, few.length) * 7} 30`, width: Math.max(52, few.length) * 7, height: 30, class: 'prof', role: 'img', preserveAspectRatio: 'none', 'aria-label': `Confidence token by token, mean ${mean.toFixed(2)}` });
  few.forEach(({ p }, i) => svg.append(s('rect', { x: i * 7, y: 28 - (p ?? 0) * 26, width: 5, height: (p ?? 0) * 26 })));
  svg.append(s('path', { d: `M0 ${28 - mean * 26}H${few.length * 7}` }));
  return svg;
}

/** The same for screen readers. @param {{text: string, p: number | null}[]} tokens */
function lowest(tokens) {
  const known = tokens.filter((token) => token.p !== null && token.text.trim());
  const low = [...known].sort((a, b) => (a.p ?? 0) - (b.p ?? 0)).slice(0, 3);
  const mean = meanP(tokens);
  return h('p', { class: 'sr' }, mean === null ? 'No token probabilities.' : `Mean token confidence ${mean.toFixed(2)}. Least sure: ${low.map((token) => `${token.text.trim()} ${(token.p ?? 0).toFixed(2)}`).join(', ')}.`);
}

/** @param {AnswerOut} answer @param {{p: number | null}[]} tokens */
function measures(answer, tokens) {
  const mean = meanP(tokens);
  const first = tokens[0]?.p ?? null;
  const nll = typeof answer.reference_nll === 'number' ? num(answer.reference_nll) : answer.reference_nll ?? 'none given';
  /** @type {[string, string][]} */
  const rows = [['words', count(wordCount(answer.text))], ['confidence', mean === null ? '-' : mean.toFixed(2)], ['first token', first === null ? '-' : first.toFixed(2)], ['reference NLL', nll], ['stopped by', (answer.stop_reason || '-').replaceAll('_', ' ')]];
  return h('div', { class: 'measure' }, ...rows.map(([name, text]) => h('span', {}, name, h('b', {}, foreign(text)))));
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

/** Numbers of the answers as lines of the same charts. @type {[string, string, (point: import('../types').TrendPoint) => number | null][]} */
const OF_ANSWERS = [
  ['answers/length', 'Length, tokens', (point) => point.numbers.length],
  ['answers/confidence', 'Confidence of answers', (point) => point.numbers.confidence],
  ['answers/repeats', 'Repetition', (point) => point.numbers.repeats],
  ['answers/reference_nll', 'NLL of reference answers', (point) => point.numbers.reference_nll],
  ['answers/like_first', 'Like the first answers', (point) => point.like_first],
];

/** @param {import('../types').AnswerTrends} all */
function putLines(all) {
  const latest = all.points.at(-1)?.prompt_set_hash;
  const points = all.points.filter((point) => point.prompt_set_hash === latest).sort((a, b) => a.weights_step - b.weights_step);
  for (const [key, , read] of OF_ANSWERS) {
    const told = points.filter((point) => read(point) !== null);
    if (!told.length) continue;
    store.whole.set(key, [{ key, attempt: 'answers', ghost: false, raw: true, steps: told.map((point) => point.weights_step), times: told.map((point) => point.at), values: told.map((point) => /** @type {number} */ (read(point))), low: null, high: null, broken: [] }]);
  }
}

/** @type {[string, string, string, number][]} */
const TRENDS = [['confidence/probe', 'Probe confidence', 's4', 1], ['entropy_minus_nll/probe', 'Entropy minus NLL', 's1', 1], ['loss/heldout', 'Held-out loss', 's2', 1], ['loss/probe', 'Probe loss', 's2', 1], ['weight_norm/total', 'Weight norm', 's1', 1], ['top1/probe', 'Top-1', 's3', 1]];

async function trends() {
  const { series } = /** @type {{series: import('../types').SeriesInfo[]}} */ (await get(`${runPath(id)}/series`));
  const { alerts } = /** @type {{alerts: import('../types').Alert[]}} */ (await get(`alerts?run=${encodeURIComponent(id)}&limit=50`));
  const has = new Map(series.map((one) => [one.key, one]));
  trend = /** @type {import('../types').AnswerTrends} */ (await get(`${runPath(id)}/answers/trends`));
  putLines(trend);
  paintDays();
  /** @type {[string, string, string, number][]} */
  const own = OF_ANSWERS.filter(([key]) => store.loaded(key)).map(([key, name]) => [key, name, 's3', 1]);
  const keys = [...own, ...TRENDS.filter(([key]) => has.has(key) && !(key === 'loss/probe' && has.has('loss/heldout'))).slice(0, 5)];
  board.lastStep = run?.last_step ?? 0;
  board.bands = alerts.filter((alert) => alert.severity !== 'info' && (alert.state !== 'resolved' || alert.detector === 'answers_drift')).slice(0, 3).map((alert) => ({ id: alert.id, kind: alert.severity === 'critical' ? 'act' : 'look', from: alert.onset_step, told: alert.opened_step, to: board.lastStep, name: alert.title, series: alert.detector === 'answers_drift' ? [...(alert.evidence.series ?? []), ...OF_ANSWERS.map(([key]) => key)] : alert.evidence.series ?? [] }));
  $('#trends').hidden = !keys.length;
  $('#trends').replaceChildren(...keys.map(([key, name, colour]) => {
    const box = h('div', {});
    const made = figure({ title: name, small: true, names: false, height: 112, lines: [{ key, name, colour, dots: true }] }, board);
    const last = has.get(key)?.last_value ?? store.owned(key)?.values.at(-1);
    box.append(h('h2', {}, h('span', {}, name), h('b', {}, typeof last === 'number' ? num(last) : last ?? '-')), ...(made.node.querySelectorAll('.plot')));
    return box;
  }));
}

async function compare() {
  const query = new URLSearchParams({ brief: 'true' });
  for (const where of ['left', 'right']) {
    const sampling = chosen(where);
    if (sampling) query.set(where, sampling.id);
  }
  await show(query);
}

/** @param {URLSearchParams} query */
async function show(query) {
  const answer = /** @type {import('../types').Pairs} */ (await get(`${runPath(id)}/answers?${query}`));
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
    run = /** @type {import('../types').RunDetail} */ (await get(runPath(id)));
    board.zone = run.zone || 'UTC';
    $('#run-link').replaceChildren(foreign(run.name || run.id));
    for (const kind of ['csv', 'json']) /** @type {HTMLAnchorElement} */ ($(`#export-${kind}`)).href = at(`api/v1/${runPath(id)}/answers/export?format=${kind}`);
    await loadSamplings();
    await trends();
    await guard();
  } catch (problem) {
    $('#none').hidden = false;
    $('#none').replaceChildren(problemPanel(problem, load));
  }
}

async function loadSamplings() {
  const answer = /** @type {{samplings: Sampling[]}} */ (await get(`${runPath(id)}/samplings`));
  if (answer.samplings.length === samplings.length && samplings.length) return;
  samplings = [...answer.samplings].sort((a, b) => a.at - b.at);
  $('#none').hidden = samplings.length > 0;
  $('#tools').hidden = !samplings.length;
  const newest = samplings.at(-1);
  say($('#about'), newest ? `${plural(samplings.length, 'sampling')}, ${plural(newest.count, 'prompt')} in the latest` : '');
  if (!samplings.length) return;
  const chosenOnes = ['left', 'right'].filter((where) => samplings.some((one) => one.id === asked.get(where)));
  const isFirst = !/** @type {HTMLSelectElement} */ ($('#right')).options.length;
  fillChoices();
  if (isFirst && !chosenOnes.length) await show(new URLSearchParams({ brief: 'true' }));
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
