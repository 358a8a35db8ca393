// @ts-check
/* Small hands for the page. All text goes in as text: there is no way here to put in markup. */

const SVG = 'http://www.w3.org/2000/svg';

/** @typedef {Node | string | null | undefined | false} Kid */
/** @typedef {Record<string, string | number | boolean | null | undefined>} Attributes */

/**
 * The first element that fits, which must be there.
 * @param {string} query @param {ParentNode} [root] @returns {HTMLElement}
 */
export function $(query, root = document) {
  const found = root.querySelector(query);
  if (!(found instanceof HTMLElement)) throw new Error(`no ${query} on this page`);
  return found;
}

/** @param {string} query @param {ParentNode} [root] @returns {HTMLElement[]} */
export function $$(query, root = document) {
  return /** @type {HTMLElement[]} */ ([...root.querySelectorAll(query)]);
}

/** @param {Element} node @param {Attributes} attributes */
function dress(node, attributes) {
  for (const [name, value] of Object.entries(attributes)) {
    if (value === null || value === undefined || value === false) continue;
    node.setAttribute(name, value === true ? '' : String(value));
  }
}

/**
 * An HTML element. `attributes` never hold `style`: the security policy forbids it.
 * @param {string} tag @param {Attributes} [attributes] @param {...Kid} kids @returns {HTMLElement}
 */
export function h(tag, attributes = {}, ...kids) {
  const node = document.createElement(tag);
  dress(node, attributes);
  for (const kid of kids) if (kid !== null && kid !== undefined && kid !== false) node.append(kid);
  return node;
}

/**
 * An SVG element.
 * @param {string} tag @param {Attributes} [attributes] @param {...Kid} kids @returns {SVGElement}
 */
export function s(tag, attributes = {}, ...kids) {
  const node = document.createElementNS(SVG, tag);
  dress(node, attributes);
  for (const kid of kids) if (kid !== null && kid !== undefined && kid !== false) node.append(kid);
  return node;
}

/**
 * A button that does something.
 * @param {string} text @param {() => void} act @param {Attributes} [attributes]
 */
export function button(text, act, attributes = {}) {
  const node = h('button', { type: 'button', ...attributes }, text);
  node.addEventListener('click', act);
  return node;
}

/** Each state has its own outline, so that colour is never needed. @type {Record<string, string>} */
const GLYPHS = {
  ok: 'M10 2a8 8 0 1 0 0 16 8 8 0 0 0 0-16ZM5.6 10.2l1.5-1.5 2 2 4-4.2 1.5 1.5-5.5 5.7Z',
  look: 'M10 1.6 19 18H1Zm-1.1 5.6v5.2h2.2V7.2Zm0 6.6V16h2.2v-2.2Z',
  act: 'M6.3 1h7.4L19 6.3v7.4L13.7 19H6.3L1 13.7V6.3Zm2.5 3.6v7h2.4v-7Zm0 8.6v2.4h2.4v-2.4Z',
  lost: 'M10 .8 19.200 10 10 19.200.8 10ZM10 4.200 4.200 10 10 15.800 15.800 10ZM8 8h4v4H8Z',
  done: 'M3 3h14v14H3Zm2 2v10h10V5Z',
  info: 'M10 2a8 8 0 1 0 0 16 8 8 0 0 0 0-16ZM8.900 8.700v6h2.200v-6Zm0-3.500v2.200h2.200V5.200Z',
  fail: 'M4.500 2.500 10 8l5.500-5.500 2 2L12 10l5.500 5.500-2 2L10 12l-5.500 5.500-2-2L8 10 2.500 4.500Z',
  asleep: 'M10 2a8 8 0 1 0 0 16 8 8 0 0 0 0-16Zm0 2a6 6 0 1 1 0 12 6 6 0 0 1 0-12ZM6.500 9h7v2h-7Z',
};

/** @param {string} kind @returns {SVGElement} */
export function glyph(kind) {
  const path = s('path', { d: GLYPHS[kind] ?? GLYPHS.info, 'fill-rule': 'evenodd' });
  return s('svg', { viewBox: '0 0 20 20', class: `glyph ${kind}`, 'aria-hidden': 'true' }, path);
}

/** A glyph with its word. @param {string} kind @param {string} text */
export function tag(kind, text) {
  return h('span', { class: `tag ${kind}` }, glyph(kind), text);
}

/** Show which button of a group is pressed. @param {HTMLElement} group @param {Element} pressed */
export function press(group, pressed) {
  for (const one of $$('button', group)) one.setAttribute('aria-pressed', String(one === pressed));
}

/**
 * Wire a group of buttons that exclude each other.
 * @param {HTMLElement} group @param {(data: DOMStringMap) => void} chosen
 */
export function choice(group, chosen) {
  for (const one of $$('button', group)) {
    one.addEventListener('click', () => {
      press(group, one);
      chosen(one.dataset);
    });
  }
}

/** Bidi controls of a foreign text must not reorder ours. @param {string} text */
export function foreign(text) {
  return h('bdi', {}, text);
}

/**
 * Rebuild what is inside `host` without taking the keyboard's place away: the same link, or what
 * now stands at the same place, is focused again.
 * @param {HTMLElement} host @param {() => void} rebuild
 */
export function keepFocus(host, rebuild) {
  const all = () => $$('a, button, input, select, summary, [tabindex]', host);
  const before = document.activeElement;
  const index = before instanceof HTMLElement ? all().indexOf(before) : -1;
  rebuild();
  if (index < 0) return;
  const href = before?.getAttribute('href');
  const now = all();
  (now.find((one) => href && one.getAttribute('href') === href) ?? now[index])?.focus({ preventScroll: true });
}

/** Change a node's text only where it differs, so that screen readers are not called for nothing.
 * @param {HTMLElement} node @param {string} text */
export function say(node, text) {
  if (node.textContent !== text) node.textContent = text;
}
