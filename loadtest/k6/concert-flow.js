// A person with money: sign up, charge, join the line, hold the best seats for a party, pay. One iteration is one person.
//
//   k6 run -e USERS=100 -e PARTY=2 -e EVENT=2 loadtest/k6/concert-flow.js
//
// EVENT is a date with priced seats; without it the first date of the first concert that is on sale. Start the server with
// its limits off (ZTICKET_LIMIT_SIGN_UP_PER_SECOND=0 and so on). "make loadtest" does that.

import http from 'k6/http';
import { check } from 'k6';
import { Counter, Trend } from 'k6/metrics';
import {
  BASE, as, join, number, options as withSteps, patiently, seatsLeft, seatsLeftInTheEnd, summary, verdict, waitInLine,
} from './lib.js';

const USERS = number('USERS', 100);
const PARTY = number('PARTY', 2);
const MONEY = number('MONEY', 1000000);

const bought = new Counter('purchase_success');
const failed = new Counter('purchase_fail');
const waited = new Trend('queue_wait_time', true);
const gone = new Counter('seats_sold');

const people = {
  executor: 'per-vu-iterations',
  vus: USERS,
  iterations: 1,
  maxDuration: __ENV.MAX_DURATION || '10m',
};
const steps = { 'sign up': 2000, charge: 2000, join: 2000, poll: 1000, hold: 2000, pay: 2000, balance: 2000 };
export const options = withSteps({ people }, steps);
options.thresholds.purchase_fail = ['count==0'];
options.thresholds.purchase_success = ['count>0'];
// Nobody is cut off halfway.
options.thresholds.iterations = [`count==${USERS}`];

export function setup() {
  const event = __ENV.EVENT || firstOnSale();
  return { event, seats: seatsLeft(event) };
}

function firstOnSale() {
  const { items } = http.get(`${BASE}/api/concerts`).json();
  for (const concert of items) {
    const dates = http.get(`${BASE}/api/concerts/${concert.id}/dates`).json();
    const date = (dates.items || dates).find((one) => one.status === 'ON_SALE');
    if (date) {
      return date.eventId;
    }
  }
  throw new Error('no concert is on sale: name a date with -e EVENT=…');
}

export default function ({ event }) {
  const name = `k6 ${__VU}`;
  const person = patiently(() => http.post(`${BASE}/api/users`, JSON.stringify({ name }), as('sign up')));
  if (!check(person, { 'signed up': (answer) => answer.status === 200 || answer.status === 201 })) {
    failed.add(1);
    return;
  }
  const key = person.json('apiKey');
  const charge = JSON.stringify({ amount: MONEY });
  const me = `${BASE}/api/users/me/balance`;
  const charged = patiently(() => http.post(`${me}/charges`, charge, as('charge', { key, once: `k6-${__VU}` })));
  check(charged, { charged: (answer) => answer.status === 200 || answer.status === 201 });

  const joined = join(event, { key });
  if (!check(joined, { 'joined the line': (answer) => answer.status === 200 })) {
    failed.add(1);
    return;
  }
  const began = Date.now();
  const token = joined.json('uuid');
  const status = waitInLine(joined.json());
  if (!check(status, { 'kept the place': (last) => last !== null }) || status.status !== 'ACTIVE') {
    failed.add(1);
    return;
  }
  waited.add(Date.now() - began);

  const party = JSON.stringify({ count: PARTY });
  const held = patiently(() => http.post(`${BASE}/api/events/${event}/seats/best`, party, as('hold', { token, key })));
  if (!check(held, { 'holds the seats': (answer) => answer.status === 200 })) {
    failed.add(1);
    return;
  }
  const seats = JSON.stringify({ seatNumbers: held.json('seatNumbers') });
  const paid = patiently(() => http.post(`${BASE}/api/events/${event}/tickets`, seats, as('pay', { token, key })));
  const all = { 'paid for all of them': (answer) => answer.status === 200 && answer.json('tickets').length === PARTY };
  if (!check(paid, all)) {
    failed.add(1);
    return;
  }
  bought.add(PARTY);
  const left = patiently(() => http.get(me, as('balance', { key })));
  check(left, { 'paid once': (answer) => answer.json('balance') === MONEY - paid.json('total') });
}

export function teardown({ event, seats }) {
  gone.add(seats - seatsLeftInTheEnd(event));
  failed.add(0);
}

export const handleSummary = summary('Concert flow: sign up, charge, join, hold, pay', (data, count) => [
  `seats: ${count('purchase_success')} bought by people, ${count('purchase_fail')} people without; seats sold: ${count('seats_sold')}`,
  verdict(count('purchase_success'), count('seats_sold')),
]);
