// The whole way of a visitor: join the line, poll as told until it is their turn, look at the seats, and buy a free one at
// random. One iteration is one visitor.
//
//   k6 run loadtest/k6/full-flow.js
//   k6 run -e BASE_URL=http://127.0.0.1:8080 -e USERS=200 -e EVENT=1 loadtest/k6/full-flow.js
//
// The seats of the event must be free of charge. All visitors share one address: start the server with its limits off
// (ZTICKET_LIMIT_ENTER_PER_SECOND=0 and so on), or it refuses them.

import http from 'k6/http';
import { check, sleep } from 'k6';
import { Counter, Trend } from 'k6/metrics';

const BASE = (__ENV.BASE_URL || 'http://127.0.0.1:8080').replace(/\/$/, '');
const USERS = Number(__ENV.USERS || 100);
const EVENT = __ENV.EVENT || '1';
const API = `${BASE}/api/events/${EVENT}`;
// How often a visitor tries another seat when somebody else was quicker, and how often they repeat after a 503.
const TRIES = 10;

const bought = new Counter('purchase_success');
const failed = new Counter('purchase_fail');
const waited = new Trend('queue_wait_time', true);

export const options = {
  scenarios: {
    visitors: {
      executor: 'per-vu-iterations',
      vus: USERS,
      iterations: 1,
      maxDuration: __ENV.MAX_DURATION || '10m',
    },
  },
  thresholds: {
    // Everybody is either sold a ticket or told that nothing is left.
    checks: ['rate>0.99'],
    'http_req_duration{kind:poll}': ['p(99)<1000'],
  },
  summaryTrendStats: ['avg', 'med', 'p(95)', 'p(99)', 'p(99.9)', 'max'],
};

export function setup() {
  const seats = http.get(`${API}/seats/available-count`);
  if (seats.status !== 200) {
    throw new Error(`${API} answers ${seats.status}: ${seats.body}`);
  }
  return { available: seats.json('count') };
}

export default function () {
  const joined = patiently(() => http.post(`${API}/queues/tokens`, null, tags('join')));
  if (joined.status === 409 && joined.json('code') === 'SOLD_OUT') {
    return;
  }
  if (!check(joined, { 'joined the line': (answer) => answer.status === 200 })) {
    failed.add(1);
    return;
  }
  const began = Date.now();
  const token = joined.json('uuid');
  let status = joined.json();
  while (status.status === 'WAITING') {
    sleep(status.pollAfterMs / 1000);
    const poll = patiently(() => http.get(`${BASE}/api/queues/tokens/${token}`, tags('poll')));
    if (!check(poll, { 'keeps the place': (answer) => answer.status === 200 })) {
      failed.add(1);
      return;
    }
    status = poll.json();
  }
  if (status.status === 'SOLD_OUT') {
    return;
  }
  waited.add(Date.now() - began);
  buy(token);
}

function buy(token) {
  for (let tries = 0; tries < TRIES; tries += 1) {
    const map = patiently(() => http.get(`${API}/seats`, tags('seats', token)));
    const free = map.status === 200 ? map.json().filter((seat) => seat.status === 'available') : [];
    if (free.length === 0) {
      break;
    }
    const seat = free[Math.floor(Math.random() * free.length)].seatNumber;
    const body = JSON.stringify({ seatNumber: seat });
    const sold = patiently(() => http.post(`${API}/tickets`, body, tags('buy', token)));
    if (sold.status === 200) {
      check(sold, { 'got the seat': (answer) => answer.json('seatNumber') === seat });
      bought.add(1);
      return;
    }
    // Somebody else was quicker. Anything else is final.
    if (sold.status !== 409) {
      break;
    }
  }
  failed.add(1);
}

/** Repeats a request that the server could not answer yet. Buying and polling can be repeated; a second join would only
 * take a second place. */
function patiently(send) {
  let answer = send();
  for (let tries = 0; answer.status === 503 && tries < TRIES; tries += 1) {
    sleep(Number(answer.headers['Retry-After'] || 1));
    answer = send();
  }
  return answer;
}

/** A name for the request in the summary, and the token in its header. */
function tags(kind, token) {
  const headers = { 'Content-Type': 'application/json' };
  if (token) {
    headers['X-Queue-Token'] = token;
  }
  return { headers, tags: { kind, name: kind } };
}

export function teardown(before) {
  const left = http.get(`${API}/seats/available-count`).json('count');
  console.log(`seats sold or held: ${before.available - left}; compare with purchase_success`);
}
