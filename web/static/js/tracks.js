// @ts-check
/* Lines of points: taken from the server's answer, joined with what comes live, made ready to draw.
   Pure: nothing here touches the page. */

/** @typedef {import('./types').Track} Track */
/** @typedef {import('./types').PointSeries} PointSeries */
/** @typedef {import('./types').Cell} Cell */

/** More points than this in one track ask for a coarser answer from the server. */
export const MAX_POINTS = 2000;

/** @param {Cell} cell @returns {number} NaN where not finite or absent */
export function value(cell) {
  return typeof cell === 'number' && Number.isFinite(cell) ? cell : NaN;
}

/** @param {PointSeries} series @returns {Track} */
export function toTrack(series) {
  return {
    key: series.key,
    attempt: series.attempt,
    ghost: series.ghost,
    raw: series.resolution === 'raw',
    steps: [...series.steps],
    times: [...series.times],
    values: series.values.map(value),
    low: series.low ? series.low.map(value) : null,
    high: series.high ? series.high.map(value) : null,
    broken: [...series.non_finite],
    mixed: [...series.mixed],
  };
}

/**
 * Put live rows into a track: newer at the end, a repeated step replaced, an older one sorted in.
 * @param {Track} track @param {[number, number, Cell][]} rows
 */
export function append(track, rows) {
  for (const [step, time, cell] of rows) {
    const place = insertion(track.steps, step);
    const replace = track.steps[place] === step ? 1 : 0;
    track.steps.splice(place, replace, step);
    track.times.splice(place, replace, time);
    track.values.splice(place, replace, value(cell));
    if (track.low) track.low.splice(place, replace, value(cell));
    if (track.high) track.high.splice(place, replace, value(cell));
    if (typeof cell === 'string' && !track.broken.includes(step)) track.broken.push(step);
  }
}

/** Where a step belongs among rising steps. @param {number[]} steps @param {number} step */
export function insertion(steps, step) {
  let low = 0;
  let high = steps.length;
  while (low < high) {
    const middle = (low + high) >> 1;
    if (/** @type {number} */ (steps[middle]) < step) low = middle + 1;
    else high = middle;
  }
  return low;
}

/** Index of the nearest entry, or -1 of none. @param {number[]} steps @param {number} step */
export function nearest(steps, step) {
  if (!steps.length) return -1;
  const after = Math.min(insertion(steps, step), steps.length - 1);
  const before = Math.max(0, after - 1);
  const far = (/** @type {number} */ i) => Math.abs(/** @type {number} */ (steps[i]) - step);
  return far(before) <= far(after) ? before : after;
}

/**
 * Exponential mean, corrected for its start; what is not a number stays one and is not counted.
 * @param {number[]} values @param {number} weight of the past, 0 to 1
 */
export function ema(values, weight) {
  if (!weight) return values;
  let mean = 0;
  let share = 0;
  return values.map((one) => {
    if (Number.isNaN(one)) return NaN;
    mean = weight * mean + (1 - weight) * one;
    share = weight * share + (1 - weight);
    return mean / share;
  });
}

/**
 * Break the line where a value is missing or the pause is far longer than usual.
 * @param {number[]} xs rising @param {number[]} ys @returns {{x: number[], y: (number | null)[]}}
 */
export function withGaps(xs, ys) {
  const pause = usual(xs) * 5;
  /** @type {number[]} */
  const x = [];
  /** @type {(number | null)[]} */
  const y = [];
  xs.forEach((at, i) => {
    const last = x[x.length - 1];
    if (last !== undefined && pause > 0 && at - last > pause) {
      x.push(at);
      y.push(null);
    }
    const one = /** @type {number} */ (ys[i]);
    x.push(at);
    y.push(Number.isNaN(one) ? null : one);
  });
  return { x, y };
}

/** The upper usual distance between neighbours (90th percentile), 0 of less than three.
 * @param {number[]} xs */
export function usual(xs) {
  if (xs.length < 3) return 0;
  const gaps = xs.slice(1).map((at, i) => at - /** @type {number} */ (xs[i])).sort((a, b) => a - b);
  return /** @type {number} */ (gaps[Math.floor((gaps.length - 1) * 0.9)]);
}

/**
 * Value of b at a, straight between known pairs, held beyond the ends.
 * @param {number[]} as rising @param {number[]} bs @param {number} a
 */
export function between(as, bs, a) {
  const after = insertion(as, a);
  if (after === 0) return bs[0] ?? a;
  if (after >= as.length) return bs[bs.length - 1] ?? a;
  const [a0, a1, b0, b1] = /** @type {[number, number, number, number]} */ ([as[after - 1], as[after], bs[after - 1], bs[after]]);
  return b0 + ((b1 - b0) * (a - a0)) / (a1 - a0 || 1);
}

/** Last value that is a number, with its step. @param {Track | undefined} track @param {number} [before] step
 * @returns {{step: number, time: number, value: number} | null} */
export function last(track, before = Infinity) {
  if (!track) return null;
  for (let i = track.steps.length - 1; i >= 0; i--) {
    const [step, time, one] = /** @type {[number, number, number]} */ ([track.steps[i], track.times[i], track.values[i]]);
    if (step <= before && !Number.isNaN(one)) return { step, time, value: one };
  }
  return null;
}

/** Lowest and highest of the finite values within steps, envelope included.
 * @param {Track} track @param {number} from @param {number} to @param {boolean} positive only
 * @returns {[number, number, number]} low, high, how many were not positive */
export function extent(track, from, to, positive) {
  let [low, high, under] = [Infinity, -Infinity, 0];
  track.steps.forEach((step, i) => {
    if (step < from || step > to) return;
    for (const one of [track.values[i], track.low?.[i], track.high?.[i]]) {
      if (one === undefined || Number.isNaN(one)) continue;
      if (positive && one <= 0) {
        if (one === track.values[i]) under++;
        continue;
      }
      low = Math.min(low, one);
      high = Math.max(high, one);
    }
  });
  return [low, high, under];
}
