import { expect } from '@jest/globals';
import { LockUnavailableError } from '../../lib/api/errors.js';
import { KeyLayout } from '../../lib/providers/redis/key-layout.js';
import { ServerClock } from '../../lib/providers/redis/server-clock.js';
import { FakeClock } from '../../lib/testing/index.js';
import {
  granted,
  RELEASE,
  request,
  type StartedBackend,
  startBackend,
  until,
  untilWaiting,
  redisForTests,
} from './seam.js';

const layout = new KeyLayout('lock');
const SEEN = `${layout.counter}seen`;

// The clock of both processes stands still unless a test advances it: a request that is served was notified, and did
// not poll.
describe('two processes whose clock stands still', () => {
  const redis = redisForTests();
  let time: FakeClock;
  let one: StartedBackend;
  let two: StartedBackend;

  beforeEach(async () => {
    time = new FakeClock();
    one = await startBackend({ url: redis.server.url }, { clock: time });
    two = await startBackend({ url: redis.server.url }, { clock: time });
    await two.backend.inspect('nothing');
  });
  afterEach(async () => {
    await redis.admin.config('SET', 'maxmemory', '0');
    await one.backend.close();
    await two.backend.close();
  });

  /** Makes the last poll of every process `ms` older. */
  const age = async (ms: number) => {
    for (const process of await redis.admin.zrange(SEEN, '0', '-1')) await redis.admin.zincrby(SEEN, -ms, process);
  };
  /** Lets a second pass, and waits until the polls are answered, and so is what those answers caused to be sent. */
  const second = async () => {
    await time.advance(1_000);
    await two.backend.inspect('nothing');
    await two.backend.inspect('nothing');
  };

  it('a key of another type disturbs neither a release nor a request in the same tick', async () => {
    await redis.admin.lpush(layout.lockOf('list'), 'x');
    const held = granted(await one.backend.acquire(request('k')));
    const waiter = one.backend.acquire(request('k'));
    await untilWaiting(one);
    const [released, disturbed, renewed, other] = await Promise.all([
      one.backend.release(held, RELEASE),
      one.backend.acquire(request('list')).catch((error: unknown) => error),
      one.backend.renew(held, 30_000),
      one.backend.acquire(request('other')),
    ]);
    expect(released).toBe('released');
    expect(disturbed).toBeInstanceOf(LockUnavailableError);
    expect(renewed).toBe('lost');
    expect(granted(other).fencingToken).toBeGreaterThan(held.fencingToken ?? 0n);
    let next: unknown;
    void waiter.then((answer) => (next = answer));
    await until(() => next !== undefined, 'the waiter is notified');
  });

  it('500 waiters poll with one command a second even while memory is full', async () => {
    granted(await one.backend.acquire(request('k')));
    const requests = Array.from({ length: 500 }, () => request('k'));
    const answers = requests.map(({ ...terms }) => two.backend.acquire(terms));
    await untilWaiting(two, 500);
    await redis.admin.config('SET', 'maxmemory', '1');
    await redis.admin.config('RESETSTAT');
    for (let round = 0; round < 3; round += 1) await second();
    const calls = Number(/cmdstat_evalsha:calls=(\d+)/.exec(await redis.admin.info('commandstats'))?.[1]);
    // Each second, one for all waiters, and the two of `second`.
    expect(calls).toBeLessThanOrEqual(3 * 3);
    await redis.admin.config('SET', 'maxmemory', '0');
    requests.forEach(({ abort }) => {
      abort();
    });
    expect(new Set(await Promise.all(answers))).toEqual(new Set(['busy']));
  });

  it('a live waiter gets the lock even if memory has been full for longer than 3 s', async () => {
    const held = granted(await one.backend.acquire(request('k')));
    const waiter = two.backend.acquire(request('k'));
    await untilWaiting(two);
    await age(4_000);
    await redis.admin.config('SET', 'maxmemory', '1');
    await second();
    expect(await one.backend.release(held, RELEASE)).toBe('released');
    let next: unknown;
    void waiter.then((answer) => (next = answer));
    await until(() => next !== undefined, 'the waiter is notified');
  });

  it('a newcomer does not overtake a waiter whose process last polled 10 s ago for other waiters', async () => {
    const warm = granted(await one.backend.acquire(request('warm')));
    const before = two.backend.acquire(request('warm'));
    await untilWaiting(two);
    await one.backend.release(warm, RELEASE);
    await two.backend.release(granted(await before), RELEASE);
    const held = granted(await one.backend.acquire(request('k')));
    // Looks as if 9.9 s had passed.
    await age(9_900);
    await redis.admin.pexpire(SEEN, 100);
    const waiter = two.backend.acquire(request('k'));
    await untilWaiting(two, 2);
    expect(await redis.admin.pttl(SEEN)).toBeGreaterThan(5_000);
    await one.backend.release(held, RELEASE);
    expect(await one.backend.acquire(request('k', { wait: 0 }))).toBe('busy');
    expect(granted(await waiter).fencingToken).toBeGreaterThan(held.fencingToken ?? 0n);
  });

  it("renewing a grant whose token differs from the lock's is a loss", async () => {
    const grant = granted(await one.backend.acquire(request('k')));
    expect(await one.backend.renew(grant, 30_000)).toEqual({ validUntil: expect.any(Number) });
    // Looks as if its provisional lease had ended, and the lock had been granted to it again.
    await redis.admin.setrange(new KeyLayout('lock').lockOf('k'), 1, String((grant.fencingToken ?? 0n) + 1n));
    expect(await one.backend.renew(grant, 30_000)).toBe('lost');
  });
});

describe('ServerClock', () => {
  it('dates events by the latest reply, and never into the future', () => {
    const clock = new ServerClock();
    expect(clock.earliest(5_000_000, 1_000)).toBeUndefined();
    clock.observe(1_000, 5_000_000);
    expect(clock.earliest(5_000_000, 2_000)).toBe(1_000);
    expect(clock.earliest(9_000_000, 2_000)).toBe(2_000);
  });

  // Found by the simulation: a process whose clock was slow by 0.8 % considered a grant of 600 ms valid after its end.
  it('allows for clocks that run at different speeds', () => {
    const clock = new ServerClock();
    clock.observe(1_000, 5_000_000);
    expect(clock.earliest(7_000_000, 4_000)).toBe(2_980);
    expect(clock.earliest(4_000_000, 4_000)).toBe(-10);
  });

  it('knows nothing after 10 s, or after the connection was lost', () => {
    const clock = new ServerClock();
    clock.observe(1_000, 5_000_000);
    expect(clock.earliest(5_000_000, 11_000)).toBe(1_000);
    expect(clock.earliest(5_250_000, 11_001)).toBeUndefined();
    clock.forget();
    expect(clock.earliest(5_250_000, 2_000)).toBeUndefined();
  });
});
