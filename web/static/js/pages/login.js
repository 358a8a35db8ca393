// @ts-check
/* Exchange the read token for this browser's session, then go back to where one came from. */

import { $ } from '../dom.js';
import { ROOT, at } from '../api.js';
import { start } from '../shell.js';

/** Where to go: a path of this dashboard, and never another site. */
function wayBack() {
  const wanted = new URLSearchParams(location.search).get('next') ?? '';
  const url = new URL(wanted || ROOT.href, ROOT);
  return url.origin === ROOT.origin && url.pathname.startsWith(ROOT.pathname) ? url.href : ROOT.href;
}

/** @param {string} token */
async function signIn(token) {
  const answer = await fetch(at('login'), {
    method: 'POST',
    headers: { 'Content-Type': 'application/json' },
    body: JSON.stringify({ token }),
  });
  if (answer.ok) {
    location.assign(wayBack());
    return;
  }
  const refused = $('#refused');
  refused.hidden = false;
  refused.textContent = answer.status === 401 ? 'That is not the token.' : `The server answered ${answer.status}.`;
}

start();
$('#form').addEventListener('submit', (event) => {
  event.preventDefault();
  void signIn(/** @type {HTMLInputElement} */ ($('#token')).value.trim());
});
