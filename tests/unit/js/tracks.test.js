import assert from 'node:assert/strict';
import { test } from 'node:test';
import { logTicks, range, tickNames, ticks } from '../../../web/static/js/axis.js';
import { append, between, ema, extent, last, nearest, toTrack, withGaps } from '../../../web/static/js/tracks.js';

const answer = { key: 'loss/train', attempt: 'a', ghost: false, resolution: 'raw', steps: [1, 2, 3, 4], times: [1, 2, 3, 4], values: [2, 'nan', 'inf', 1], low: null, high: null, non_finite: [2, 3], total_points: 4 };

test('a value that is not finite is a gap and a mark, never a number', () => {
  const track = toTrack(answer);
  assert.deepEqual(track.broken, [2, 3]);
  assert.deepEqual(withGaps(track.steps, track.values).y, [2, null, null, 1]);
  assert.equal(last(track).value, 1);
  assert.equal(last(track, 3).step, 1);
});

test('live rows: new ones at the end, repeated ones replaced, late ones sorted in', () => {
  const track = toTrack(answer);
  append(track, [[5, 5, 0.5], [4, 4, 0.9], [0, 0, 3], [6, 6, 'nan']]);
  assert.deepEqual(track.steps, [0, 1, 2, 3, 4, 5, 6]);
  assert.equal(track.values[4], 0.9);
  assert.ok(track.broken.includes(6));
  append(track, [[5, 5, 0.5]]);
  assert.equal(track.steps.length, 7);
});

test('a pause far longer than usual is not bridged', () => {
  const { x, y } = withGaps([0, 1, 2, 3, 40, 41, 42], [1, 1, 1, 1, 2, 2, 2]);
  assert.deepEqual(x.slice(3, 6), [3, 40, 40]);
  assert.deepEqual(y.slice(3, 6), [1, null, 2]);
  assert.deepEqual(withGaps([0, 50, 100], [1, 2, 3]).y, [1, 2, 3]);
});

test('the mean starts at the first value and steps over what is not a number', () => {
  const mean = ema([4, NaN, 4, 4], 0.9);
  assert.ok(Number.isNaN(mean[1]));
  assert.ok(Math.abs(mean[3] - 4) < 1e-12);
  assert.deepEqual(ema([1, 2], 0), [1, 2]);
});

test('values at or below zero are counted, not dropped, on a log axis', () => {
  const track = { ...toTrack(answer), values: [1, 0, -1, NaN] };
  assert.deepEqual(extent(track, 0, 10, true), [1, 1, 2]);
  assert.deepEqual(extent(track, 0, 10, false), [-1, 1, 0]);
});

test('places between known pairs', () => {
  assert.equal(between([0, 10], [100, 200], 5), 150);
  assert.equal(between([0, 10], [100, 200], 50), 200);
  assert.equal(nearest([0, 10, 20], 14), 1);
  assert.equal(nearest([], 3), -1);
});

test('ticks are round, few, and inside', () => {
  assert.deepEqual(ticks(0, 952, 4), [0, 250, 500, 750]);
  assert.deepEqual(logTicks(0.8, 12), [1, 2, 5, 10]);
  assert.deepEqual(tickNames([0, 0.5, 1], false), ['0', '0.5', '1.0']);
  const [low, high] = range(2, 2, { log: false });
  assert.ok(low < 2 && high > 2);
  assert.ok(range(Infinity, -Infinity, { log: false }).every(Number.isFinite));
});
