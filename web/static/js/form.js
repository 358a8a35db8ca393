// @ts-check
/* Labelled controls and the place where a form says why it was refused. */

import { foreign, h } from './dom.js';
import { Problem } from './api.js';

let forms = 0;

/** Ids of controls are told apart by form. */
export function nextForm() {
  forms += 1;
}

/**
 * A labelled control with its help below.
 * @param {string} label @param {HTMLElement} control @param {string} [help] @param {...(Node | null)} more
 */
export function field(label, control, help = '', ...more) {
  const id = `f${forms}-${control.getAttribute('name')}`;
  control.id = id;
  const note = help ? h('span', { class: 'note', id: `${id}-help` }, help) : null;
  if (note) control.setAttribute('aria-describedby', note.id);
  return h('div', { class: 'field' }, h('label', { for: id }, label), control, note, ...more);
}

/** @param {string} name @param {Record<string, string>} choices @param {string} chosen */
export function select(name, choices, chosen) {
  const node = h('select', { name });
  for (const [value, text] of Object.entries(choices)) node.append(h('option', { value, selected: value === chosen }, text));
  return node;
}

/** A banner that is hidden until something was refused. */
export function refusal() {
  const node = h('p', { class: 'banner act', role: 'alert', hidden: true });
  return {
    node,
    clear() {
      node.hidden = true;
    },
    /** @param {unknown} problem */
    show(problem) {
      node.hidden = false;
      const hint = problem instanceof Problem && problem.hint ? ` ${problem.hint}` : '';
      node.replaceChildren(foreign(problem instanceof Error ? problem.message + hint : 'That did not work.'));
    },
  };
}

/**
 * What a form does when it is sent; a refusal is shown in its banner.
 * @param {HTMLFormElement} form @param {ReturnType<typeof refusal>} refused @param {() => Promise<void>} act
 */
export function whenSent(form, refused, act) {
  form.addEventListener('submit', (event) => {
    event.preventDefault();
    refused.clear();
    act().catch((problem) => refused.show(problem));
  });
}
