// @ts-check
/* The chart library is large: it is fetched early, and run only when the first lines stand, which
   are drawn without it. */

/** @type {(() => void)[] | null} null: not asked for yet */
let waiting = null;

/** Whether the library is there. */
export function hasLibrary() {
  return 'Plotly' in globalThis;
}

/** Run the library once what is drawn now can be seen; then tell. @param {() => void} ready */
export function wantLibrary(ready) {
  if (waiting) {
    waiting.push(ready);
    return;
  }
  waiting = [ready];
  requestAnimationFrame(() => setTimeout(run));
}

function run() {
  const link = /** @type {HTMLLinkElement | null} */ (document.getElementById('plotly'));
  const script = document.createElement('script');
  script.src = link?.href ?? '';
  script.addEventListener('load', () => {
    for (const ready of waiting ?? []) ready();
    waiting = [];
  });
  document.head.append(script);
}
