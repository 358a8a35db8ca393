// @ts-check
/* The four numbers under the sentence. */

import { h } from './dom.js';
import { clock, count, duration, money, num, short } from './format.js';
import { now } from './api.js';
import { last } from './tracks.js';

/** @typedef {import('./types').RunDetail} RunDetail */
/** @typedef {import('./types').Alert} Alert */

/** @param {string} name @param {string} value @param {string} small @param {string | Node} note @param {string} [kind] */
function cell(name, value, small, note, kind = '') {
  return h('div', {}, h('dt', {}, name), h('dd', {}, value, small ? ' ' : null, small ? h('small', { class: kind }, small) : null), h('dd', { class: 'note' }, note));
}

/**
 * @param {RunDetail} run @param {Alert | undefined} alert the worst open one
 * @param {import('./store.js').Store} store
 */
export function fourNumbers(run, alert, store) {
  return [lossCell(store, alert), progressCell(run, alert), finishCell(run), costCell(run, alert)];
}

/** @param {import('./store.js').Store} store @param {Alert | undefined} alert */
function lossCell(store, alert) {
  const [key, name] = store.owned('loss/heldout')?.steps.length ? ['loss/heldout', 'Held-out loss'] : store.owned('loss/probe')?.steps.length ? ['loss/probe', 'Held-out loss (probe)'] : ['loss/train', 'Train loss'];
  const track = store.owned(/** @type {string} */ (key));
  const end = last(track);
  if (!track || !end) return cell(String(name), '-', '', 'no value yet');
  const finite = track.values.filter((one) => !Number.isNaN(one));
  const best = finite.reduce((low, one) => Math.min(low, one), Infinity);
  const at = track.steps[track.values.indexOf(best)] ?? 0;
  const before = alert && last(track, alert.onset_step);
  const change = before ? end.value - before.value : 0;
  const small = before && Math.abs(change) >= 0.005 ? `${change > 0 ? '\u25b2' : '\u25bc'} ${num(Math.abs(change))} since ${count(before.step)}` : '';
  const broken = track.broken.includes(track.steps.at(-1) ?? -1);
  return cell(String(name), broken ? 'not finite' : num(end.value), broken ? '' : small, `best ${num(best)} at step ${count(at)}${broken ? `; last number ${num(end.value)} at ${count(end.step)}` : ''}`, change > 0 ? 'act' : '');
}

/** @param {RunDetail} run @param {Alert | undefined} alert */
function progressCell(run, alert) {
  const step = run.last_step ?? 0;
  const plan = run.planned_steps;
  const note = h('span', {});
  if (plan) {
    const bad = alert ? Math.min(Math.max(0, step - alert.onset_step), step) : 0;
    const [fill, spoiled] = [h('i'), h('b')];
    fill.style.width = `${Math.min(100, ((step - bad) / plan) * 100)}%`;
    spoiled.style.left = fill.style.width;
    spoiled.style.width = `${Math.min(100, (bad / plan) * 100)}%`;
    note.append(h('span', { class: 'meter', 'aria-hidden': 'true' }, fill, bad ? spoiled : null));
  }
  const parts = [run.tokens_seen ? `${short(run.tokens_seen)} tokens` : '', alert ? `${count(step - alert.onset_step)} steps since onset` : '', plan ? '' : 'no plan given'];
  note.append(parts.filter(Boolean).join('; '));
  return cell('Progress', count(step), plan ? `of ${count(plan)} steps` : 'steps', note);
}

/** @param {RunDetail} run */
function finishCell(run) {
  const over = run.ended_at !== null;
  if (over) return cell('Ended', clock(run.ended_at, run.zone, now()), '', `${run.state}, after ${duration((run.ended_at ?? 0) - run.created_at)}`);
  if (!run.finish_at) return cell('Finish, if nothing changes', '-', '', run.planned_steps ? 'cannot tell yet' : 'asleep: needs planned_steps=...');
  return cell('Finish, if nothing changes', clock(run.finish_at, run.zone, now()), '', `in ${duration(run.finish_at - now())}`);
}

/** @param {RunDetail} run @param {Alert | undefined} alert */
function costCell(run, alert) {
  if (run.price_per_hour === null) {
    return cell(alert ? 'Since onset' : 'Running for', duration(alert ? (alert.hours_since_onset ?? 0) * 3600 : (run.ended_at ?? now()) - run.created_at), '', 'asleep: needs price_per_hour=...');
  }
  const rate = `at ${money(run.price_per_hour, run.currency)} an hour`;
  if (alert && alert.cost_so_far !== null) {
    return cell('Spent since onset', money(alert.cost_so_far, run.currency), duration((alert.hours_since_onset ?? 0) * 3600), `of ${money(run.cost_so_far, run.currency)} so far, ${rate}`);
  }
  return cell('Spent so far', money(run.cost_so_far, run.currency), '', rate);
}
