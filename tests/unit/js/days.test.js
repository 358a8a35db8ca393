import assert from 'node:assert/strict';
import { test } from 'node:test';

globalThis.document ??= { querySelector: () => null };
const { slots, stripText } = await import('../../../web/static/js/days.js');

const trends = {
  zone: 'UTC', alerts: [], sets: ['a'],
  points: ['s1', 's2', 's3', 's4'].map((sampling, i) => ({ sampling, weights_step: i, at: i })),
  days: [
    { day: '2026-11-25', samplings: ['s1'], shown: 's1' },
    { day: '2026-11-26', samplings: [], shown: null },
    { day: '2026-11-27', samplings: ['s2', 's3'], shown: 's3' },
    { day: '2026-11-28', samplings: ['s4'], shown: 's4' },
  ],
  prompts: [{ prompt_id: 'p', length: [40, 30, 20, 10], confidence: [] }],
};

test('a day shows its last sampling, and a missing day is a gap', () => {
  const all = slots(trends, 'p', 's1', 's4');
  assert.deepEqual(all.map((one) => one.value), [40, null, 20, 10]);
  assert.deepEqual(all.map((one) => one.side), ['left', '', '', 'right']);
  assert.deepEqual(all[2].more, ['s2']);
  assert.match(stripText(all), /1 day without answers$/);
});

test('what is picked is shown, though it is not the last of its day', () => {
  const all = slots(trends, 'p', 's2', 's3');
  assert.equal(all[2].side, 'both');
  assert.equal(slots(trends, 'p', 's1', 's2')[2].value, 30);
});

test('a prompt that was never asked has no bars', () => {
  assert.ok(slots(trends, 'other', '', '').every((one) => one.value === null));
});
