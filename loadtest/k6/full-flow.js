// The whole way of a visitor: join the line, poll as told until it is their turn, look at the seats, and buy a free one at
// random. One iteration is one visitor.
//
//   k6 run loadtest/k6/full-flow.js
//   k6 run -e BASE_URL=http://127.0.0.1:8080 -e USERS=200 -e EVENT=1 loadtest/k6/full-flow.js
//
// The seats of the event must be free of charge. All visitors share one address: start the server with its limits off
// (ZTICKET_LIMIT_ENTER_PER_SECOND=0 and so on), or it refuses them. "make loadtest" does all that.

import http from 'k6/http';
import { check } from 'k6';
import { Counter, Trend } from 'k6/metrics';
import {
  BASE, as, join, number, options as withSteps, patiently, seatsLeft, seatsLeftInTheEnd, summary, verdict, waitInLine,
} from './lib.js';

const USERS = number('USERS', 100);
const EVENT = __ENV.EVENT || '1';
// How often a visitor tries another seat when somebody else was quicker.
const TRIES = 10;

const bought = new Counter('purchase_success');
const failed = new Counter('purchase_fail');
const waited = new Trend('queue_wait_time', true);
const gone = new Counter('seats_sold');

const visitors = {
  executor: 'per-vu-iterations',
  vus: USERS,
  iterations: 1,
  maxDuration: __ENV.MAX_DURATION || '10m',
};
export const options = withSteps({ visitors }, { join: 2000, poll: 1000, seats: 2000, buy: 2000 });
options.thresholds.purchase_fail = ['count==0'];
options.thresholds.purchase_success = ['count>0'];
// Nobody is cut off halfway.
options.thresholds.iterations = [`count==${USERS}`];

export function setup() {
  return { seats: seatsLeft(EVENT) };
}

export default function () {
  const joined = join(EVENT);
  if (joined.status === 409 && joined.json('code') === 'SOLD_OUT') {
    return;
  }
  if (!check(joined, { 'joined the line': (answer) => answer.status === 200 })) {
    failed.add(1);
    return;
  }
  const began = Date.now();
  const token = joined.json('uuid');
  const status = waitInLine(joined.json());
  if (!check(status, { 'kept the place': (last) => last !== null })) {
    failed.add(1);
  } else if (status.status !== 'SOLD_OUT') {
    waited.add(Date.now() - began);
    buy(token);
  }
}

function buy(token) {
  for (let tries = 0; tries < TRIES; tries += 1) {
    const map = patiently(() => http.get(`${BASE}/api/events/${EVENT}/seats`, as('seats', { token })));
    if (map.status !== 200) {
      break;
    }
    const free = map.json().filter((seat) => seat.status === 'available');
    if (free.length === 0) {
      // Everything is held or sold, and that is no failure.
      return;
    }
    const seatNumber = free[Math.floor(Math.random() * free.length)].seatNumber;
    const body = JSON.stringify({ seatNumber });
    const sold = patiently(() => http.post(`${BASE}/api/events/${EVENT}/tickets`, body, as('buy', { token })));
    if (sold.status === 200) {
      check(sold, { 'got the seat': (answer) => answer.json('seatNumber') === seatNumber });
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

export function teardown(before) {
  gone.add(before.seats - seatsLeftInTheEnd(EVENT));
  failed.add(0);
}

export const handleSummary = summary('Full flow: join, wait, look, buy', (data, count) => {
  const wait = data.metrics.queue_wait_time;
  const ms = (name) => (wait ? `${Math.round(wait.values[name])} ms` : '-');
  return [
    `waited in the line: p50 ${ms('med')}, p99 ${ms('p(99)')}`,
    `purchases: ${count('purchase_success')} successes, ${count('purchase_fail')} failures; seats sold: ${count('seats_sold')}`,
    verdict(count('purchase_success'), count('seats_sold')),
  ];
});
