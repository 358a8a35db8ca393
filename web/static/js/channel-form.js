// @ts-check
/* The form of a channel, drawn from the fields its format asks for. */

import { button, foreign, h } from './dom.js';
import { send } from './api.js';
import { field, nextForm, refusal, select, whenSent } from './form.js';

/** @typedef {import('./types').Channel} Channel */
/** @typedef {import('./types').Format} Format */
/** @typedef {import('./types').FormField} FormField */

const SEVERITIES = { info: 'everything, information too', warning: 'warnings and critical alerts', critical: 'critical alerts only' };
/** One field of a format. A secret that is set stays as it is while nothing is typed.
 * @param {FormField} spec @param {Channel | null} held */
function control(spec, held) {
  const name = `config.${spec.name}`;
  const value = held?.config[spec.name] ?? '';
  const label = spec.required || spec.choices.length ? spec.label : `${spec.label} (optional)`;
  if (spec.choices.length) {
    const choices = Object.fromEntries(spec.choices.map((one) => [one, one]));
    return field(label, select(name, choices, value || spec.default), spec.help);
  }
  const kept = spec.secret && value !== '';
  const input = h('input', {
    name,
    type: spec.secret ? 'password' : 'text',
    value: spec.secret ? null : value,
    placeholder: spec.secret ? value : spec.default,
    required: spec.required && !kept,
    autocomplete: spec.secret ? 'new-password' : 'off',
    spellcheck: 'false',
    maxlength: 4096,
  });
  const help = [spec.help, kept ? 'Set; leave it empty to keep it.' : ''].filter(Boolean).join('. ').replace('..', '.');
  const drop = kept && !spec.required ? h('label', { class: 'check' }, h('input', { type: 'checkbox', name: `drop.${spec.name}` }), 'Take it away') : null;
  return field(label, input, help, drop);
}

/** What was filled in, as the API takes it. @param {HTMLFormElement} form @param {Format} format */
function filled(form, format) {
  const data = new FormData(form);
  /** @type {Record<string, string | null>} */
  const config = {};
  for (const spec of format.fields) {
    config[spec.name] = data.has(`drop.${spec.name}`) ? null : String(data.get(`config.${spec.name}`) ?? '').trim();
  }
  const tags = String(data.get('tags') ?? '').split(',').map((tag) => tag.trim()).filter(Boolean);
  return { name: String(data.get('name') ?? '').trim(), config, route: { severity: String(data.get('severity')), tags }, quiet_hours: String(data.get('quiet_hours') ?? '').trim() };
}

/**
 * The form. `done` is called with the saved channel, or null if nothing was saved.
 * @param {Format[]} formats @param {Channel | null} held @param {(saved: Channel | null) => void} done
 */
export function channelForm(formats, held, done) {
  nextForm();
  const form = /** @type {HTMLFormElement} */ (h('form', { class: 'form pad', 'aria-label': held ? `Change ${held.name}` : 'New channel' }));
  const fields = h('div', { class: 'fields' });
  const refused = refusal();
  let format = formats.find((one) => one.name === held?.format) ?? formats[0];

  const draw = () => {
    const about = h('p', { class: 'note wide' }, format.asleep ? foreign(format.asleep) : format.about);
    fields.replaceChildren(about, ...format.fields.map((spec) => control(spec, held)));
  };
  const kinds = /** @type {HTMLSelectElement} */ (select('format', Object.fromEntries(formats.map((one) => [one.name, one.asleep ? `${one.label} - asleep` : one.label])), format.name));
  kinds.addEventListener('change', () => {
    format = formats.find((one) => one.name === kinds.value) ?? format;
    draw();
  });
  draw();

  whenSent(form, refused, async () => {
    const { config, ...rest } = filled(form, format);
    const saved = held
      ? await send('PATCH', `channels/${encodeURIComponent(held.id)}`, { ...rest, config })
      : await send('POST', 'channels', { ...rest, format: format.name, config: Object.fromEntries(Object.entries(config).filter(([, value]) => value)) });
    done(/** @type {Channel} */ (saved));
  });
  form.append(
    h('div', { class: 'fields' },
      held ? null : field('Kind', kinds),
      field('Name', h('input', { name: 'name', type: 'text', value: held?.name ?? '', placeholder: 'night shift', maxlength: 200, autocomplete: 'off' }), 'How you call it')),
    fields,
    h('div', { class: 'fields' },
      field('Hears of', select('severity', SEVERITIES, held?.route.severity ?? 'warning')),
      field('Only runs tagged', h('input', { name: 'tags', type: 'text', value: held?.route.tags.join(', ') ?? '', placeholder: 'all runs', autocomplete: 'off' }), 'Tags with commas between them; one of them is enough'),
      field('Quiet hours', h('input', { name: 'quiet_hours', type: 'text', value: held?.quiet_hours ?? '', placeholder: '22:00-07:00 Europe/Amsterdam', maxlength: 100, autocomplete: 'off' }), 'Then only critical alerts are sent, the rest afterwards; without a zone that of the run')),
    refused.node,
    h('div', { class: 'bar' }, h('button', { type: 'submit', class: 'btn main' }, held ? 'Save' : 'Add the channel'), button('Cancel', () => done(null))),
  );
  return form;
}
