// @ts-check
/* One prompt's two answers: text with its marks, token confidence, and the numbers under it. */

import { $, foreign, h, s, say } from './dom.js';
import { count, num } from './format.js';
import { meanP, pieces, shade, tokensOf, wordCount } from './tokens.js';

/** @typedef {import('./types').Pair} Pair */
/** @typedef {import('./types').AnswerOut} AnswerOut */

/**
 * One side of a pair. `name` says which sampling it is.
 * @param {Pair} pair @param {'left' | 'right'} where @param {'cut' | 'add'} mine @param {string} name
 */
export function side(pair, where, mine, name) {
  const answer = pair[where];
  const head = h('h3', {}, name, h('span', { class: 'note' }, where));
  if (!answer) return h('div', {}, head, h('p', { class: 'text quiet' }, 'No answer to this prompt in this sampling.'));
  const tokens = tokensOf(answer);
  const text = h('p', { class: 'text', tabindex: 0, 'aria-label': `${name}: ${answer.text || 'an empty answer'}`, role: 'group' }, ...textKids(answer, pair.diff, mine));
  if (!answer.text) text.append(h('span', { class: 'quiet' }, '(nothing: the first token ended it)'));
  wireTokens(text, tokens);
  return h('div', {}, head, text, profile(tokens), lowest(tokens), measures(answer, tokens));
}

/** @param {AnswerOut} answer @param {Pair['diff']} diff @param {'cut' | 'add'} mine */
function textKids(answer, diff, mine) {
  /** @type {(Node | string)[]} */
  const kids = [];
  /** @type {HTMLElement | null} */
  let run_ = null;
  const all = pieces(answer, diff, mine);
  for (const [i, piece] of all.entries()) {
    const ends = all[i + 1]?.token !== piece.token; // one number a token, at its end
    const token = piece.p === null ? h('span', {}, piece.text) : h('span', { class: `tok ${shade(piece.p)}`, 'data-token': piece.token, 'data-p': ends && piece.text.trim() ? piece.p.toFixed(2).replace(/^0/, '') : null }, piece.text);
    if (!piece.only) {
      run_ = null;
      kids.push(token);
    } else if (run_) run_.append(token);
    else {
      run_ = h(mine === 'cut' ? 'del' : 'ins', {}, token);
      kids.push(run_);
    }
  }
  return kids;
}

/** Pointer and arrow keys read single tokens. @param {HTMLElement} text @param {{text: string, p: number | null}[]} tokens */
function wireTokens(text, tokens) {
  let at = -1;
  const tell = (/** @type {number} */ i) => {
    const token = tokens[i];
    if (!token) return;
    at = i;
    say($('#conf-note'), `Token ${i + 1} of ${tokens.length}, \u201c${token.text}\u201d: confidence ${token.p === null ? 'not sent' : token.p.toFixed(3)}`);
  };
  text.addEventListener('pointerover', (event) => {
    const found = event.target instanceof Element ? event.target.closest('[data-token]') : null;
    if (found) tell(Number(found.getAttribute('data-token')));
  });
  text.addEventListener('keydown', (event) => {
    if (event.key === 'ArrowRight') tell(Math.min(tokens.length - 1, at + 1));
    else if (event.key === 'ArrowLeft') tell(Math.max(0, at - 1));
    else return;
    event.preventDefault();
  });
}

/** @param {{p: number | null}[]} tokens */
function profile(tokens) {
  const mean = meanP(tokens);
  if (mean === null) return h('p', { class: 'note' }, 'No token probabilities were sent.');
  const few = tokens.slice(0, 400);
  const svg = s('svg', { viewBox: `0 0 ${Math.max(52, few.length) * 7} 30`, width: Math.max(52, few.length) * 7, height: 30, class: 'prof', role: 'img', preserveAspectRatio: 'none', 'aria-label': `Confidence token by token, mean ${mean.toFixed(2)}` });
  few.forEach(({ p }, i) => svg.append(s('rect', { x: i * 7, y: 28 - (p ?? 0) * 26, width: 5, height: (p ?? 0) * 26 })));
  svg.append(s('path', { d: `M0 ${28 - mean * 26}H${few.length * 7}` }));
  return svg;
}

/** The same for screen readers. @param {{text: string, p: number | null}[]} tokens */
function lowest(tokens) {
  const known = tokens.filter((token) => token.p !== null && token.text.trim());
  const low = [...known].sort((a, b) => (a.p ?? 0) - (b.p ?? 0)).slice(0, 3);
  const mean = meanP(tokens);
  return h('p', { class: 'sr' }, mean === null ? 'No token probabilities.' : `Mean token confidence ${mean.toFixed(2)}. Least sure: ${low.map((token) => `${token.text.trim()} ${(token.p ?? 0).toFixed(2)}`).join(', ')}.`);
}

/** @param {AnswerOut} answer @param {{p: number | null}[]} tokens */
function measures(answer, tokens) {
  const mean = meanP(tokens) ?? answer.confidence ?? null;
  const first = tokens[0]?.p ?? null;
  const nll = typeof answer.reference_nll === 'number' ? num(answer.reference_nll) : answer.reference_nll ?? 'none given';
  /** @type {[string, string][]} */
  const rows = [['words', count(wordCount(answer.text))], ['confidence', mean === null ? '-' : mean.toFixed(2)], ['first token', first === null ? '-' : first.toFixed(2)], ['reference NLL', nll], ['stopped by', (answer.stop_reason || '-').replaceAll('_', ' ')]];
  return h('div', { class: 'measure' }, ...rows.map(([name, text]) => h('span', {}, name, h('b', {}, foreign(text)))));
}
