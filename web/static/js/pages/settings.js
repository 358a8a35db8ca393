// @ts-check
/* Channels: where alerts go, tried out with the receiver's own answer; silences; detectors. */

import { $, button, foreign, h, say, tag } from '../dom.js';
import { get, send } from '../api.js';
import { loadJudges } from '../judges.js';
import { loadRules } from '../own-rules.js';
import { loadSilences } from '../silences.js';
import { channelForm } from '../channel-form.js';
import { plural } from '../format.js';
import { problemPanel, setLamp, start, title, toast } from '../shell.js';

/** @typedef {import('../types').Channel} Channel */
/** @typedef {import('../types').Format} Format */
/** @typedef {import('../types').TestAnswer} TestAnswer */

const HEARS = { info: 'everything', warning: 'warnings and critical alerts', critical: 'critical alerts' };
const SURE_MS = 4000;
/** @type {Channel[]} */
let channels = [];
/** @type {Format[]} */
let formats = [];

/** @param {string} id */
const path = (id) => `channels/${encodeURIComponent(id)}`;

/** Do something, and say so where it fails. @param {() => Promise<unknown>} act */
async function trying(act) {
  try {
    await act();
  } catch (problem) {
    toast(problem instanceof Error ? problem.message : 'That did not work.');
  }
}

/** What came of a test: the receiver's words are foreign text. @param {TestAnswer} answer */
function outcome(answer) {
  const kind = answer.sent ? 'ok' : 'fail';
  const what = answer.moment === 'opened' ? '' : ` (${answer.moment})`;
  const status = answer.status === null ? '' : `${answer.status} `;
  const words = answer.answer || answer.error || (answer.sent ? 'no words' : 'no answer');
  return h('p', {}, tag(kind, `${answer.sent ? 'Delivered' : 'Not delivered'}${what}`), h('span', {}, ` in ${answer.latency_s.toFixed(2)} s: ${status}`, h('code', {}, foreign(words))));
}

/** @param {Channel} channel @param {HTMLElement} said @param {HTMLButtonElement} pressed */
async function test(channel, said, pressed) {
  pressed.disabled = true;
  said.replaceChildren(h('p', { class: 'quiet' }, 'Sending a test message.'));
  try {
    const { answers } = /** @type {{answers: TestAnswer[]}} */ (await send('POST', `${path(channel.id)}/test`));
    said.replaceChildren(h('div', { class: 'stack-small' }, ...answers.map(outcome)));
  } catch (problem) {
    said.replaceChildren(problemPanel(problem, () => void test(channel, said, pressed)));
  }
  pressed.disabled = false;
}

/** A button that asks once more. @param {() => void} act */
function deleteButton(act) {
  const node = button('Delete', () => {
    if (node.dataset.sure) return act();
    node.dataset.sure = 'yes';
    say(node, 'Really delete?');
    setTimeout(() => { delete node.dataset.sure; say(node, 'Delete'); }, SURE_MS);
  });
  return node;
}

/** @param {Channel} channel */
function routeText(channel) {
  const { severity, tags } = channel.route;
  return h('span', {}, `Hears of ${HEARS[severity]}`, tags.length ? ' of runs tagged ' : ' of all runs', ...(tags.length ? [foreign(tags.join(' or '))] : []), channel.quiet_hours ? `; quiet ${channel.quiet_hours}` : '');
}

/** @param {Channel} channel */
function item(channel) {
  const lamp = h('span');
  const state = channel.asleep ? 'Asleep' : channel.enabled ? 'On' : 'Off';
  setLamp(lamp, channel.asleep ? 'lost' : channel.enabled ? 'ok' : 'done', state, 'mid');
  const said = h('div', { class: 'answer small', 'aria-live': 'polite' });
  const labels = new Map(formats.find((one) => one.name === channel.format)?.fields.map((one) => [one.name, one.label]));
  const shown = Object.entries(channel.config).map(([name, value]) => h('span', {}, `${labels.get(name) ?? name}: `, h('code', {}, foreign(value))));
  const why = channel.asleep || (channel.enabled ? '' : channel.disabled_reason);
  const node = h('li', { 'data-channel': channel.id },
    lamp,
    h('div', {},
      h('h2', {}, foreign(channel.name), ' ', h('span', { class: 'quiet small' }, foreign(channel.label))),
      h('p', { class: 'small' }, routeText(channel)),
      h('p', { class: 'small quiet config' }, ...shown),
      why ? h('p', { class: 'small look' }, foreign(why)) : null,
      channel.fixed ? h('p', { class: 'note' }, 'From the server\u2019s settings (WATCHKEEPER_WEBHOOK_URL); changed there.') : null,
      said));
  const tester = /** @type {HTMLButtonElement} */ (button('Send test', () => void test(channel, said, tester)));
  const acts = [tester];
  if (!channel.fixed) {
    acts.push(/** @type {HTMLButtonElement} */ (button('Change', () => edit(channel, node))));
    acts.push(/** @type {HTMLButtonElement} */ (button(channel.enabled ? 'Switch off' : 'Switch on', () => void trying(() => enable(channel)))));
    acts.push(/** @type {HTMLButtonElement} */ (deleteButton(() => void trying(() => forget(channel)))));
  }
  node.append(h('div', { class: 'do' }, ...acts));
  return node;
}

/** @param {Channel} channel */
async function enable(channel) {
  const changed = /** @type {Channel} */ (await send('PATCH', path(channel.id), { enabled: !channel.enabled }));
  toast(changed.enabled ? `${changed.name} is on.` : `${changed.name} is off: nothing is sent there.`);
  await load();
}

/** @param {Channel} channel */
async function forget(channel) {
  await send('DELETE', path(channel.id));
  toast(`${channel.name} is deleted.`);
  await load();
}

/** @param {Channel} channel @param {HTMLElement} node */
function edit(channel, node) {
  const form = channelForm(formats, channel, (saved) => {
    if (saved) {
      toast('Saved.');
      void load();
    } else {
      node.replaceWith(item(channel));
    }
  });
  node.classList.add('open');
  node.replaceChildren(h('div', {}, h('h2', {}, foreign(channel.name)), form));
  form.querySelector('input')?.focus();
}

function add() {
  const host = $('#new-channel');
  const form = channelForm(formats, null, (saved) => {
    host.replaceChildren();
    if (saved) {
      toast('Added. Send a test to see whether it arrives.');
      void load();
    }
    $('#add button').focus();
  });
  host.replaceChildren(form);
  form.querySelector('select')?.focus();
}

function paint() {
  const on = channels.filter((one) => one.enabled && !one.asleep).length;
  say($('#count'), channels.length ? `${plural(channels.length, 'channel')}, ${on} on` : 'No channel yet');
  const none = h('li', { class: 'open' }, h('p', { class: 'quiet' }, 'Alerts are shown here and sent nowhere. Add a channel to hear of them elsewhere: Slack, Discord, Teams, ntfy, e-mail and more.'));
  $('#channels').replaceChildren(...(channels.length ? channels.map(item) : [none]));
}

async function loadForms() {
  formats = /** @type {{formats: Format[]}} */ (await get('formats')).formats;
  $('#add').replaceChildren(button('Add a channel', add, { class: 'btn' }));
}

async function load() {
  try {
    if (!formats.length) await loadForms();
    channels = /** @type {{channels: Channel[]}} */ (await get('channels')).channels;
    paint();
  } catch (problem) {
    $('#channels').replaceChildren(h('li', { class: 'open' }, problemPanel(problem, load)));
  }
}

start();
title('Settings');
void load();
void loadSilences();
void loadRules();
void loadJudges();
