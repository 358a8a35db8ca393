// @ts-check
/* A word-sized line, with its onset where there is one. */

import { s } from './dom.js';
import { value } from './tracks.js';

/**
 * @param {number[]} steps @param {import('./types').Cell[]} cells
 * @param {{width?: number, height?: number, onset?: number | null, kind?: string, say?: string}} [how]
 */
export function spark(steps, cells, { width = 150, height = 34, onset = null, kind = 'act', say = '' } = {}) {
  const values = cells.map(value);
  const finite = values.filter((one) => !Number.isNaN(one));
  const [low, high] = [Math.min(...finite), Math.max(...finite)];
  const [first, final] = [steps[0] ?? 0, steps[steps.length - 1] ?? 1];
  const x = (/** @type {number} */ step) => 2 + ((step - first) / (final - first || 1)) * (width - 8);
  const y = (/** @type {number} */ one) => height - 4 - ((one - low) / (high - low || 1)) * (height - 8);
  const svg = s('svg', { viewBox: `0 0 ${width} ${height}`, width, height, class: 'spark', role: 'img', 'aria-label': say });
  if (!finite.length) return svg;
  if (onset !== null && onset <= final) {
    const at = Math.max(2, x(onset));
    svg.append(s('rect', { x: at, y: 1, width: Math.max(0, width - 6 - at), height: height - 2, class: `band ${kind}` }));
    svg.append(s('path', { d: `M${at} 1V${height - 1}`, class: `onset ${kind}` }));
  }
  svg.append(s('path', { d: line(steps, values, x, y), class: 'line' }));
  const end = values.findLastIndex((one) => !Number.isNaN(one));
  svg.append(s('circle', { cx: x(steps[end] ?? final), cy: y(values[end] ?? low), r: 2.5 }));
  return svg;
}

/**
 * @param {number[]} steps @param {number[]} values
 * @param {(step: number) => number} x @param {(value: number) => number} y
 */
function line(steps, values, x, y) {
  let path = '';
  let pen = false;
  steps.forEach((step, i) => {
    const one = /** @type {number} */ (values[i]);
    if (Number.isNaN(one)) {
      pen = false;
      return;
    }
    path += `${pen ? 'L' : 'M'}${x(step).toFixed(1)} ${y(one).toFixed(1)}`;
    pen = true;
  });
  return path;
}
