import assert from 'node:assert/strict';
import { test } from 'node:test';
import { fits } from '../../../web/static/js/patterns.js';
import { VITALS, read } from '../../../web/static/js/vitals.js';

const track = (values) => ({ key: 'k', attempt: 'a', ghost: false, raw: true, steps: values.map((_, i) => i * 50), times: values.map((_, i) => i), values, low: null, high: null, broken: [], mixed: [] });

test('the reference lies before the onset', () => {
  const vital = VITALS.find((one) => one.name === 'Held-out loss');
  const reading = read(vital, track([5, 3, 2, 2, 2.5, 3]), undefined, 150);
  assert.equal(reading.value, 3);
  assert.equal(reading.ref, 2);
  assert.equal(reading.refStep, 150);
  assert.ok(reading.low < 2 && reading.high > 3);
});

test('surer than right is confidence less accuracy', () => {
  const vital = VITALS.find((one) => one.name === 'Surer than right');
  const reading = read(vital, track([0.5, 0.7]), track([0.5, 0.4]), null);
  assert.ok(Math.abs(reading.value - 0.3) < 1e-12);
  assert.deepEqual(reading.good, [-0.03, 0.03]);
});

test('a line without a number has no reading; one that broke says so', () => {
  const vital = VITALS[0];
  assert.equal(read(vital, track([NaN]), undefined, null), null);
  const broken = { ...track([3, 2, NaN]), broken: [100] };
  assert.equal(read(vital, broken, undefined, null).broken, true);
});

test('patterns', () => {
  assert.ok(fits('loss/*', 'loss/train'));
  assert.ok(!fits('loss/*', 'xloss/train'));
  assert.ok(fits('a.b', 'a.b') && !fits('a.*', 'axb'));
});
