// @ts-check
/* Patterns of series keys, as detectors name what they judge. Pure. */

/** Whether a key fits a pattern, where `*` stands for anything. @param {string} pattern @param {string} key */
export function fits(pattern, key) {
  if (!pattern.includes('*')) return pattern === key;
  const parts = pattern.split('*').map((part) => part.replace(/[.+?^${}()|[\]\\]/g, '\\$&'));
  return new RegExp(`^${parts.join('.*')}$`, 's').test(key);
}
