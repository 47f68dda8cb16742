// What the scripts here share: where the server is, how to ask it, and the summary at the end.

import http from 'k6/http';
import { sleep } from 'k6';

export const BASE = (__ENV.BASE_URL || 'http://127.0.0.1:8080').replace(/\/$/, '');
// How often a request is repeated after a 503.
const REPEATS = 10;

/** A number from the environment, or its default. */
export function number(name, fallback) {
  const value = __ENV[name] === undefined || __ENV[name] === '' ? fallback : Number(__ENV[name]);
  if (!Number.isFinite(value)) {
    throw new Error(`${name} must be a number, not ${__ENV[name]}`);
  }
  return value;
}

/** Options that every script has: each step may take this long for 99 of 100, and no check may fail. */
export function options(scenarios, steps) {
  const thresholds = { checks: ['rate==1'] };
  Object.keys(steps).forEach((step) => {
    thresholds[`http_req_duration{step:${step}}`] = [`p(99)<${steps[step]}`];
  });
  return { scenarios, thresholds, summaryTrendStats: ['count', 'med', 'p(95)', 'p(99)', 'p(99.9)', 'max'] };
}

/** Parameters of a request: its step in the summary, and who asks. */
export function as(step, { token, key, once } = {}) {
  const headers = { 'Content-Type': 'application/json' };
  if (token) {
    headers['X-Queue-Token'] = token;
  }
  if (key) {
    headers.Authorization = `Bearer ${key}`;
  }
  if (once) {
    headers['Idempotency-Key'] = once;
  }
  // One name for all tokens, or each would be a series of its own.
  return { headers, tags: { step, name: step } };
}

/** Repeats a request that the server could not answer yet. A second join would only take a second place. */
export function patiently(send) {
  let answer = send();
  for (let repeats = 0; answer.status === 503 && repeats < REPEATS; repeats += 1) {
    sleep(Number(answer.headers['Retry-After'] || 1));
    answer = send();
  }
  return answer;
}

/** Joins the line of an event. */
export function join(event, who = {}) {
  return patiently(() => http.post(`${BASE}/api/events/${event}/queues/tokens`, null, as('join', who)));
}

/** Polls as told until it is the visitor's turn. Returns the last status, or null if the place was lost. */
export function waitInLine(joined) {
  let status = joined;
  while (status.status === 'WAITING') {
    sleep(status.pollAfterMs / 1000);
    const poll = patiently(() => http.get(`${BASE}/api/queues/tokens/${joined.uuid}`, as('poll')));
    if (poll.status !== 200) {
      return null;
    }
    status = poll.json();
  }
  return status;
}

/** The free seats of an event. */
export function seatsLeft(event) {
  const answer = http.get(`${BASE}/api/events/${event}/seats/available-count`);
  if (answer.status !== 200) {
    throw new Error(`event ${event} answers ${answer.status}: ${answer.body}`);
  }
  return answer.json('count');
}

/** The same when the last sales are counted too: a server looks a few times a second, and settles within seconds. */
export function seatsLeftInTheEnd(event) {
  let left = seatsLeft(event);
  for (let same = 0, reads = 0; same < 4 && reads < 60; reads += 1) {
    sleep(0.5);
    const now = seatsLeft(event);
    same = now === left ? same + 1 : 0;
    left = now;
  }
  return left;
}

/** Whether as many seats are sold as buyers were told. */
export function verdict(told, sold) {
  return told === sold ? 'as many seats are sold as buyers were told' : 'BROKEN  SEATS AND BUYERS DIFFER';
}

/** A table of the steps and a line for each threshold and each of `lines`, to the terminal; all figures to a file if
 * SUMMARY names one. */
export function summary(title, lines = () => []) {
  return (data) => {
    const ms = (value) => (value === undefined ? '-' : `${value < 100 ? value.toFixed(1) : Math.round(value)} ms`);
    const row = (cells) => `| ${cells[0].padEnd(10)} | ${cells.slice(1).map((cell) => cell.padStart(9)).join(' | ')} |`;
    const text = [`\n${title}\n`, row(['step', 'requests', 'p50', 'p95', 'p99', 'p99.9', 'max']), row(Array(7).fill('---'))];
    const names = Object.keys(data.metrics).sort();
    names.forEach((name) => {
      const step = name.match(/^http_req_duration\{step:(.+)\}$/);
      if (step) {
        const v = data.metrics[name].values;
        text.push(row([step[1], String(v.count), ms(v.med), ms(v['p(95)']), ms(v['p(99)']), ms(v['p(99.9)']), ms(v.max)]));
      }
    });
    text.push('');
    names.forEach((name) => {
      const { thresholds } = data.metrics[name];
      Object.keys(thresholds || {}).forEach((rule) => {
        text.push(`${thresholds[rule].ok ? 'kept  ' : 'BROKEN'}  ${name}: ${rule}`);
      });
    });
    const count = (name) => (data.metrics[name] ? data.metrics[name].values.count : 0);
    const reqs = data.metrics.http_reqs.values;
    text.push(`requests: ${reqs.count}, ${Math.round(reqs.rate)} a second`, ...lines(data, count), '');
    const files = { stdout: `${text.join('\n')}\n` };
    if (__ENV.SUMMARY) {
      files[__ENV.SUMMARY] = JSON.stringify(data, null, 2);
    }
    return files;
  };
}
