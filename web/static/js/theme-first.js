// @ts-check
/* Runs before the first paint, so that a dark page never flashes white. The switch is in theme.js. */
(() => {
  /** @type {string | null} */
  let wanted = null;
  try {
    wanted = localStorage.getItem('theme');
  } catch {
    /* private mode: follow the system */
  }
  if (wanted === 'dark' || wanted === 'light') document.documentElement.dataset.theme = wanted;
})();
