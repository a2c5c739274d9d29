import { getEventListeners } from 'node:events';
import type { FakeClock } from '../../lib/testing/fake-clock.js';
import { LockCapacityError, LockConfigError, LockLostError, LockUnavailableError } from '../../lib/api/errors.js';
import type { LockManager } from '../../lib/core/lock-manager.js';
import { currentLock } from '../../lib/nest/service/current-lock.js';
import { LockService } from '../../lib/nest/service/lock.service.js';
import { MemoryLockProvider } from '../../lib/providers/memory/memory-lock-provider.js';
import { MemoryStore } from '../../lib/providers/memory/memory-store.js';
import type { LeaderTerm } from '../../lib/recipes/campaign.js';
import type { RunAsLeaderOptions } from '../../lib/recipes/leadership.js';
import type { LockManagerOptions } from '../../lib/core/lock-manager-options.js';
import { deferred, startManager, watch } from '../core/manager-rig.js';
import { ScriptedProvider } from '../core/scripted-provider.js';

/** A task that runs until the test ends it, whatever its signal does, and remembers its terms. */
class Stubborn {
  readonly terms: LeaderTerm[] = [];
  readonly #ends: ReturnType<typeof deferred<void>>[] = [];
  running = 0;

  readonly task = async (term: LeaderTerm): Promise<void> => {
    this.terms.push(term);
    const end = deferred();
    this.#ends.push(end);
    this.running += 1;
    try {
      await end.promise;
    } finally {
      this.running -= 1;
    }
  };

  get term(): LeaderTerm {
    return this.terms.at(-1)!;
  }

  end(): void {
    this.#ends.at(-1)?.resolve();
  }

  fail(error: unknown): void {
    this.#ends.at(-1)?.reject(error);
  }
}

/** A task as it should be: it ends when its signal aborts. */
class Obedient {
  readonly terms: LeaderTerm[] = [];

  readonly task = async (term: LeaderTerm): Promise<void> => {
    this.terms.push(term);
    await new Promise<void>((resolve) => term.signal.addEventListener('abort', () => resolve()));
  };
}

/** What was published about leaders. */
function followLeaders(locks: LockManager): object[] {
  const events: object[] = [];
  locks.events.on('elected', (event) => events.push({ elected: event }));
  locks.events.on('resigned', (event) => events.push({ resigned: event }));
  return events;
}

async function fleet(options: Partial<LockManagerOptions> = {}) {
  const store = new MemoryStore();
  const first = await startManager({ provider: new MemoryLockProvider({ store }), ...options });
  const { clock } = first;
  const second = await startManager({ provider: new MemoryLockProvider({ store }), clock });
  return {
    clock,
    locks: first.locks,
    log: first.log,
    events: followLeaders(first.locks),
    one: new LockService(first.locks),
    other: new LockService(second.locks),
    stopOther: () => second.locks.stop(),
  };
}

let one: LockService;
let other: LockService;
let locks: LockManager;
let clock: FakeClock;
let log: string[];
let events: object[];
let stopOther: () => Promise<void>;
beforeEach(async () => {
  ({ one, other, locks, clock, log, events, stopOther } = await fleet());
});

it('any process sees who leads, and nobody where the key is free or retained', async () => {
  const store = new MemoryStore();
  const { locks, clock } = await startManager({ provider: new MemoryLockProvider({ store }), instance: 'shop-1' });
  const second = await startManager({ provider: new MemoryLockProvider({ store }), clock, instance: 'shop-2' });
  const [one, other] = [new LockService(locks), new LockService(second.locks)];
  expect(await other.leader('prices')).toBeNull();
  const task = new Obedient();
  const controller = new AbortController();
  const campaign = one.runAsLeader('prices', task.task, { signal: controller.signal });
  await clock.advance(0);
  const leader = await other.leader('prices');
  expect(leader).toEqual({
    instance: 'shop-1',
    since: new Date(clock.wallTime()),
    fencingToken: task.terms[0]?.fencingToken,
  });
  expect(JSON.parse(JSON.stringify(leader))).toMatchObject({ fencingToken: String(leader?.fencingToken) });
  // A lock that no campaign took has a holder as well.
  const lock = await other.acquire('ledger', { minHold: '1m' });
  expect((await one.leader('ledger'))?.instance).toBe('shop-2');
  await lock.release();
  expect(await one.leader('ledger')).toBeNull();
  controller.abort();
  await campaign;
  expect(await other.leader('prices')).toBeNull();
  await expect(other.leader('')).rejects.toMatchObject({ code: 'LOCK_KEY' });
});

// Longer than the longest pause between two terms.
const A_PAUSE = 30_000;

describe('a campaign', () => {
  it('runs its task in one process at a time, and in the next when its signal has ended the first', async () => {
    const [first, second] = [new Obedient(), new Obedient()];
    const controller = new AbortController();
    const campaign = watch(one.runAsLeader('billing', first.task, { signal: controller.signal }));
    const rival = watch(other.runAsLeader('billing', second.task));
    await clock.advance(5_000);
    expect([first.terms.length, second.terms.length]).toEqual([1, 0]);
    expect([one.isLeader('billing'), other.isLeader('billing')]).toEqual([true, false]);

    controller.abort(new Error('enough'));
    expect(first.terms[0]?.signal.reason).toEqual(new Error('enough'));
    await campaign.promise;
    await clock.advance(0);
    expect([one.isLeader('billing'), other.isLeader('billing')]).toEqual([false, true]);
    expect([second.terms.length, rival.state]).toEqual([1, 'pending']);
    expect(second.terms[0]!.fencingToken! > first.terms[0]!.fencingToken!).toBe(true);
    const subject = { key: 'billing', provider: 'main', mode: 'exclusive', method: null, template: null };
    expect(events).toEqual([
      { elected: { ...subject, waited: 0, fencingToken: first.terms[0]?.fencingToken } },
      { resigned: { ...subject, reason: 'signal', ledFor: 5_000 } },
    ]);
  });

  it('keeps the lock until the task has really ended', async () => {
    const stubborn = new Stubborn();
    const controller = new AbortController();
    const campaign = watch(one.runAsLeader('billing', stubborn.task, { signal: controller.signal }));
    await clock.advance(0);
    controller.abort();
    // Many leases of 30 s.
    await clock.advance(600_000);
    expect([stubborn.term.signal.aborted, campaign.state]).toEqual([true, 'pending']);
    expect(one.isLeader('billing')).toBe(false);
    await expect(other.isLocked('billing')).resolves.toBe(true);
    stubborn.end();
    await campaign.promise;
    await expect(other.isLocked('billing')).resolves.toBe(false);
  });

  it('aborts the signal at the loss, and campaigns again when the old task has ended', async () => {
    const [stubborn, rival] = [new Stubborn(), new Obedient()];
    void one.runAsLeader('billing', stubborn.task);
    await clock.advance(1_000);
    void other.runAsLeader('billing', rival.task);
    const { signal } = stubborn.term;
    await locks.admin.forceRelease('billing');
    expect(signal.reason).toBeInstanceOf(LockLostError);
    await clock.advance(0);
    expect([one.isLeader('billing'), other.isLeader('billing')]).toEqual([false, true]);
    // The key becomes free, and still no second task starts beside the old one.
    await locks.admin.forceRelease('billing');
    await clock.advance(600_000);
    expect(stubborn.terms).toHaveLength(1);
    // What it throws by then is not a failure of a leader.
    stubborn.fail(new Error('the resource refused a stale token'));
    await clock.advance(0);
    expect(events.at(-1)).toMatchObject({ resigned: { reason: 'lost', ledFor: 1_000 } });
    await locks.admin.forceRelease('billing');
    await clock.advance(A_PAUSE);
    await locks.admin.forceRelease('billing');
    await clock.advance(A_PAUSE);
    expect(stubborn.terms).toHaveLength(2);
  });

  it('pauses between two terms for a random time, which grows while terms are short', async () => {
    const elections: number[] = [];
    locks.events.on('elected', () => elections.push(clock.now()));
    void one.runAsLeader('billing', async () => undefined);
    await clock.advance(120_000);
    const pauses = elections.slice(1).map((time, index) => time - elections[index]!);
    const longest = [1_000, 2_000, 4_000, 8_000, 16_000, 30_000, 30_000];
    for (const [index, pause] of pauses.slice(0, longest.length).entries()) {
      expect(pause).toBeGreaterThanOrEqual(longest[index]! / 2);
      expect(pause).toBeLessThanOrEqual(longest[index]!);
    }
    expect(pauses.length).toBeGreaterThanOrEqual(6);
    expect(pauses.every((pause) => longest.includes(pause))).toBe(false);
  });

  it('pauses longer and longer while its task fails soon after each election, also if it waits long for each', async () => {
    const provider = new ScriptedProvider();
    const asked: number[] = [];
    const failed: number[] = [];
    provider.onAcquire = async (_, grant) => {
      asked.push(clock.now());
      await new Promise<void>((resolve) => clock.setTimer(resolve, 60_000));
      return grant();
    };
    provider.onRelease = () => 'released';
    const { locks, clock } = await startManager({ provider });
    const crash = () => Promise.reject(new Error('The task fails.'));
    const onError = () => failed.push(clock.now());
    void new LockService(locks).leadership.run('billing', crash, locks.plan({ wait: Infinity }), { onError });
    await clock.advance(600_000);
    const pauses = asked.slice(1).map((time, index) => time - failed[index]!);
    expect(pauses.length).toBeGreaterThanOrEqual(6);
    for (const [index, longest] of [1_000, 2_000, 4_000, 8_000, 16_000, 30_000].entries()) {
      expect(pauses[index]).toBeGreaterThanOrEqual(longest / 2);
      expect(pauses[index]).toBeLessThanOrEqual(longest);
    }
  });

  it('pauses for a second at most after a loss, however many there were, so that the fleet is never without a leader for longer', async () => {
    const store = new MemoryStore();
    const first = await startManager({ provider: new MemoryLockProvider({ store }) });
    const { clock } = first;
    const start = () => startManager({ provider: new MemoryLockProvider({ store }), clock });
    const managers = [first, await start(), await start()].map(({ locks }) => locks);
    const services = managers.map((locks) => new LockService(locks));
    for (const service of services) void service.runAsLeader('billing', new Obedient().task);
    let longest = 0;
    for (let loss = 0; loss < 30; loss += 1) {
      await clock.advance(200);
      await managers[0]!.admin.forceRelease('billing');
      const lostAt = clock.now();
      while (!services.some((service) => service.isLeader('billing')) && clock.now() < lostAt + 60_000) {
        await clock.advance(10);
      }
      longest = Math.max(longest, clock.now() - lostAt);
    }
    expect(longest).toBeLessThanOrEqual(1_010);
  });

  it('pauses for a second at most after a long term', async () => {
    const stubborn = new Stubborn();
    void one.runAsLeader('billing', stubborn.task);
    for (const term of [1, 2, 3]) {
      await clock.advance(60_000);
      expect(stubborn.terms).toHaveLength(term);
      stubborn.end();
      await clock.advance(1_000);
      expect(events.at(-2)).toMatchObject({ resigned: { reason: 'task-ended' } });
    }
  });

  it('goes on while the backend is down, and leads when it is back', async () => {
    const provider = new ScriptedProvider();
    provider.onAcquire = () => {
      throw new LockUnavailableError('refused');
    };
    const { locks, clock } = await startManager({ provider });
    const obedient = new Obedient();
    const campaign = watch(new LockService(locks).runAsLeader('billing', obedient.task));
    await clock.advance(3_600_000);
    expect([campaign.state, obedient.terms.length]).toEqual(['pending', 0]);
    provider.onAcquire = (_, grant) => grant();
    await clock.advance(1_000);
    expect(obedient.terms).toHaveLength(1);
  });

  it('goes on after a refusal that comes later, and reports it; one at the first ask is a mistake of the caller', async () => {
    const provider = new ScriptedProvider();
    const refused = new LockConfigError('The database is read-only.');
    provider.onAcquire = (_, grant) => grant();
    provider.onRelease = () => 'released';
    const { locks, clock, log } = await startManager({ provider });
    const service = new LockService(locks);
    const stubborn = new Stubborn();
    const campaign = watch(service.runAsLeader('billing', stubborn.task));
    await clock.advance(0);
    provider.onAcquire = () => {
      throw refused;
    };
    stubborn.end();
    await clock.advance(120_000);
    expect([campaign.state, stubborn.terms.length]).toEqual(['pending', 1]);
    expect(log.join()).toContain('The database is read-only.');
    await expect(service.runAsLeader('other', stubborn.task)).rejects.toBe(refused);
    provider.onAcquire = (_, grant) => grant();
    await clock.advance(A_PAUSE);
    expect(stubborn.terms).toHaveLength(2);
  });

  it('pauses for a second at most when it fails after a long wait', async () => {
    const provider = new ScriptedProvider();
    let asks = 0;
    provider.onAcquire = async () => {
      asks += 1;
      await new Promise<void>((resolve) => clock.setTimer(resolve, 3_600_000));
      throw new LockCapacityError('No connection is free.');
    };
    const { locks, clock } = await startManager({ provider });
    void new LockService(locks).runAsLeader('billing', new Obedient().task);
    for (const ask of [1, 2, 3]) {
      await clock.advance(0);
      expect(asks).toBe(ask);
      await clock.advance(3_601_000);
    }
  });

  it('without a task ends when one with a task begins here, and does not begin beside it', async () => {
    const plan = locks.plan({ wait: Infinity });
    const idle = () => watch(one.leadership.runIdle('billing', plan, () => undefined));
    const first = idle();
    await clock.advance(0);
    expect(one.isLeader('billing')).toBe(true);
    const obedient = new Obedient();
    void one.runAsLeader('billing', obedient.task);
    const second = idle();
    await clock.advance(0);
    expect([first.state, second.state, obedient.terms.length]).toEqual(['fulfilled', 'fulfilled', 1]);
    expect(one.leadership.campaigns).toHaveLength(1);
  });

  it('is not limited by the time that the defaults of the module give to tasks', async () => {
    const { one, clock } = await fleet({ defaults: { maxHold: '1m', wait: '1s' } });
    const obedient = new Obedient();
    void one.runAsLeader('billing', obedient.task);
    await clock.advance(600_000);
    expect([obedient.terms.length, obedient.terms[0]?.signal.aborted]).toEqual([1, false]);
  });

  it('holds its lock for the lease that it was given', async () => {
    const [stubborn, rival] = [new Stubborn(), new Obedient()];
    void one.runAsLeader('billing', stubborn.task, { lease: '3s' });
    await clock.advance(0);
    void other.runAsLeader('billing', rival.task);
    await clock.advance(0);
    clock.block(2_900);
    expect(one.isLeader('billing')).toBe(true);
    clock.block(100);
    expect(one.isLeader('billing')).toBe(false);
  });
});

describe('a term', () => {
  it('ends by the clock, also if no timer has fired yet', async () => {
    const stubborn = new Stubborn();
    void one.runAsLeader('billing', stubborn.task);
    await clock.advance(0);
    const { signal } = stubborn.term;
    clock.block(40_000);
    expect(signal.aborted).toBe(true);
    expect(() => signal.throwIfAborted()).toThrow(LockLostError);
    expect(one.isLeader('billing')).toBe(false);
  });

  it('ends for what its task has left behind when the task ends', async () => {
    const stubborn = new Stubborn();
    void one.runAsLeader('billing', stubborn.task);
    await clock.advance(0);
    const { signal } = stubborn.term;
    stubborn.end();
    await clock.advance(0);
    expect([signal.aborted, one.isLeader('billing')]).toEqual([true, false]);
  });

  it('lets its task re-enter the lock', async () => {
    const inner: string[] = [];
    void one.runAsLeader('billing', () =>
      one.withLock('billing', async ({ key }) => inner.push(key), { wait: 0, within: currentLock('billing') }),
    );
    await clock.advance(0);
    expect(inner).toEqual(['billing']);
  });

  it('does not end by a release in its task', async () => {
    const rival = new Obedient();
    const end = deferred();
    const results: string[] = [];
    void one.runAsLeader('billing', async () => {
      results.push(await currentLock('billing').release());
      await end.promise;
    });
    void other.runAsLeader('billing', rival.task);
    await clock.advance(600_000);
    expect(results).toEqual(['nested']);
    expect([one.isLeader('billing'), rival.terms.length]).toEqual([true, 0]);
    end.resolve();
    await clock.advance(0);
    expect(rival.terms).toHaveLength(1);
  });

  it('does not end before what has joined it, which runs under its lock', async () => {
    const [stubborn, rival] = [new Stubborn(), new Obedient()];
    void one.runAsLeader('billing', stubborn.task);
    void other.runAsLeader('billing', rival.task);
    await clock.advance(0);
    const end = deferred();
    const seen: unknown[] = [];
    const joined = watch(
      one.leadership.runIfLeader('billing', one.manager.plan({}), async () => {
        seen.push(currentLock('billing').fencingToken);
        await end.promise;
        return 'done';
      })!,
    );
    stubborn.end();
    await clock.advance(600_000);
    // No second guest, no second leader.
    expect(one.leadership.runIfLeader('billing', one.manager.plan({}), () => 1)).toBeUndefined();
    expect([joined.state, rival.terms.length]).toEqual(['pending', 0]);
    end.resolve();
    await clock.advance(0);
    expect([joined.value, rival.terms.length]).toEqual(['done', 1]);
    expect(seen).toEqual([stubborn.term.fencingToken]);
    expect(log.filter((line) => !line.includes('returned less than a second'))).toEqual([]);
  });
});

describe('any number of campaigns', () => {
  it('under one signal listen to it once', async () => {
    const controller = new AbortController();
    const campaigns = Array.from({ length: 20 }, (_, index) =>
      one.runAsLeader(`billing:${index}`, new Obedient().task, { signal: controller.signal }),
    );
    await clock.advance(0);
    // Node warns from the eleventh.
    expect(getEventListeners(controller.signal, 'abort')).toHaveLength(1);
    controller.abort();
    await Promise.all(campaigns);
    expect(getEventListeners(controller.signal, 'abort')).toEqual([]);
    await locks.stop();
  });
});

describe('a term that ends between the election and the start of its task', () => {
  const ends: [string, (locks: LockManager, controller: AbortController) => unknown][] = [
    ['its signal', (_, controller) => controller.abort()],
    ['a stop of the application', (locks) => locks.stop()],
    ['a loss', (locks, controller) => locks.admin.forceRelease('billing').then(() => controller.abort())],
  ];
  it.each(ends)('starts no task that would never end, at whatever moment it is ended: %s', async (_, end) => {
    for (let moment = 0; moment < 60; moment += 1) {
      const { one, other, locks, clock } = await fleet();
      const controller = new AbortController();
      const obedient = new Obedient();
      const campaign = watch(one.runAsLeader('billing', obedient.task, { signal: controller.signal }));
      for (let microtask = 0; microtask < moment; microtask += 1) await Promise.resolve();
      const ended = watch(Promise.resolve(end(locks, controller)));
      await clock.advance(0);
      expect([moment, campaign.state, ended.state]).toEqual([moment, 'fulfilled', 'fulfilled']);
      await expect(other.isLocked('billing')).resolves.toBe(false);
    }
  });

  it('starts no task when it is ended by a listener of the event `elected`, or right after it', async () => {
    for (const isLater of [false, true]) {
      const { one, locks, clock, events } = await fleet();
      const controller = new AbortController();
      const elected = new Promise<void>((resolve) => {
        locks.events.on('elected', () => {
          if (isLater) resolve();
          else controller.abort();
        });
      });
      void elected.then(() => controller.abort());
      const obedient = new Obedient();
      const campaign = watch(one.runAsLeader('billing', obedient.task, { signal: controller.signal }));
      await clock.advance(0);
      expect([campaign.state, obedient.terms.length]).toEqual(['fulfilled', 0]);
      expect(events.at(-1)).toMatchObject({ resigned: { reason: 'signal' } });
    }
  });
});

it('has not resigned before the call that has joined the term has ended, for its caller as well', async () => {
  const order: string[] = [];
  locks.events.on('resigned', () => order.push('resigned'));
  const [stubborn, end] = [new Stubborn(), deferred()];
  void one.runAsLeader('billing', stubborn.task);
  await clock.advance(0);
  // As a decorated method calls it.
  const method = async () => await one.leadership.runIfLeader('billing', one.manager.plan({}), () => end.promise);
  const caller = async () => {
    await method();
    order.push('call has ended');
  };
  void caller();
  stubborn.end();
  await clock.advance(0);
  end.resolve();
  await clock.advance(0);
  expect(order).toEqual(['call has ended', 'resigned']);
});

describe('an error of the task', () => {
  it('ends the campaign with that very error, and the key is free', async () => {
    const stubborn = new Stubborn();
    const campaign = watch(one.runAsLeader('billing', stubborn.task));
    await clock.advance(0);
    const error = new Error('its own');
    stubborn.fail(error);
    await clock.advance(0);
    expect(campaign.error).toBe(error);
    expect(events.at(-1)).toMatchObject({ resigned: { reason: 'task-ended' } });
    await expect(other.isLocked('billing')).resolves.toBe(false);
  });

  it('is the same if it comes at once, and synchronously', async () => {
    const task = () => {
      throw new TypeError('a bug');
    };
    await expect(one.runAsLeader('billing', task)).rejects.toThrow(new TypeError('a bug'));
  });

  it('is reported before the resignation, which waits for what has joined the term', async () => {
    const stubborn = new Stubborn();
    const reported: unknown[] = [];
    const plan = locks.plan({ wait: Infinity });
    void one.leadership.run('billing', stubborn.task, plan, { onError: (error) => reported.push(error) });
    await clock.advance(0);
    const end = deferred();
    void one.leadership.runIfLeader('billing', one.manager.plan({}), () => end.promise);
    const error = new Error('its own');
    stubborn.fail(error);
    await clock.advance(5_000);
    expect(reported).toEqual([error]);
    expect(one.leadership.campaigns).toMatchObject([{ isLeading: false, overdue: 5_000 }]);
    await expect(other.isLocked('billing')).resolves.toBe(true);
    end.resolve();
    await clock.advance(A_PAUSE);
    expect([reported.length, stubborn.terms.length]).toEqual([1, 2]);
  });

  it('is ignored after the signal of the term has aborted', async () => {
    const stubborn = new Stubborn();
    const controller = new AbortController();
    const campaign = watch(one.runAsLeader('billing', stubborn.task, { signal: controller.signal }));
    await clock.advance(0);
    controller.abort();
    stubborn.fail(controller.signal.reason);
    await expect(campaign.promise).resolves.toBeUndefined();
  });
});

describe('a stop of the application', () => {
  it('ends what waits immediately and what leads when its task has ended, and leaves nothing behind', async () => {
    const [stubborn, waiting] = [new Stubborn(), new Obedient()];
    const campaign = watch(one.runAsLeader('billing', stubborn.task));
    await clock.advance(0);
    const rival = watch(other.runAsLeader('billing', waiting.task));
    await clock.advance(0);
    const stoppingOther = watch(stopOther());
    await clock.advance(0);
    expect([rival.state, stoppingOther.state, waiting.terms.length]).toEqual(['fulfilled', 'fulfilled', 0]);

    const stopping = watch(locks.stop());
    expect(stubborn.term.signal.aborted).toBe(true);
    await clock.advance(5_000);
    expect([campaign.state, stopping.state]).toEqual(['pending', 'pending']);
    stubborn.end();
    await clock.advance(0);
    expect([campaign.state, stopping.state]).toEqual(['fulfilled', 'fulfilled']);
    expect(events.at(-1)).toMatchObject({ resigned: { reason: 'shutdown', ledFor: 5_000 } });
    expect(clock.pendingTimers).toBe(0);
  });

  it('ends a campaign that pauses', async () => {
    const campaign = watch(one.runAsLeader('billing', async () => undefined));
    await clock.advance(0);
    await locks.stop();
    await campaign.promise;
    expect(campaign.state).toBe('fulfilled');
  });

  it('takes the lock of a task that ignores its signal after the grace', async () => {
    const { one, other, locks, clock } = await fleet({ shutdownGrace: '2s' });
    const stubborn = new Stubborn();
    const campaign = watch(one.runAsLeader('billing', stubborn.task));
    await clock.advance(0);
    const stopping = watch(locks.stop());
    await clock.advance(2_000);
    expect([stopping.state, campaign.state]).toEqual(['fulfilled', 'pending']);
    await expect(other.isLocked('billing')).resolves.toBe(false);
    stubborn.end();
    await campaign.promise;
    // Nothing begins after it.
    await expect(one.runAsLeader('billing', stubborn.task)).resolves.toBeUndefined();
    expect(stubborn.terms).toHaveLength(1);
  });
});

describe('what can never work', () => {
  const refused: [string, string, object, string][] = [
    ['an unknown provider', 'billing', { provider: 'redis' }, 'There is no lock provider "redis"'],
    ['an option that a leader has not', 'billing', { wait: 0 }, 'runAsLeader(): there is no option "wait": remove it'],
    ['a lease that is too short', 'billing', { lease: 10 }, '"lease"'],
    ['an empty key', '', {}, 'must not be empty'],
    ['several keys', ['a', 'b'] as unknown as string, {}, 'must be one string'],
  ];
  it.each(refused)('rejects: %s', async (_, key, options, message) => {
    await expect(one.runAsLeader(key, async () => undefined, options as RunAsLeaderOptions)).rejects.toThrow(message);
  });

  it('rejects under a lock of its own key, for which it would wait forever', async () => {
    const nested = one.withLock('billing', () => one.runAsLeader('billing', async () => undefined));
    await expect(nested).rejects.toMatchObject({ code: 'LOCK_DEADLOCK' });
  });

  it('asks no backend for a signal that has aborted before', async () => {
    const provider = new ScriptedProvider();
    const { locks } = await startManager({ provider });
    await new LockService(locks).runAsLeader('billing', async () => undefined, { signal: AbortSignal.abort() });
    expect(provider.order).toEqual([]);
  });
});

it('leads on the provider of the service', async () => {
  const { locks, clock } = await startManager({
    providers: { main: new MemoryLockProvider(), side: new MemoryLockProvider() },
    default: 'main',
  });
  const service = new LockService(locks);
  void service.via('side').runAsLeader('billing', new Obedient().task);
  await clock.advance(0);
  expect([service.isLeader('billing'), service.via('side').isLeader('billing')]).toEqual([false, true]);
});

it('never runs two tasks of one process at a time, nor lets two lead by the clock, whatever is lost', async () => {
  const services = [one, other];
  const running = [0, 0];
  let most = 0;
  for (const [index, service] of services.entries()) {
    void service.runAsLeader(
      'billing',
      async ({ signal }) => {
        running[index]! += 1;
        most = Math.max(most, running[index]!);
        await new Promise<void>((resolve) => signal.addEventListener('abort', () => resolve()));
        // It takes its time.
        await new Promise<void>((resolve) => clock.setTimer(resolve, 500));
        running[index]! -= 1;
      },
      { lease: '2s' },
    );
  }
  let elections = 0;
  for (const { events } of services) events.on('elected', () => (elections += 1));
  for (let step = 0; step < 300; step += 1) {
    if (step % 7 === 0) await locks.admin.forceRelease('billing');
    if (step % 11 === 0) clock.block(2_500);
    expect(services.filter((service) => service.isLeader('billing')).length).toBeLessThanOrEqual(1);
    await clock.advance(300);
    expect(services.filter((service) => service.isLeader('billing')).length).toBeLessThanOrEqual(1);
  }
  expect(most).toBe(1);
  expect(elections).toBeGreaterThan(10);
});

it('warns once of a task that returns at once, and pauses longer and longer after it', async () => {
  const warnings: string[] = [];
  const logger = {
    debug: () => undefined,
    warn: (message: string) => void warnings.push(message),
    error: () => undefined,
  };
  const { locks, clock } = await startManager({ provider: new MemoryLockProvider(), logger });
  const terms: number[] = [];
  void new LockService(locks).runAsLeader('billing', async () => {
    terms.push(clock.now());
  });
  await clock.advance(60_000);
  const pauses = terms.slice(1).map((time, index) => time - terms[index]!);
  for (const [index, longest] of [1_000, 2_000, 4_000, 8_000].entries()) {
    expect(pauses[index]).toBeGreaterThanOrEqual(longest / 2);
    expect(pauses[index]).toBeLessThanOrEqual(longest + 1);
  }
  expect(warnings).toEqual([expect.stringMatching(/The leader task of "billing" returned .* await work that ends/)]);
});
