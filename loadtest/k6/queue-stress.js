// Everyone in a line asks for their place again and again, without a pause.
//
//   k6 run -e USERS=100 -e DURATION=20 -e EVENT=1 loadtest/k6/queue-stress.js
//
// Start the server with its limits off (ZTICKET_LIMIT_ENTER_PER_SECOND=0). "make loadtest" does that.

import http from 'k6/http';
import { check } from 'k6';
import { BASE, as, join, number, options as withSteps, patiently, summary } from './lib.js';

const EVENT = __ENV.EVENT || '1';
const crowd = { executor: 'constant-vus', vus: number('USERS', 100), duration: `${number('DURATION', 20)}s` };
export const options = withSteps({ crowd }, { join: 1000, poll: 500 });

// Each user has a place of their own.
let token = null;
let rank = Infinity;

export default function () {
  if (token === null) {
    const joined = join(EVENT);
    if (!check(joined, { 'joined the line': (answer) => answer.status === 200 })) {
      return;
    }
    token = joined.json('uuid');
  }
  const poll = patiently(() => http.get(`${BASE}/api/queues/tokens/${token}`, as('poll')));
  const kept = check(poll, {
    'kept the place': (answer) => answer.status === 200,
    'nobody overtook': (answer) => answer.status !== 200 || answer.json('status') !== 'WAITING' || answer.json('rank') <= rank,
  });
  if (!kept || poll.json('status') !== 'WAITING') {
    // Over, or let in: join again.
    token = null;
    rank = Infinity;
    return;
  }
  rank = poll.json('rank');
}

export const handleSummary = summary('Polling: everyone asks without a pause');
