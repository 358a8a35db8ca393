// @ts-check
/* One prompt on all days: a bar a day, a gap where nothing was asked, left and right picked out. */

import { h, s } from './dom.js';
import { short } from './format.js';

/** @typedef {import('./types').AnswerTrends} AnswerTrends */
/** @typedef {{day: string, shown: string | null, more: string[], value: number | null, side: '' | 'left' | 'right' | 'both'}} Slot */

const HEIGHT = 80;
const BASE = 46;
const TALLEST = 30;
const MOST = 31;

/**
 * The days that fit, the last ones; each with the prompt's length in the sampling it shows.
 * @param {AnswerTrends} trends @param {string} prompt @param {string} left @param {string} right
 * @returns {Slot[]}
 */
export function slots(trends, prompt, left, right) {
  const place = new Map(trends.points.map((point, i) => [point.sampling, i]));
  const lengths = trends.prompts.find((one) => one.prompt_id === prompt)?.length ?? [];
  return trends.days.slice(-MOST).map((day) => {
    const isLeft = day.samplings.includes(left);
    const isRight = day.samplings.includes(right);
    const shown = isRight ? right : isLeft ? left : day.shown;
    const i = shown === null ? undefined : place.get(shown);
    const side = isLeft && isRight ? 'both' : isLeft ? 'left' : isRight ? 'right' : '';
    return { day: day.day, shown, more: day.samplings.filter((one) => one !== shown), value: i === undefined ? null : lengths[i] ?? null, side };
  });
}

/** The strip for people who hear it. @param {Slot[]} all */
export function stripText(all) {
  const gaps = all.filter((one) => one.shown === null).length;
  const told = all.filter((one) => one.value !== null).map((one) => `${one.day} ${one.value}`);
  return `Tokens of this answer by day: ${told.join(', ')}${gaps ? `; ${gaps} ${gaps === 1 ? 'day' : 'days'} without answers` : ''}`;
}

/**
 * @param {HTMLElement} host @param {Slot[]} all @param {string} zone
 * @param {(sampling: string) => void} pick
 */
export function paintStrip(host, all, zone, pick) {
  host.hidden = all.length < 2;
  if (host.hidden) return;
  const width = Math.max(240, host.clientWidth - 32);
  const left = width < 500 ? 0 : 56;
  const step = Math.min(58, (width - left) / all.length);
  const tallest = Math.max(6, ...all.map((one) => one.value ?? 0));
  const svg = s('svg', { viewBox: `0 0 ${width} ${HEIGHT}`, width, height: HEIGHT, role: 'img', 'aria-label': stripText(all) });
  if (left) svg.append(s('text', { x: 0, y: 14 }, 'tokens'));
  const wide = step > 30;
  for (const [i, one] of all.entries()) {
    const x = left + i * step;
    const middle = x + step / 2;
    if (one.value === null) svg.append(s('text', { x: middle, y: 42, 'text-anchor': 'middle' }, wide ? 'none' : '-'));
    else bar(svg, one, x, step, (one.value / tallest) * TALLEST, pick);
    if (wide || one.side || i % Math.ceil(30 / step) === 0) svg.append(s('text', { x: middle, y: 60, 'text-anchor': 'middle', class: one.side ? 'selname' : '' }, dayName(one.day, wide)));
    if (one.side && step > 14) svg.append(s('text', { x: middle, y: 73, 'text-anchor': 'middle', class: 'selname' }, sideName(one.side, step)));
  }
  const several = all.filter((one) => one.side && one.more.length);
  const others = several.flatMap((one) => one.more.map((sampling, n) => {
    const button = h('button', { type: 'button', class: 'quiet small' }, `${one.day}, another sampling (${n + 1})`);
    button.addEventListener('click', () => pick(sampling));
    return button;
  }));
  host.replaceChildren(svg, ...others);
  host.title = `Days in ${zone}`;
}

/** @param {SVGElement} svg @param {Slot} one @param {number} x @param {number} step @param {number} height @param {(sampling: string) => void} pick */
function bar(svg, one, x, step, height, pick) {
  const rect = s('rect', { x: x + 1, y: BASE - Math.max(1, height), width: Math.max(1, step - 2), height: Math.max(1, height), class: `day${one.side ? ' sel' : ''}` });
  rect.addEventListener('click', () => { if (one.shown) pick(one.shown); });
  svg.append(rect);
  const told = short(one.value).replace(' ', '');
  if (one.side && step > 8 * told.length) svg.append(s('text', { x: x + step / 2, y: BASE - 4 - height, 'text-anchor': 'middle' }, told));
}

/** In full where there is room. @param {string} side @param {number} step */
function sideName(side, step) {
  return step > 34 ? side : side.charAt(0).toUpperCase();
}

/** @param {string} day YYYY-MM-DD @param {boolean} wide */
function dayName(day, wide) {
  const date = new Date(`${day}T12:00:00Z`);
  const weekday = 'SMTWTFS'[date.getUTCDay()] ?? '';
  return wide ? `${weekday} ${date.getUTCDate()}` : String(date.getUTCDate());
}
