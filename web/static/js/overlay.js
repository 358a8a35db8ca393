// @ts-check
/* What stands below the lines of a chart (bands: hatched until told, tinted after) and above them
   (names and values at the ends, marks of broken values, the cursor). */

import { s } from './dom.js';
import { num } from './format.js';
import { last } from './tracks.js';

/** @typedef {import('./types').Frame} Frame */
/** @typedef {import('./chart.js').Chart} Chart */

let serial = 0;

/** @param {SVGElement} svg @param {Frame} frame */
function size(svg, frame) {
  svg.setAttribute('viewBox', `0 0 ${frame.width} ${frame.height}`);
  svg.setAttribute('width', String(frame.width));
  svg.setAttribute('height', String(frame.height));
}

/** A hatch pattern and its name. @returns {{name: string, defs: SVGElement}} */
export function hatch() {
  serial += 1;
  const name = `hatch-${serial}`;
  const pattern = s('pattern', { id: name, width: 6, height: 6, patternUnits: 'userSpaceOnUse', patternTransform: 'rotate(45)' }, s('rect', { width: 2, height: 6, class: 'hatch' }));
  return { name, defs: s('defs', {}, pattern) };
}

/** @param {SVGElement} svg @param {Chart} chart @param {Frame} frame */
export function drawUnder(svg, chart, frame) {
  size(svg, frame);
  const { name, defs } = hatch();
  svg.replaceChildren(defs);
  const taken = { right: -1 };
  const mildFirst = [...chart.bands].sort((a, b) => Number(a.kind === 'act') - Number(b.kind === 'act') || b.from - a.from);
  for (const band of mildFirst) drawBand(svg, band, chart, frame, name);
  for (const band of mildFirst.reverse()) drawFlag(svg, band, chart, frame, taken);
  if (chart.spec.ref !== undefined) {
    const y = frame.y(chart.spec.ref);
    if (y !== null) svg.append(s('path', { d: `M${frame.left} ${y.toFixed(1)}H${frame.right}`, class: 'refline' }));
  }
}

/** @param {SVGElement} svg @param {import('./types').Band} band @param {Chart} chart @param {Frame} frame @param {string} pattern */
function drawBand(svg, band, chart, frame, pattern) {
  if (band.to < frame.from || band.from > frame.to) return;
  const clamp = (/** @type {number} */ step) => Math.max(frame.left, Math.min(frame.right, frame.x(step)));
  const [begun, told, end] = [clamp(band.from), clamp(band.told), clamp(band.to)];
  const { top, bottom } = frame;
  const tall = { y: top, height: bottom - top };
  if (!chart.spec.small) svg.append(s('rect', { x: told, width: Math.max(0, end - told), ...tall, class: `band ${band.kind}` }));
  svg.append(s('rect', { x: begun, width: Math.max(0, told - begun), ...tall, fill: `url(#${pattern})`, class: `band-wait ${band.kind}` }));
  if (band.from >= frame.from) svg.append(s('path', { d: `M${begun} ${top - 4}V${bottom}`, class: `onset ${band.kind}` }));
  if (told - begun > 2) svg.append(s('path', { d: `M${told} ${top - 4}V${bottom}`, class: `told ${band.kind}` }));
}

/**
 * @param {SVGElement} svg @param {import('./types').Band} band @param {Chart} chart @param {Frame} frame
 * @param {{right: number}} taken how far flags reach so far
 */
function drawFlag(svg, band, chart, frame, taken) {
  if (chart.spec.small || band.to < frame.from || band.from > frame.to) return;
  const begun = Math.max(frame.left, frame.x(band.from));
  const { top } = frame;
  const words = `${frame.width < 370 ? '' : `${band.name}: `}since ${band.from}, told ${band.told}`;
  const wide = words.length * 6.6;
  const x = Math.max(4, Math.min(begun + 9, frame.width - 4 - wide));
  const flag = s('g', { class: `flag ${band.kind}` }, s('path', { d: `M${begun} ${top - 4}h6l-6 5z` }));
  if (x > taken.right) {
    flag.append(s('text', { x, y: top - 8 }, words));
    taken.right = x + wide + 8;
  }
  svg.append(flag);
}

/** @param {SVGElement} svg @param {Chart} chart @param {Frame} frame @param {number} under values not above zero on a log axis */
export function drawOver(svg, chart, frame, under) {
  size(svg, frame);
  svg.replaceChildren();
  drawBroken(svg, chart, frame);
  if (chart.spec.names !== false && !chart.spec.small) drawEnds(svg, chart, frame);
  if (under) svg.append(s('text', { x: frame.left + 4, y: frame.bottom - 4, class: 'reflabel' }, `\u25bd ${under} values \u2264 0, not on a log axis`));
  svg.append(s('g', { class: 'cursor', visibility: 'hidden' }, s('path', { d: `M0 ${frame.top}V${frame.bottom}` })));
  svg.append(s('rect', { class: 'chosen', y: frame.top, height: frame.bottom - frame.top, width: 0, fill: 'currentColor', 'fill-opacity': 0.12 }));
}

/** Marks at the upper edge where a value was not finite. @param {SVGElement} svg @param {Chart} chart @param {Frame} frame */
function drawBroken(svg, chart, frame) {
  const steps = new Set(chart.lines.filter((line) => !line.track.ghost).flatMap((line) => line.track.broken));
  const inside = [...steps].filter((step) => step >= frame.from && step <= frame.to).sort((a, b) => a - b);
  let reached = -Infinity;
  for (const step of inside) {
    const x = frame.x(step);
    if (x - reached < 5) continue;
    reached = x;
    svg.append(s('path', { d: `M${x - 4} ${frame.top}h8l-4 7z`, class: 'broken' }));
  }
  const first = inside[0];
  if (first === undefined || chart.spec.small) return;
  const end = frame.x(first) > frame.right - 110;
  svg.append(s('text', { x: frame.x(first) + (end ? -8 : 8), y: frame.top + 9, class: 'broken', 'text-anchor': end ? 'end' : 'start' }, `not finite since ${first}`));
}

/** Names and values at the ends of the lines, moved apart where they would touch.
 * @param {SVGElement} svg @param {Chart} chart @param {Frame} frame */
function drawEnds(svg, chart, frame) {
  const tall = 29;
  const ends = ownEnds(chart, frame).sort((a, b) => a.y - b.y);
  ends.forEach((end, i) => {
    const above = ends[i - 1];
    if (above && end.y - above.y < tall) end.y = above.y + tall;
  });
  const excess = (ends.at(-1)?.y ?? 0) - (frame.bottom - 17);
  for (let i = ends.length - 1, over = excess; i >= 0 && over > 0; i--) {
    const end = /** @type {typeof ends[0]} */ (ends[i]);
    end.y -= over;
    const above = ends[i - 1];
    over = above ? Math.max(0, above.y + tall - end.y) : 0;
  }
  for (const end of ends) drawEnd(svg, end, frame);
}

/** @param {Chart} chart @param {Frame} frame */
function ownEnds(chart, frame) {
  const ends = [];
  for (const spec of chart.spec.lines) {
    const parts = chart.lines.filter((line) => line.spec === spec && !line.track.ghost);
    const found = parts.map((line) => last({ ...line.track, values: line.shown }, frame.to)).filter((one) => one !== null && one.step >= frame.from);
    const end = found.sort((a, b) => (b?.step ?? 0) - (a?.step ?? 0))[0];
    const y = end && frame.y(end.value);
    if (!end || y === null || y === undefined) continue;
    const x = Math.min(frame.right, frame.x(end.step));
    ends.push({ spec, x, y, at: y, text: (spec.format ?? num)(end.value), stale: chart.board.stale });
  }
  return ends;
}

/** @param {SVGElement} svg @param {ReturnType<typeof ownEnds>[0]} end @param {Frame} frame */
function drawEnd(svg, end, frame) {
  const { spec } = end;
  svg.append(s('circle', { cx: end.x, cy: end.at, r: end.stale ? 3 : 2.5, class: end.stale ? 'hollow' : `c-${spec.colour}` }));
  if (frame.right - end.x > 12) svg.append(s('path', { d: `M${end.x + 5} ${end.at}L${frame.right + 3} ${end.y}`, class: 'leader' }));
  const name = s('text', { x: frame.right + 8, y: end.y + 4, class: `endname c-${spec.colour}` }, cut(spec.name));
  if (cut(spec.name) !== spec.name) name.append(s('title', {}, spec.name));
  svg.append(name);
  svg.append(s('text', { x: frame.right + 8, y: end.y + 18, class: 'endvalue', 'data-key': spec.key, 'data-rest': end.text }, end.text));
}

/** @param {string} name */
function cut(name) {
  return name.length > 14 ? `${name.slice(0, 13)}\u2026` : name;
}
