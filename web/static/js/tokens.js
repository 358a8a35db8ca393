// @ts-check
/* An answer's text cut into pieces that are all of one mark (same, only here) and one token. Pure. */

import { value } from './tracks.js';

/** @typedef {{text: string, only: boolean, token: number, p: number | null}} Piece `token` is -1 where unknown */

/**
 * The probabilities of an answer's tokens, where its token texts join to its text.
 * @param {import('./types').AnswerOut} answer @returns {{text: string, p: number | null}[]}
 */
export function tokensOf(answer) {
  const texts = answer.token_texts ?? [];
  const joined = texts.join('');
  if (!texts.length || !(joined === answer.text || joined.startsWith(answer.text))) return [];
  const out = [];
  let left = answer.text.length;
  for (const [i, text] of texts.entries()) {
    if (left <= 0) break;
    const logprob = value(answer.token_logprobs?.[i] ?? null);
    out.push({ text: text.slice(0, left), p: Number.isNaN(logprob) ? null : Math.exp(logprob) });
    left -= text.length;
  }
  return out;
}

/**
 * Pieces of one side: cut both where the diff changes and where a token ends.
 * @param {import('./types').AnswerOut} answer @param {import('./types').Pair['diff']} diff
 * @param {'cut' | 'add'} mine @returns {Piece[]}
 */
export function pieces(answer, diff, mine) {
  let parts = diff.filter(([mark]) => mark === 'same' || mark === mine).map(([mark, text]) => ({ text, only: mark === mine }));
  if (parts.map((part) => part.text).join('') !== answer.text) parts = [{ text: answer.text, only: false }];
  const tokens = tokensOf(answer);
  /** @type {Piece[]} */
  const out = [];
  let [token, used] = [0, 0];
  for (const part of parts) {
    let rest = part.text;
    while (rest) {
      const now = tokens[token];
      const length = now ? Math.min(rest.length, now.text.length - used) : rest.length;
      if (now && length === 0) {
        [token, used] = [token + 1, 0];
        continue;
      }
      out.push({ text: rest.slice(0, length), only: part.only, token: now ? token : -1, p: now?.p ?? null });
      rest = rest.slice(length);
      used += length;
      if (now && used >= now.text.length) [token, used] = [token + 1, 0];
    }
  }
  return out;
}

/** The shade of a probability: q1 (unsure) to q4. @param {number} p */
export function shade(p) {
  return p < 0.3 ? 'q1' : p < 0.6 ? 'q2' : p < 0.85 ? 'q3' : 'q4';
}

/** Mean of what is known, or null. @param {{p: number | null}[]} tokens */
export function meanP(tokens) {
  const known = tokens.map((token) => token.p).filter((p) => p !== null);
  return known.length ? known.reduce((sum, p) => sum + p, 0) / known.length : null;
}

/** Words of a text. @param {string} text */
export function wordCount(text) {
  return text.match(/\S+/g)?.length ?? 0;
}

/** Median of numbers, 0 of none. @param {number[]} list */
export function median(list) {
  const sorted = [...list].sort((a, b) => a - b);
  return sorted[sorted.length >> 1] ?? 0;
}
