import assert from 'node:assert/strict';
import { test } from 'node:test';
import { meanP, median, pieces, shade, tokensOf, wordCount } from '../../../web/static/js/tokens.js';

const half = Math.log(0.5);

test('pieces join to the text, cut where the diff changes and where tokens end', () => {
  const answer = { text: 'the sky is blue', token_texts: ['the s', 'ky is', ' blue'], token_logprobs: [half, -0.01, 'nan'] };
  const diff = [['same', 'the '], ['cut', 'sea'], ['add', 'sky'], ['same', ' is blue']];
  const cut = pieces(answer, diff, 'add');
  assert.equal(cut.map((piece) => piece.text).join(''), answer.text);
  assert.deepEqual(cut.map((piece) => [piece.text, piece.only, piece.token]), [['the ', false, 0], ['s', true, 0], ['ky', true, 1], [' is', false, 1], [' blue', false, 2]]);
  assert.equal(cut[0].p, 0.5);
  assert.equal(cut.at(-1).p, null);
});

test('a diff or tokens that are of another text mark nothing', () => {
  const answer = { text: 'abc', token_texts: ['x', 'y'], token_logprobs: [half, half] };
  assert.deepEqual(pieces(answer, [['same', 'zzz']], 'cut'), [{ text: 'abc', only: false, token: -1, p: null }]);
});

test('a cut answer keeps the tokens of what is left', () => {
  const tokens = tokensOf({ text: 'abcd', token_texts: ['abc', 'def'], token_logprobs: [half, half] });
  assert.deepEqual(tokens.map((token) => token.text), ['abc', 'd']);
});

test('empty tokens and an empty answer end', () => {
  assert.deepEqual(pieces({ text: '', token_texts: [''], token_logprobs: [half] }, [], 'cut'), []);
  const answer = { text: 'ab', token_texts: ['', 'a', '', 'b'], token_logprobs: [half, half, half, half] };
  assert.equal(pieces(answer, [['same', 'ab']], 'cut').map((piece) => piece.text).join(''), 'ab');
});

test('shades, means, words', () => {
  assert.deepEqual([0.1, 0.5, 0.8, 0.95].map(shade), ['q1', 'q2', 'q3', 'q4']);
  assert.equal(meanP([{ p: null }, { p: 0.5 }]), 0.5);
  assert.equal(meanP([]), null);
  assert.equal(wordCount('  a b\nc '), 3);
  assert.equal(median([3, 1, 2]), 2);
});
