// @ts-check
/* Detectors' parameters: tried on stored runs first, then switched on. */

import { $, button, foreign, h, say, tag } from './dom.js';
import { get, runPage, send, whoAmI } from './api.js';
import { field, nextForm, refusal, select } from './form.js';
import { count, plural } from './format.js';
import { problemPanel, toast } from './shell.js';

/** @typedef {import('./types').Judge} Judge */
/** @typedef {import('./types').Tried} Tried */
/** @typedef {import('./types').TriedAlert} TriedAlert */
/** @typedef {import('./types').TriedRun} TriedRun */

/** @type {Judge[]} */
let judges = [];

/** @param {Judge} judge */
const path = (judge) => `detectors/${encodeURIComponent(judge.name)}`;

/** @param {TriedAlert} alert */
const same = (alert) => `${alert.severity} ${alert.subject} ${alert.opened_step} ${alert.resolved_step}`;

/** @param {TriedAlert} alert */
const loud = (alert) => alert.severity !== 'info';

/** @param {TriedAlert} alert */
function alertLine(alert) {
  const kind = alert.severity === 'critical' ? 'act' : alert.severity === 'warning' ? 'look' : 'info';
  const end = alert.resolved_step === null ? 'to the end' : `to ${count(alert.resolved_step)}`;
  return h('li', {}, tag(kind, alert.severity), alert.subject ? ' ' : null, alert.subject ? foreign(alert.subject) : null, ` since step ${count(alert.onset_step)}, opened at ${count(alert.opened_step)}, ${end}`, alert.was_fine ? h('b', {}, '; somebody said that this was fine') : null);
}

/** @param {TriedAlert[]} alerts @param {string} none */
function alertCell(alerts, none) {
  return h('td', {}, alerts.length ? h('ul', { class: 'plainlist' }, ...alerts.map(alertLine)) : h('span', { class: 'quiet' }, none));
}

/** One run: what is the same on both sides is not told twice. @param {TriedRun} run */
function runRow(run) {
  const before = run.before.map(same).join('|');
  const unchanged = !run.broken && before === run.after.map(same).join('|');
  const name = h('th', { scope: 'row' }, h('a', { href: runPage(run.run) }, foreign(run.name || run.run)), h('span', { class: 'quiet small' }, ` ${count(run.steps)} steps`));
  const after = run.broken ? h('td', {}, tag('fail', 'It fails'), ` with these values (${run.broken}).`) : unchanged ? h('td', { class: 'quiet' }, 'the same') : alertCell(run.after, 'no alert');
  return h('tr', { 'data-run': run.run, class: unchanged ? 'calm' : null }, name, alertCell(run.before, 'no alert'), after);
}

/** @param {TriedRun[]} runs */
function total(runs) {
  /** @param {'before' | 'after'} side */
  const told = (side) => runs.reduce((sum, run) => sum + run[side].filter(loud).length, 0);
  /** @param {'before' | 'after'} side */
  const fine = (side) => runs.reduce((sum, run) => sum + run[side].filter((alert) => alert.was_fine && loud(alert)).length, 0);
  const labelled = fine('before') ? `; of those that somebody said were fine, ${fine('after')} of ${fine('before')} remain` : '';
  return `${plural(runs.length, 'run')}: warnings and critical alerts ${told('before')} now, ${told('after')} with the change${labelled}.`;
}

/** The form and the trial of one detector. @param {Judge} judge @param {(saved: boolean) => void} done */
function judgeForm(judge, done) {
  nextForm();
  const form = /** @type {HTMLFormElement} */ (h('form', { class: 'form pad', 'aria-label': `Parameters of ${judge.name}` }));
  const refused = refusal();
  const outcome = h('div', { class: 'outcome', 'aria-live': 'polite' });
  const switchOn = /** @type {HTMLButtonElement} */ (button('Switch on', () => void save(filled()), { class: 'btn', disabled: true }));
  const trying = /** @type {HTMLButtonElement} */ (h('button', { type: 'submit', class: 'btn main' }, 'Try it on stored runs'));
  /** @type {TriedRun[]} */
  let runs = [];

  const filled = () => {
    const data = new FormData(form);
    /** @type {Record<string, string>} */
    const params = {};
    for (const one of judge.params) {
      const text = String(data.get(one.name) ?? '').trim();
      if (text !== '' && text !== one.shipped) params[one.name] = text;
    }
    return params;
  };

  /** @param {Record<string, string>} params */
  const save = async (params) => {
    try {
      await send('PUT', `${path(judge)}/params`, { params, by: whoAmI() });
      toast(Object.keys(params).length ? 'Switched on: runs under way are judged so from here on.' : 'As shipped again.');
      done(true);
    } catch (problem) {
      refused.show(problem);
    }
  };

  /** @param {string[]} left */
  const attempt = async (left) => {
    refused.clear();
    trying.disabled = true;
    const params = filled();
    const waiting = h('p', { class: 'quiet' }, 'Judging stored runs, as now and with the change.');
    if (left.length) outcome.append(waiting);
    else outcome.replaceChildren(waiting);
    try {
      const tried = /** @type {Tried} */ (await send('POST', `${path(judge)}/backtest`, { params, runs: left }));
      runs = left.length ? [...runs, ...tried.runs] : tried.runs;
      show(tried.left);
      switchOn.disabled = runs.some((run) => run.broken !== '');
    } catch (problem) {
      outcome.replaceChildren();
      refused.show(problem);
    }
    trying.disabled = false;
  };

  /** @param {string[]} left */
  const show = (left) => {
    if (!runs.length) {
      outcome.replaceChildren(h('p', {}, 'No run is stored yet: there is nothing to try it on.'));
      return;
    }
    const head = h('tr', {}, h('th', { scope: 'col' }, 'Run'), h('th', { scope: 'col' }, 'Now'), h('th', { scope: 'col' }, 'With the change'));
    outcome.replaceChildren(
      h('p', { class: 'total' }, total(runs)),
      h('div', { class: 'scroll', tabindex: 0, role: 'region', 'aria-label': 'Alerts now and with the change' }, h('table', { class: 'tried' }, h('thead', {}, head), h('tbody', {}, ...runs.map(runRow)))),
      left.length ? h('p', {}, `There was no time for ${plural(left.length, 'more run')}. `, button('Go on', () => void attempt(left))) : '',
    );
  };

  form.addEventListener('submit', (event) => {
    event.preventDefault();
    void attempt([]);
  });
  form.addEventListener('input', () => { switchOn.disabled = true; });
  const inputs = judge.params.map((one) => field(one.name, h('input', { name: one.name, type: 'text', value: one.value, placeholder: one.shipped, maxlength: 512, autocomplete: 'off', spellcheck: 'false' }), one.value === one.shipped ? '' : `As shipped: ${one.shipped}`));
  const changed = judge.params.some((one) => one.value !== one.shipped);
  form.append(
    h('p', { class: 'note wide' }, foreign(judge.about)),
    judge.hears ? h('p', { class: 'note wide' }, 'What it judges by the server\u2019s clock, such as silence, is not in a replay.') : '',
    h('div', { class: 'fields narrow' }, ...inputs),
    refused.node,
    h('div', { class: 'bar' }, trying, switchOn, changed ? button('As shipped', () => void save({})) : null, button('Close', () => done(false))),
    outcome,
  );
  return form;
}

function paint() {
  const changed = judges.filter((judge) => judge.params.some((one) => one.value !== one.shipped));
  const host = $('#judges');
  const words = changed.map((judge) => h('li', { 'data-judge': judge.name }, h('div', {},
    h('h3', {}, judge.name),
    h('p', { class: 'small' }, judge.params.filter((one) => one.value !== one.shipped).map((one) => `${one.name} ${one.value} (shipped: ${one.shipped})`).join(', ')),
    judge.by ? h('p', { class: 'small quiet' }, 'set by ', foreign(judge.by)) : null)));
  host.replaceChildren(...(words.length ? [h('ol', { class: 'alertlist channels' }, ...words)] : [h('p', { class: 'quiet pad' }, 'All detectors judge as shipped.')]));
  for (const item of host.querySelectorAll('li')) item.classList.add('open');
}

/** @param {string} name */
function choose(name) {
  const judge = judges.find((one) => one.name === name);
  const host = $('#judge-form');
  if (!judge) return host.replaceChildren();
  host.replaceChildren(judgeForm(judge, (saved) => {
    host.replaceChildren();
    /** @type {HTMLSelectElement} */ ($('#choose-judge select')).value = '';
    if (saved) void loadJudges();
  }));
}

export async function loadJudges() {
  try {
    judges = /** @type {{detectors: Judge[]}} */ (await get('detectors')).detectors;
    const choices = Object.fromEntries([['', 'Choose a detector'], ...judges.map((judge) => [judge.name, judge.name])]);
    const chooser = /** @type {HTMLSelectElement} */ (select('judge', choices, ''));
    chooser.setAttribute('aria-label', 'Detector');
    chooser.addEventListener('change', () => choose(chooser.value));
    $('#choose-judge').replaceChildren(chooser);
    paint();
  } catch (problem) {
    $('#judges').replaceChildren(problemPanel(problem, () => void loadJudges()));
  }
  say($('#judges-count'), judges.length ? plural(judges.length, 'detector') : '');
}
