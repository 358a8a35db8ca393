// @ts-check
/* Silences: when nothing is told, once or by the week, in a place's own time. */

import { $, button, foreign, h, tag } from './dom.js';
import { get, now, send, whoAmI } from './api.js';
import { field, nextForm, refusal, select, whenSent } from './form.js';
import { clock } from './format.js';
import { problemPanel, toast } from './shell.js';

/** @typedef {import('./types').Silence} Silence */

const ZONE = Intl.DateTimeFormat().resolvedOptions().timeZone;
const DAYS = ['Mon', 'Tue', 'Wed', 'Thu', 'Fri', 'Sat', 'Sun'];
/** @type {Silence[]} */
let silences = [];

/** @param {Silence} silence */
function when(silence) {
  if (silence.begin) {
    const days = silence.days.length ? silence.days.map((day) => DAYS[day]).join(', ') : 'every day';
    return `${silence.begin}\u2013${silence.end}, ${days}, ${silence.zone}`;
  }
  return `${clock(silence.starts_at, silence.zone, now())} to ${clock(silence.ends_at, silence.zone, now())}, ${silence.zone}`;
}

/** @param {Silence} silence */
function what(silence) {
  const parts = [['run', silence.run], ['detector', silence.detector], ['tag', silence.tag]].filter(([, value]) => value);
  return parts.length ? parts.map(([name, value]) => `${name} ${value}`).join(', ') : 'everything';
}

/** @param {Silence} silence */
function item(silence) {
  const over = silence.until === null && silence.ends_at !== null && silence.ends_at <= now();
  const state = silence.until !== null ? tag('asleep', 'Silent now') : tag('done', over ? 'Over' : 'Later');
  const end = button(over ? 'Delete' : 'End it', () => void remove(silence));
  return h('li', { 'data-silence': silence.id },
    state,
    h('div', {},
      h('h3', {}, foreign(what(silence))),
      h('p', { class: 'small' }, foreign(when(silence))),
      silence.comment || silence.by ? h('p', { class: 'small quiet' }, foreign([silence.comment, silence.by && `by ${silence.by}`].filter(Boolean).join(', '))) : null),
    h('div', { class: 'do' }, end));
}

/** @param {Silence} silence */
async function remove(silence) {
  try {
    await send('DELETE', `silences/${encodeURIComponent(silence.id)}`);
    toast('Ended; what it held back is looked at again.');
    await loadSilences();
  } catch (problem) {
    toast(problem instanceof Error ? problem.message : 'That did not work.');
  }
}

/** @param {string} name @param {string} type @param {string} [shown] */
const input = (name, type, shown) => h('input', { name, type, placeholder: shown, maxlength: type === 'text' ? 512 : null, autocomplete: 'off' });

function add() {
  nextForm();
  const host = $('#new-silence');
  const form = /** @type {HTMLFormElement} */ (h('form', { class: 'form pad', 'aria-label': 'New silence' }));
  const refused = refusal();
  const kind = /** @type {HTMLSelectElement} */ (select('kind', { weekly: 'by the week', once: 'once' }, 'weekly'));
  const span = h('div', { class: 'fields' });
  const zone = h('input', { name: 'zone', type: 'text', value: ZONE, maxlength: 100, autocomplete: 'off', required: true });
  const draw = () => {
    span.replaceChildren(...(kind.value === 'weekly'
      ? [field('From', input('begin', 'time')), field('To', input('end', 'time'), 'Over midnight where it is not later'),
        h('fieldset', { class: 'field' }, h('legend', {}, 'Days'), h('div', { class: 'bar' }, ...DAYS.map((day, number) => h('label', { class: 'check' }, h('input', { type: 'checkbox', name: 'days', value: number }), day))), h('span', { class: 'note' }, 'None: every day'))]
      : [field('From', input('from', 'datetime-local')), field('To', input('to', 'datetime-local'))]));
  };
  kind.addEventListener('change', draw);
  draw();
  const close = () => {
    host.replaceChildren();
    $('#add-silence button').focus();
  };
  whenSent(form, refused, async () => {
    const data = new FormData(form);
    /** @param {string} name */
    const text = (name) => String(data.get(name) ?? '').trim();
    const spans = kind.value === 'weekly'
      ? { begin: text('begin'), end: text('end'), days: data.getAll('days').map(Number) }
      : { from: text('from') || null, to: text('to') || null };
    await send('POST', 'silences', { run: text('run'), detector: text('detector'), tag: text('tag'), zone: text('zone'), comment: text('comment'), by: whoAmI(), ...spans });
    toast('Silenced: what is still open at its end is told then.');
    close();
    await loadSilences();
  });
  form.append(
    h('div', { class: 'fields' }, field('When', kind), field('Time zone', zone, 'Such as Europe/Amsterdam')),
    span,
    h('div', { class: 'fields' },
      field('Only run', input('run', 'text', 'all runs'), 'Its id'),
      field('Only detector', input('detector', 'text', 'all detectors')),
      field('Only runs tagged', input('tag', 'text', 'all runs')),
      field('Why', input('comment', 'text', 'restarting the cluster'))),
    refused.node,
    h('div', { class: 'bar' }, h('button', { type: 'submit', class: 'btn main' }, 'Silence'), button('Cancel', close)),
  );
  host.replaceChildren(form);
  kind.focus();
}

export async function loadSilences() {
  try {
    silences = /** @type {{silences: Silence[]}} */ (await get('silences')).silences;
    const none = h('li', { class: 'open' }, h('p', { class: 'quiet' }, 'Nothing is silenced.'));
    $('#silences').replaceChildren(...(silences.length ? silences.map(item) : [none]));
    if (!$('#add-silence').firstChild) $('#add-silence').append(button('Add a silence', add, { class: 'btn' }));
  } catch (problem) {
    $('#silences').replaceChildren(h('li', { class: 'open' }, problemPanel(problem, () => void loadSilences())));
  }
}
