// @ts-check
/* Light, dark or as the system has it: the switch, its memory, and who wants to know. */

/** @type {(() => void)[]} */
const listeners = [];

/** Call `listener` whenever colours have changed. @param {() => void} listener */
export function onTheme(listener) {
  listeners.push(listener);
}

/** The colour a token stands for now. @param {string} name without its two dashes */
export function token(name) {
  return getComputedStyle(document.documentElement).getPropertyValue(`--${name}`).trim();
}

/** Wire the switch in the page's head. @param {HTMLSelectElement} select */
export function wireTheme(select) {
  select.value = document.documentElement.dataset.theme || 'auto';
  select.addEventListener('change', () => {
    if (select.value === 'auto') delete document.documentElement.dataset.theme;
    else document.documentElement.dataset.theme = select.value;
    try {
      localStorage.setItem('theme', select.value);
    } catch {
      /* private mode: it holds for this page only */
    }
    for (const listener of listeners) listener();
  });
  matchMedia('(prefers-color-scheme: dark)').addEventListener('change', () => {
    for (const listener of listeners) listener();
  });
}
