import assert from 'node:assert/strict';
import { test } from 'node:test';
import { ago, briefly, clock, count, day, duration, isShare, money, num, percent, plural, short } from '../../../web/static/js/format.js';

test('numbers have about three figures and a true minus', () => {
  assert.equal(num(0.0004), '4.0e\u22124');
  assert.equal(num(3.0912), '3.09');
  assert.equal(num(44.31), '44.3');
  assert.equal(num(952.4), '952');
  assert.equal(num(-2.05), '\u22122.05');
  assert.equal(num(0), '0.00');
  assert.equal(num(12345.6), '12,346');
});

test('what is not a number is never shown as one', () => {
  assert.equal(num(NaN), '-');
  assert.equal(num(null), '-');
  assert.equal(num(Infinity), '\u221e');
  assert.equal(money(null), '-');
  assert.equal(percent(undefined), '-');
  assert.equal(duration(NaN), '-');
  assert.equal(clock(null, 'UTC', 0), '-');
});

test('sizes, money, counts', () => {
  assert.equal(short(12_100), '12.1 k');
  assert.equal(short(1_100_000), '1.1 M');
  assert.equal(short(308_000), '308 k');
  assert.equal(money(16.42), '$16.42');
  assert.equal(money(1234.5, 'EUR'), '\u20ac1,235');
  assert.equal(money(5, 'SEK'), '5.00 SEK');
  assert.equal(count(20344), '20,344');
  assert.equal(plural(1, 'word'), '1 word');
  assert.equal(plural(0, 'word'), '0 words');
});

test('durations step from seconds to days', () => {
  assert.equal(duration(0.4), '0.4 s');
  assert.equal(duration(48), '48 s');
  assert.equal(duration(244), '4 min 4 s');
  assert.equal(duration(28_140), '7 h 49 min');
  assert.equal(duration(86_400 * 3 + 7200), '3 d 2 h');
  assert.equal(ago(0.2), 'just now');
  assert.equal(ago(48.9), '48 s ago');
});

test('instants are told in the zone of the run', () => {
  const at = Date.UTC(2026, 10, 26, 13, 47) / 1000;
  assert.equal(clock(at, 'Europe/Amsterdam', at + 60), '14:47');
  assert.equal(clock(at, 'Europe/Amsterdam', at + 2 * 86400), 'Thu 14:47');
  assert.equal(clock(at, 'Europe/Amsterdam', at + 20 * 86400), '26 Nov');
  assert.equal(clock(at, 'No/Such_Zone', at), '13:47');
  assert.equal(day(Date.UTC(2026, 10, 26, 23, 30) / 1000, 'Europe/Amsterdam'), '2026-11-27');
});

test('shares are told by name where the unit does not say', () => {
  assert.ok(isShare('top1', '') && isShare('repeat_share', '') && isShare('x', 'share of rows'));
  assert.ok(!isShare('loss', 'nat/token') && !isShare('entropy', '') && !isShare('top1', 'bits'));
});

test('short times', () => {
  assert.deepEqual([244, 1.5, 0.26, 0.0055, 6.2e-6, 0].map(briefly), ['244 s', '1.50 s', '260 ms', '5.5 ms', '6 \u00b5s', '0 s']);
});
