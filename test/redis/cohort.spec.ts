import { describe, expect, it } from '@jest/globals';
import type { Grant } from '../../lib/api/lock-provider.js';
import { Cohort } from '../../lib/providers/redis/cohort.js';
import { KeyLayout } from '../../lib/providers/redis/key-layout.js';
import {
  expire,
  granted,
  isSettled,
  redisForTests,
  twoProcesses,
  RELEASE,
  request,
  type StartedBackend,
  startWithFakeClock,
  type TestRequest,
  until,
  untilWaiting,
} from './seam.js';

// To Redis, each provider is a process of its own.
describe('waiters of one process who stand behind each other', () => {
  const redis = redisForTests();
  const processes = twoProcesses(redis);

  const tokenOf = ({ fencingToken }: Grant) => fencingToken ?? 0n;
  const calls = async () =>
    Number(/cmdstat_evalsha:calls=(\d+)/.exec(await redis.admin.info('commandstats'))?.[1] ?? 0);
  const leaveNothing = () =>
    until(async () => (await redis.admin.keys('*')).every((key) => /\}(seen)?$/.test(key)), 'nothing is left');

  /** Someone else holds the lock, and `requests` of the shaky one, or of another process, wait for it, in this order. */
  const queued = (...requests: TestRequest[]) => queuedAt(processes.shaky, ...requests);

  async function queuedAt(process: StartedBackend, ...requests: TestRequest[]) {
    const holder = granted(await processes.steady.backend.acquire(request('k')));
    const waiters: Promise<Grant | 'busy'>[] = [];
    for (const each of requests) {
      waiters.push(process.backend.acquire(each));
      await untilWaiting(process, waiters.length);
    }
    const answer = async (index: number) => (await waiters[index]) ?? 'busy';
    return { holder, waiters, turn: async (index: number) => granted(await answer(index)), answer };
  }

  it('have the lock one after the other for one call, each with a token of its own, in the order in which they came', async () => {
    // Ahead of the server's clock: what was not reserved would be given out again.
    await redis.admin.set(new KeyLayout('lock').counter, '5000000000000000');
    // Its time stands still: nobody asks again.
    const members = await startWithFakeClock({ url: redis.server.url });
    const { holder, waiters } = await queuedAt(members, ...Array.from({ length: 14 }, () => request('k')));
    await redis.admin.config('RESETSTAT');
    await processes.steady.backend.release(holder, RELEASE);
    const served = await Promise.all(
      waiters.map(async (waiter) => {
        const grant = granted(await waiter);
        await members.backend.release(grant, RELEASE);
        return tokenOf(grant);
      }),
    );
    // The release that hands it over, and that of the last.
    expect(await calls()).toBe(2);
    expect(served).toEqual([...served].sort((a, b) => Number(a - b)));
    expect(new Set(served).size).toBe(14);
    expect(served[0]).toBeGreaterThan(tokenOf(holder));
    const next = granted(await processes.steady.backend.acquire(request('k')));
    expect(tokenOf(next)).toBeGreaterThan(served[13] ?? 0n);
    await processes.steady.backend.release(next, RELEASE);
    await leaveNothing();
    await members.backend.close();
  });

  it('are not more than sixteen at once, so that nobody has to count on a process for long; all are served', async () => {
    const { holder, waiters, turn } = await queued(...Array.from({ length: 20 }, () => request('k')));
    await processes.steady.backend.release(holder, RELEASE);
    for (const waiter of waiters.slice(0, 15)) await processes.shaky.backend.release(granted(await waiter), RELEASE);
    const sixteenth = await turn(15);
    // Those that have had it are taken out with the release of the last one.
    expect((await processes.steady.backend.inspect('k'))?.waiters).toBe(19);
    await processes.shaky.backend.release(sixteenth, RELEASE);
    const seventeenth = await turn(16);
    expect((await processes.steady.backend.inspect('k'))?.waiters).toBe(3);
    await processes.shaky.backend.release(seventeenth, RELEASE);
    for (const waiter of waiters.slice(17)) await processes.shaky.backend.release(granted(await waiter), RELEASE);
    await leaveNothing();
  });

  it('keep their places when the first one leaves while the lock is handed to it', async () => {
    const leaver = request('k');
    const { holder, turn, answer } = await queued(leaver, request('k'), request('k'));
    const other = processes.steady.backend.acquire(request('k'));
    await untilWaiting(processes.steady);
    // The grant is on its way when its caller leaves.
    processes.proxy.holdReplies();
    await processes.steady.backend.release(holder, RELEASE);
    leaver.abort();
    expect(await answer(0)).toBe('busy');
    await until(async () => (await processes.steady.backend.inspect('k'))?.waiters === 2, 'the next one was served');
    processes.proxy.passReplies();
    const grants = [await turn(1)];
    await processes.shaky.backend.release(grants[0] as Grant, RELEASE);
    grants.push(await turn(2));
    expect(await isSettled(other)).toBe(false);
    await processes.shaky.backend.release(grants[1] as Grant, RELEASE);
    grants.push(granted(await other));
    const tokens = grants.map(tokenOf);
    expect(tokens).toEqual([...tokens].sort((a, b) => Number(a - b)));
  });

  it('do not go before those of other processes who came between them', async () => {
    const { holder, waiters } = await queued(request('k'), request('k'));
    const between = processes.steady.backend.acquire(request('k'));
    await untilWaiting(processes.steady);
    const last = processes.shaky.backend.acquire(request('k'));
    await untilWaiting(processes.shaky, 3);
    await processes.steady.backend.release(holder, RELEASE);
    const grants: Grant[] = [];
    for (const waiter of waiters) {
      grants.push(granted(await waiter));
      await processes.shaky.backend.release(grants.at(-1) as Grant, RELEASE);
    }
    grants.push(granted(await between));
    expect(await isSettled(last)).toBe(false);
    await processes.steady.backend.release(grants.at(-1) as Grant, RELEASE);
    grants.push(granted(await last));
    const tokens = grants.map(tokenOf);
    expect(tokens).toEqual([...tokens].sort((a, b) => Number(a - b)));
  });

  it('renew what they have together, and a lease that is not renewed is confirmed before it is answered', async () => {
    const { holder, turn } = await queued(request('k'), request('k'), request('k', { renew: false, lease: 600_000 }));
    await processes.steady.backend.release(holder, RELEASE);
    await processes.shaky.backend.release(await turn(0), RELEASE);
    const second = await turn(1);
    const left = async () => (await processes.steady.backend.inspect('k'))?.expiresIn;
    expect(await left()).toBeLessThanOrEqual(3_000);
    const renewed = await processes.shaky.backend.renew(second, 500_000);
    expect(renewed).toMatchObject({ validUntil: expect.any(Number) });
    expect(await left()).toBeGreaterThan(400_000);
    await processes.shaky.backend.release(second, RELEASE);
    const third = await turn(2);
    expect(third.validUntil - performance.now()).toBeGreaterThan(500_000);
    expect(await left()).toBeGreaterThan(500_000);
    expect(await processes.shaky.backend.release(third, RELEASE)).toBe('released');
    await leaveNothing();
  });

  it('are retained like others: minHold keeps the next one out', async () => {
    const { holder, turn } = await queued(request('k', { minHold: 600_000 }), request('k', { minHold: 600_000 }));
    await processes.steady.backend.release(holder, RELEASE);
    const first = await turn(0);
    await processes.shaky.backend.release(first, { keepFor: 500_000, failed: false });
    expect(await processes.steady.backend.inspect('k')).toMatchObject({ state: 'retained', waiters: 1 });
    await expire(redis.admin, 'k');
    await processes.shaky.backend.release(await turn(1), RELEASE);
  });

  it('skip whoever has left', async () => {
    const leaver = request('k');
    const { holder, turn, answer } = await queued(request('k'), leaver, request('k'));
    await processes.steady.backend.release(holder, RELEASE);
    const first = await turn(0);
    await processes.shaky.backend.renew(first, 30_000);
    leaver.abort();
    expect(await answer(1)).toBe('busy');
    await processes.shaky.backend.release(first, RELEASE);
    await processes.shaky.backend.release(await turn(2), RELEASE);
    await leaveNothing();
  });

  it('get nothing more from one from whom the lock was taken away: the server serves them', async () => {
    const { holder, waiters, turn } = await queued(request('k'), request('k'), request('k'));
    await processes.steady.backend.release(holder, RELEASE);
    const first = await turn(0);
    expect(await processes.steady.backend.forceRelease('k')).toBe(true);
    const second = await turn(1);
    expect(tokenOf(second)).toBeGreaterThan(tokenOf(first) + 2n);
    expect(await processes.shaky.backend.renew(first, 30_000)).toBe('lost');
    await processes.shaky.backend.release(first, { keepFor: 0, failed: true });
    expect(await isSettled(waiters[2] as Promise<unknown>)).toBe(false);
    await processes.shaky.backend.release(second, RELEASE);
    const third = await turn(2);
    expect(tokenOf(third)).toBeGreaterThan(tokenOf(second));
    await processes.shaky.backend.release(third, RELEASE);
    await leaveNothing();
  });

  it('pass nothing on while the server cannot be reached, and keep their places', async () => {
    const { holder, waiters, turn } = await queued(request('k'), request('k'));
    await processes.steady.backend.release(holder, RELEASE);
    const first = await turn(0);
    // A provisional lease would end after 3 s, and free the lock.
    await processes.shaky.backend.renew(first, 600_000);
    processes.proxy.refuse();
    await until(() => processes.shaky.events.some(({ type }) => type === 'unavailable'), 'it knows');
    expect(await processes.shaky.backend.release(first, RELEASE)).toBe('unknown');
    const other = processes.steady.backend.acquire(request('k'));
    await untilWaiting(processes.steady);
    expect(await isSettled(waiters[1] as Promise<unknown>)).toBe(false);
    processes.proxy.admit();
    const second = await turn(1);
    expect(await isSettled(other)).toBe(false);
    await processes.shaky.backend.release(second, RELEASE);
    await processes.steady.backend.release(granted(await other), RELEASE);
    await leaveNothing();
  });

  it('lose nothing of it by a connection that was lost and made again: those who have not had their turn ask again', async () => {
    const { holder, turn } = await queued(request('k'), request('k'));
    await processes.steady.backend.release(holder, RELEASE);
    const first = await turn(0);
    // A provisional lease would end after 3 s, and free the lock.
    await processes.shaky.backend.renew(first, 600_000);
    processes.proxy.cut();
    await until(() => processes.shaky.events.some(({ type }) => type === 'recovered'), 'it is back');
    await until(async () => (await processes.steady.backend.inspect('k'))?.waiters === 1, 'the other one waits again');
    expect(await processes.shaky.backend.release(first, RELEASE)).toBe('released');
    await processes.shaky.backend.release(await turn(1), RELEASE);
    await leaveNothing();
  });

  it('leave nothing behind when a caller leaves while its grant is being confirmed', async () => {
    const leaver = request('k', { renew: false });
    const { holder, turn, answer } = await queued(request('k'), leaver, request('k'));
    await processes.steady.backend.release(holder, RELEASE);
    const first = await turn(0);
    processes.proxy.holdReplies();
    await processes.shaky.backend.release(first, RELEASE);
    await until(
      async () => ((await processes.steady.backend.inspect('k'))?.expiresIn ?? 0) > 20_000,
      'the server has confirmed it',
    );
    leaver.abort();
    expect(await answer(1)).toBe('busy');
    processes.proxy.passReplies();
    await processes.shaky.backend.release(await turn(2), RELEASE);
    await leaveNothing();
  });

  it('are asked for again when the core could not use a turn: its attempt is the same', async () => {
    const again = request('k');
    const { holder, turn } = await queued(request('k'), again, request('k'));
    await processes.steady.backend.release(holder, RELEASE);
    await processes.shaky.backend.release(await turn(0), RELEASE);
    const second = await turn(1);
    await processes.shaky.backend.renew(second, 30_000);
    // As after a suspension of the machine, when the grant is not believed.
    const retried = processes.shaky.backend.acquire(again);
    const grant = granted(await retried);
    expect(tokenOf(grant)).toBeGreaterThan(tokenOf(second));
    await processes.shaky.backend.release(grant, RELEASE);
    const third = await turn(2);
    expect(tokenOf(third)).toBeGreaterThan(tokenOf(grant));
    await processes.shaky.backend.release(third, RELEASE);
    await leaveNothing();
  });
});

describe('a cohort', () => {
  const entry = { lock: 'lock:{0}:k', mode: 'exclusive', holder: 'a', provisional: '3000', lease: 30_000 } as const;
  const begun = () => {
    const cohort = new Cohort(entry, 1n, [{ holder: 'b', token: 2n }]);
    cohort.validity.begin(1_000);
    return cohort;
  };

  it('has nobody next when the lock is not surely its own any more', () => {
    expect(begun().next(999, () => true)).toMatchObject({ token: 2n });
    expect(begun().next(1_000, () => true)).toBeUndefined();
  });

  it('leaves the queue for as long as the longest lease that was sent under its name may last', () => {
    const cohort = begun();
    cohort.validity.renewing(60_000, 0);
    cohort.validity.renewing(1_000, 0);
    expect(cohort.entryWithout()).toMatchObject({ holder: 'a', lease: 60_000 });
  });
});
