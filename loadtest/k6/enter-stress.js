// As many people a second join a line, whether or not the server keeps up.
//
//   k6 run -e RATE=1000 -e DURATION=20 -e EVENT=1 loadtest/k6/enter-stress.js
//
// Start the server with its limits off (ZTICKET_LIMIT_ENTER_PER_SECOND=0). "make loadtest" does that.

import { check } from 'k6';
import { join, number, options as withSteps, summary } from './lib.js';

const EVENT = __ENV.EVENT || '1';
const rate = number('RATE', 500);

const crowd = {
  executor: 'constant-arrival-rate',
  rate,
  timeUnit: '1s',
  duration: `${number('DURATION', 20)}s`,
  preAllocatedVUs: Math.min(rate, 200),
  maxVUs: rate * 2,
};
export const options = withSteps({ crowd }, { join: 1000 });
// The crowd came as fast as it should: k6 found somebody free for nearly every arrival.
options.thresholds.dropped_iterations = ['count<10'];

export default function () {
  check(join(EVENT), {
    'joined the line': (answer) => answer.status === 200,
    'has a place': (answer) => answer.status === 200 && (answer.json('status') === 'ACTIVE' || answer.json('rank') >= 1),
  });
}

export const handleSummary = summary('Entering: a steady crowd joins');
