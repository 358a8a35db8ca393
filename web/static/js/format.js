// @ts-check
/* Numbers, money, durations and instants as people read them. Pure. */

const MINUS = '\u2212';

/** @type {Record<string, string>} */
const SIGNS = { USD: '$', EUR: '\u20ac', GBP: '\u00a3', JPY: '\u00a5' };

/**
 * A number in three figures or so.
 * @param {number | null | undefined} value @param {number} [digits] after the point
 */
export function num(value, digits) {
  if (value === null || value === undefined || Number.isNaN(value)) return '-';
  if (!Number.isFinite(value)) return value > 0 ? '\u221e' : `${MINUS}\u221e`;
  const size = Math.abs(value);
  if (size !== 0 && (size < 1e-3 || size >= 1e7)) return value.toExponential(1).replaceAll('-', MINUS).replace('e+', 'e');
  const after = digits ?? (size >= 100 ? 0 : size >= 10 ? 1 : size >= 1 || size === 0 ? 2 : 3);
  return group(value.toFixed(after)).replace('-', MINUS);
}

/** Thousands apart, from 1,000 on. @param {string} text */
function group(text) {
  const [whole, part] = text.split('.');
  const apart = (whole ?? '').replace(/\B(?=(\d{3})+$)/g, ',');
  return part ? `${apart}.${part}` : apart;
}

/** A whole number. @param {number | null | undefined} value */
export function count(value) {
  return value === null || value === undefined ? '-' : group(String(Math.round(value))).replace('-', MINUS);
}

/** A big number, short: 12.1 k, 1.1 M. @param {number | null | undefined} value */
export function short(value) {
  if (value === null || value === undefined || !Number.isFinite(value)) return '-';
  for (const [size, name] of /** @type {[number, string][]} */ ([[1e12, 'T'], [1e9, 'B'], [1e6, 'M'], [1e3, 'k']])) {
    if (Math.abs(value) >= size) {
      const part = value / size;
      return `${part.toFixed(part >= 100 ? 0 : 1)} ${name}`;
    }
  }
  return num(value, Math.abs(value) >= 10 || Number.isInteger(value) ? 0 : 1);
}

/** @param {number | null | undefined} value a share of 1 @param {number} [digits] */
export function percent(value, digits = 1) {
  return value === null || value === undefined || !Number.isFinite(value) ? '-' : `${num(value * 100, digits)} %`;
}

/** @param {number | null | undefined} value @param {string} [currency] */
export function money(value, currency = 'USD') {
  if (value === null || value === undefined || !Number.isFinite(value)) return '-';
  const size = Math.abs(value);
  const text = group(size.toFixed(size >= 100 ? 0 : 2));
  const sign = SIGNS[currency];
  return `${value < 0 ? MINUS : ''}${sign ? sign + text : `${text} ${currency}`}`;
}

/** A duration: 12 s, 4 min 4 s, 7 h 49 min, 3 d 2 h. @param {number | null | undefined} seconds */
export function duration(seconds) {
  if (seconds === null || seconds === undefined || !Number.isFinite(seconds)) return '-';
  const whole = Math.max(0, Math.round(seconds));
  if (whole < 60) return `${seconds > 0 && seconds < 10 && !Number.isInteger(seconds) ? seconds.toFixed(1) : whole} s`;
  const minutes = Math.floor(whole / 60);
  if (minutes < 60) return minutes < 10 && whole % 60 ? `${minutes} min ${whole % 60} s` : `${minutes} min`;
  const hours = Math.floor(minutes / 60);
  if (hours < 48) return minutes % 60 ? `${hours} h ${minutes % 60} min` : `${hours} h`;
  const days = Math.floor(hours / 24);
  return hours % 24 && days < 10 ? `${days} d ${hours % 24} h` : `${days} d`;
}

/** @param {number | null | undefined} seconds passed */
export function ago(seconds) {
  if (seconds === null || seconds === undefined) return 'never';
  return seconds < 1 ? 'just now' : `${duration(Math.floor(seconds))} ago`;
}

/** @param {string} zone @returns {string} a zone the browser knows */
function known(zone) {
  try {
    new Intl.DateTimeFormat('en-GB', { timeZone: zone });
    return zone;
  } catch {
    return 'UTC';
  }
}

/**
 * An instant in a zone, as short as it may be: 06:58 today, Thu 06:58 within the week, 20 Dec else.
 * @param {number | null | undefined} at seconds UTC @param {string} zone IANA @param {number} now
 */
export function clock(at, zone, now) {
  if (at === null || at === undefined || !Number.isFinite(at)) return '-';
  const timeZone = known(zone);
  const days = Math.abs(at - now) / 86400;
  /** @type {Intl.DateTimeFormatOptions} */
  let shape = { hour: '2-digit', minute: '2-digit', hourCycle: 'h23', timeZone };
  const same = day(at, timeZone) === day(now, timeZone);
  if (days >= 300) shape = { day: 'numeric', month: 'short', year: 'numeric', timeZone };
  else if (days >= 6) shape = { day: 'numeric', month: 'short', timeZone };
  else if (!same) shape = { ...shape, weekday: 'short' };
  return new Intl.DateTimeFormat('en-GB', shape).format(new Date(at * 1000)).replace(',', '');
}

/** The day of an instant in a zone, as 2026-11-26. @param {number} at @param {string} zone */
export function day(at, zone) {
  return new Intl.DateTimeFormat('en-CA', { timeZone: known(zone), year: 'numeric', month: '2-digit', day: '2-digit' }).format(new Date(at * 1000));
}

/** Seconds shown: 14:47:10. @param {number} at @param {string} zone */
export function clockSeconds(at, zone) {
  return new Intl.DateTimeFormat('en-GB', { hour: '2-digit', minute: '2-digit', second: '2-digit', hourCycle: 'h23', timeZone: known(zone) }).format(new Date(at * 1000));
}

/** One or many. @param {number} n @param {string} one @param {string} [many] */
export function plural(n, one, many = `${one}s`) {
  return `${count(n)} ${n === 1 ? one : many}`;
}

/** Whether a series is a share of 1, to be read in percent. @param {string} name @param {string} unit */
export function isShare(name, unit) {
  return unit.startsWith('share') || (unit === '' && /(_share|_coverage)$|^(top\d+|confidence|ece)$/.test(name));
}

/** A short time: 0.26 s, 5.5 ms, 6 \u00b5s. @param {number} seconds */
export function briefly(seconds) {
  const size = Math.abs(seconds);
  if (size >= 1 || size === 0 || Number.isNaN(size)) return `${num(seconds, size >= 10 ? 0 : size ? 2 : 0)} s`;
  return size >= 1e-3 ? `${num(seconds * 1e3, size >= 0.01 ? 0 : 1)} ms` : `${num(seconds * 1e6, 0)} \u00b5s`;
}

/** @type {Record<string, string>} */
const GROUPS = { emb: 'embedding', attn_qkv: 'attention q, k, v', attn_q: 'attention q', attn_k: 'attention k', attn_v: 'attention v', attn_o: 'attention out', mlp_in: 'mlp in', mlp_out: 'mlp out', head: 'output head', lora: 'LoRA' };

/** A parameter group in words; a name of the user's stays as it is. @param {string} name */
export function groupName(name) {
  return GROUPS[name] ?? name;
}
