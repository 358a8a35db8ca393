// @ts-check
/* Rules people write: a threshold or a trend on any series. */

import { $, button, foreign, h, tag } from './dom.js';
import { get, send } from './api.js';
import { field, nextForm, refusal, select, whenSent } from './form.js';
import { num } from './format.js';
import { problemPanel, toast } from './shell.js';

/** @typedef {import('./types').Rule} Rule */

const KINDS = { threshold: 'a value', trend: 'a trend (change per 1,000 steps)' };
const SIDES = { above: 'is above', below: 'is below' };
const SEVERITIES = { info: 'information', warning: 'warning', critical: 'critical' };
/** @type {Rule[]} */
let rules = [];

/** @param {Rule} rule */
const path = (rule) => `rules/${encodeURIComponent(rule.id)}`;

/** @param {Rule} rule */
function sentence(rule) {
  const what = rule.kind === 'trend' ? `its slope per 1,000 steps over ${rule.window} points` : rule.window > 1 ? `its mean of ${rule.window} points` : 'it';
  const clear = rule.clear === null ? '' : `, calm again ${rule.direction === 'above' ? 'below' : 'above'} ${num(rule.clear)}`;
  const often = rule.m > 1 ? `, ${rule.k} of ${rule.m} points` : '';
  const lasts = rule.for_s ? `, for ${rule.for_s} s` : '';
  const runs = [rule.run && `run ${rule.run}`, rule.tag && `tag ${rule.tag}`].filter(Boolean).join(', ');
  return `${rule.severity} when ${what} ${SIDES[rule.direction]} ${num(rule.value)}${clear}${often}${lasts}; ${runs || 'all runs'}`;
}

/** @param {Rule} rule */
function item(rule) {
  const { id: _, ...fields } = rule;
  const turn = button(rule.enabled ? 'Switch off' : 'Switch on', () => void act(() => send('PUT', path(rule), { ...fields, enabled: !rule.enabled }), rule.enabled ? 'Off: its alerts are closed.' : 'On.'));
  const drop = button('Delete', () => void act(() => send('DELETE', path(rule)), 'Deleted; its alerts are closed.'));
  return h('li', { 'data-rule': rule.id },
    tag(rule.enabled ? 'ok' : 'done', rule.enabled ? 'On' : 'Off'),
    h('div', {},
      h('h3', {}, foreign(rule.name), ' ', h('code', {}, foreign(rule.series))),
      h('p', { class: 'small' }, foreign(sentence(rule)))),
    h('div', { class: 'do' }, turn, drop));
}

/** @param {() => Promise<unknown>} what @param {string} done */
async function act(what, done) {
  try {
    await what();
    toast(done);
    await loadRules();
  } catch (problem) {
    toast(problem instanceof Error ? problem.message : 'That did not work.');
  }
}

/** @param {string} name @param {string} type @param {string} [shown] */
const input = (name, type, shown) => h('input', { name, type, placeholder: shown, step: type === 'number' ? 'any' : null, maxlength: type === 'text' ? 512 : null, autocomplete: 'off', spellcheck: 'false' });

/** What was filled in, as the API takes it. @param {HTMLFormElement} form */
function filled(form) {
  const data = new FormData(form);
  /** @param {string} name */
  const text = (name) => String(data.get(name) ?? '').trim();
  /** @param {string} name @param {number | null} otherwise */
  const number = (name, otherwise) => (text(name) === '' ? otherwise : Number(text(name)));
  const kind = text('kind');
  return {
    name: text('name') || `${text('series')} ${text('direction')} ${text('value')}`,
    series: text('series'),
    kind,
    direction: text('direction'),
    value: number('value', null),
    clear: number('clear', null),
    window: number('window', kind === 'trend' ? 50 : 1),
    k: number('k', 1),
    m: number('m', number('k', 1)),
    for_s: number('for_s', 0),
    severity: text('severity'),
    run: text('run'),
    tag: text('tag'),
  };
}

function add() {
  nextForm();
  const host = $('#new-rule');
  const form = /** @type {HTMLFormElement} */ (h('form', { class: 'form pad', 'aria-label': 'New rule' }));
  const refused = refusal();
  const close = () => {
    host.replaceChildren();
    $('#add-rule button').focus();
  };
  whenSent(form, refused, async () => {
    await send('POST', 'rules', filled(form));
    toast('Runs under way are judged by it from here on.');
    close();
    await loadRules();
  });
  form.append(
    h('div', { class: 'fields' },
      field('Series', input('series', 'text', 'loss/train'), 'Its key; * stands for any'),
      field('Judged by', select('kind', KINDS, 'threshold')),
      field('Bad when it', select('direction', SIDES, 'above')),
      field('Value', input('value', 'number', '10')),
      field('Calm again at (optional)', input('clear', 'number', '9'), 'On the good side of the value, so that wavering is one alert'),
      field('Severity', select('severity', SEVERITIES, 'warning'))),
    h('div', { class: 'fields narrow' },
      field('Mean or slope of points', input('window', 'number', '1')),
      field('Bad points', input('k', 'number', '1')),
      field('Of the last', input('m', 'number', '1')),
      field('For seconds', input('for_s', 'number', '0'))),
    h('div', { class: 'fields' },
      field('Only run', input('run', 'text', 'all runs'), 'Its id, or a pattern with *'),
      field('Only runs tagged', input('tag', 'text', 'all runs')),
      field('Name', input('name', 'text', 'loss too high'), 'What its alerts are called')),
    refused.node,
    h('div', { class: 'bar' }, h('button', { type: 'submit', class: 'btn main' }, 'Add the rule'), button('Cancel', close)),
  );
  host.replaceChildren(form);
  form.querySelector('input')?.focus();
}

export async function loadRules() {
  try {
    rules = /** @type {{rules: Rule[]}} */ (await get('rules')).rules;
    const none = h('li', { class: 'open' }, h('p', { class: 'quiet' }, 'No rule of your own yet. The detectors below judge without any.'));
    $('#rules').replaceChildren(...(rules.length ? rules.map(item) : [none]));
    if (!$('#add-rule').firstChild) $('#add-rule').append(button('Add a rule', add, { class: 'btn' }));
  } catch (problem) {
    $('#rules').replaceChildren(h('li', { class: 'open' }, problemPanel(problem, () => void loadRules())));
  }
}
