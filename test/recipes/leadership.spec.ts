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

/** A task that ignores its signal, runs until the test ends it, and records its terms. */
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

/** A well-behaved task, which ends when its signal aborts. */
class Obedient {
  readonly terms: LeaderTerm[] = [];

  readonly task = async (term: LeaderTerm): Promise<void> => {
    this.terms.push(term);
    await new Promise<void>((resolve) => term.signal.addEventListener('abort', () => resolve()));
  };
}

/** Collects the `elected` and `resigned` events. */
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

it('leader() returns the holder in any process, and null while the key is free or retained', async () => {
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
  // leader() also returns the holder of an ordinary lock.
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
  it('runs its task in one process at a time, and in the next one after the first is aborted', async () => {
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

  it('keeps the lock until the task ends', async () => {
    const stubborn = new Stubborn();
    const controller = new AbortController();
    const campaign = watch(one.runAsLeader('billing', stubborn.task, { signal: controller.signal }));
    await clock.advance(0);
    controller.abort();
    // Many times the 30 s lease.
    await clock.advance(600_000);
    expect([stubborn.term.signal.aborted, campaign.state]).toEqual([true, 'pending']);
    expect(one.isLeader('billing')).toBe(false);
    await expect(other.isLocked('billing')).resolves.toBe(true);
    stubborn.end();
    await campaign.promise;
    await expect(other.isLocked('billing')).resolves.toBe(false);
  });

  it('aborts the signal when the lock is lost, and campaigns again after the old task ends', async () => {
    const [stubborn, rival] = [new Stubborn(), new Obedient()];
    void one.runAsLeader('billing', stubborn.task);
    await clock.advance(1_000);
    void other.runAsLeader('billing', rival.task);
    const { signal } = stubborn.term;
    await locks.admin.forceRelease('billing');
    expect(signal.reason).toBeInstanceOf(LockLostError);
    await clock.advance(0);
    expect([one.isLeader('billing'), other.isLeader('billing')]).toEqual([false, true]);
    // The key becomes free, but no second task starts alongside the old one.
    await locks.admin.forceRelease('billing');
    await clock.advance(600_000);
    expect(stubborn.terms).toHaveLength(1);
    // An error thrown after the loss doesn't count as the leader's failure.
    stubborn.fail(new Error('the resource refused a stale token'));
    await clock.advance(0);
    expect(events.at(-1)).toMatchObject({ resigned: { reason: 'lost', ledFor: 1_000 } });
    await locks.admin.forceRelease('billing');
    await clock.advance(A_PAUSE);
    await locks.admin.forceRelease('billing');
    await clock.advance(A_PAUSE);
    expect(stubborn.terms).toHaveLength(2);
  });

  it('pauses between terms for a random time, which grows while terms are short', async () => {
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

  it('backs off while its task fails soon after each election, even if each election takes long', async () => {
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
    const crash = () => Promise.reject(new Error('The task failed.'));
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

  it('pauses at most one second after a loss, even after many losses', async () => {
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

  it('pauses at most one second after a long term', async () => {
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

  it('keeps campaigning while the backend is down, and leads once it recovers', async () => {
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

  it('rejects if the first request is refused, but logs a later refusal and keeps campaigning', async () => {
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

  it('pauses at most one second after a failure that took long', async () => {
    const provider = new ScriptedProvider();
    let asks = 0;
    provider.onAcquire = async () => {
      asks += 1;
      await new Promise<void>((resolve) => clock.setTimer(resolve, 3_600_000));
      throw new LockCapacityError('No connections available.');
    };
    const { locks, clock } = await startManager({ provider });
    void new LockService(locks).runAsLeader('billing', new Obedient().task);
    for (const ask of [1, 2, 3]) {
      await clock.advance(0);
      expect(asks).toBe(ask);
      await clock.advance(3_601_000);
    }
  });

  it('replaces an idle campaign while it has a task, whichever of them starts first', async () => {
    const plan = locks.plan({ wait: Infinity });
    const idle = (key: string) => watch(one.leadership.runIdle(key, plan, () => undefined));
    const first = idle('billing');
    await clock.advance(0);
    expect(one.isLeader('billing')).toBe(true);
    const obedient = new Obedient();
    const controller = new AbortController();
    void one.runAsLeader('billing', obedient.task, { signal: controller.signal });
    const failing = watch(one.runAsLeader('prices', () => Promise.reject(new RangeError('own'))));
    const second = idle('prices');
    await clock.advance(0);
    expect([obedient.terms.length, failing.error]).toEqual([1, new RangeError('own')]);
    controller.abort();
    await clock.advance(A_PAUSE);
    expect([one.isLeader('billing'), one.isLeader('prices')]).toEqual([true, true]);
    expect(one.leadership.campaigns).toHaveLength(2);
    one.leadership.end();
    await clock.advance(A_PAUSE);
    expect([first.state, second.state, one.leadership.campaigns]).toEqual(['fulfilled', 'fulfilled', []]);
  });

  it("ignores the module's default `maxHold` and `wait`", async () => {
    const { one, clock } = await fleet({ defaults: { maxHold: '1m', wait: '1s' } });
    const obedient = new Obedient();
    void one.runAsLeader('billing', obedient.task);
    await clock.advance(600_000);
    expect([obedient.terms.length, obedient.terms[0]?.signal.aborted]).toEqual([1, false]);
  });

  it('uses the configured lease', async () => {
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
  it('ends when the lease expires, even before any timer fires', async () => {
    const stubborn = new Stubborn();
    void one.runAsLeader('billing', stubborn.task);
    await clock.advance(0);
    const { signal } = stubborn.term;
    clock.block(40_000);
    expect(signal.aborted).toBe(true);
    expect(() => signal.throwIfAborted()).toThrow(LockLostError);
    expect(one.isLeader('billing')).toBe(false);
  });

  it('aborts its signal when the task ends, for work the task left running', async () => {
    const stubborn = new Stubborn();
    void one.runAsLeader('billing', stubborn.task);
    await clock.advance(0);
    const { signal } = stubborn.term;
    stubborn.end();
    await clock.advance(0);
    expect([signal.aborted, one.isLeader('billing')]).toEqual([true, false]);
  });

  it('lets its task reenter the lock', async () => {
    const inner: string[] = [];
    void one.runAsLeader('billing', () =>
      one.withLock('billing', async ({ key }) => inner.push(key), { wait: 0, within: currentLock('billing') }),
    );
    await clock.advance(0);
    expect(inner).toEqual(['billing']);
  });

  it('does not end when its task releases the lock', async () => {
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

  it('ends only after calls that joined it, which run under its lock', async () => {
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
    // No call joins after the task ended, and no other instance leads yet.
    expect(one.leadership.runIfLeader('billing', one.manager.plan({}), () => 1)).toBeUndefined();
    expect([joined.state, rival.terms.length]).toEqual(['pending', 0]);
    end.resolve();
    await clock.advance(0);
    expect([joined.value, rival.terms.length]).toEqual(['done', 1]);
    expect(seen).toEqual([stubborn.term.fencingToken]);
    expect(log.filter((line) => !line.includes('returned less than a second'))).toEqual([]);
  });
});

describe('many campaigns', () => {
  it('share one listener per signal', async () => {
    const controller = new AbortController();
    const campaigns = Array.from({ length: 20 }, (_, index) =>
      one.runAsLeader(`billing:${index}`, new Obedient().task, { signal: controller.signal }),
    );
    await clock.advance(0);
    // Node warns at 11 listeners.
    expect(getEventListeners(controller.signal, 'abort')).toHaveLength(1);
    controller.abort();
    await Promise.all(campaigns);
    expect(getEventListeners(controller.signal, 'abort')).toEqual([]);
    await locks.stop();
  });
});

describe('a term that ends between its election and the start of its task', () => {
  const ends: [string, (locks: LockManager, controller: AbortController) => unknown][] = [
    ['the signal', (_, controller) => controller.abort()],
    ['an application shutdown', (locks) => locks.stop()],
    ['a lost lock', (locks, controller) => locks.admin.forceRelease('billing').then(() => controller.abort())],
  ];
  it.each(ends)('leaves no task running when it is ended at any point by %s', async (_, end) => {
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

  it('starts no task when a listener for `elected` aborts the campaign during or right after the event', async () => {
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

it('resigns only after a call that joined the term has returned to its caller', async () => {
  const order: string[] = [];
  locks.events.on('resigned', () => order.push('resigned'));
  const [stubborn, end] = [new Stubborn(), deferred()];
  void one.runAsLeader('billing', stubborn.task);
  await clock.advance(0);
  // The way a decorated method calls it.
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

describe('an error thrown by the task', () => {
  it('rejects the campaign with that error and frees the key', async () => {
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

  it('rejects the campaign when thrown synchronously', async () => {
    const task = () => {
      throw new TypeError('a bug');
    };
    await expect(one.runAsLeader('billing', task)).rejects.toThrow(new TypeError('a bug'));
  });

  it('is reported before the leader resigns, which waits for calls that joined the term', async () => {
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

  it('frees the key even if reporting it fails', async () => {
    const stubborn = new Stubborn();
    const unreported = new Error('The log is closed.');
    const onError = () => {
      throw unreported;
    };
    const plan = locks.plan({ wait: Infinity });
    const campaign = watch(one.leadership.run('billing', stubborn.task, plan, { onError }));
    await clock.advance(0);
    stubborn.fail(new Error('its own'));
    await clock.advance(0);
    expect(campaign.error).toBe(unreported);
    await expect(other.isLocked('billing')).resolves.toBe(false);
  });

  it("is ignored once the term's signal has aborted", async () => {
    const stubborn = new Stubborn();
    const controller = new AbortController();
    const campaign = watch(one.runAsLeader('billing', stubborn.task, { signal: controller.signal }));
    await clock.advance(0);
    controller.abort();
    stubborn.fail(controller.signal.reason);
    await expect(campaign.promise).resolves.toBeUndefined();
  });
});

describe('an application shutdown', () => {
  it('ends waiting campaigns immediately and leading ones when their task ends, leaving no timers', async () => {
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

  it('ends a paused campaign', async () => {
    const campaign = watch(one.runAsLeader('billing', async () => undefined));
    await clock.advance(0);
    await locks.stop();
    await campaign.promise;
    expect(campaign.state).toBe('fulfilled');
  });

  it('takes the lock from a task that ignores its signal once the grace period is over', async () => {
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
    // No campaign starts after shutdown.
    await expect(one.runAsLeader('billing', stubborn.task)).resolves.toBeUndefined();
    expect(stubborn.terms).toHaveLength(1);
  });
});

describe('invalid calls', () => {
  const refused: [string, string, object, string][] = [
    ['an unknown provider', 'billing', { provider: 'redis' }, 'There is no lock provider "redis"'],
    ['an unsupported option', 'billing', { wait: 0 }, 'runAsLeader(): there is no option "wait": remove it'],
    ['a lease that is too short', 'billing', { lease: 10 }, '"lease"'],
    ['an empty key', '', {}, 'must not be empty'],
    ['several keys', ['a', 'b'] as unknown as string, {}, 'must be one string'],
  ];
  it.each(refused)('rejects %s', async (_, key, options, message) => {
    await expect(one.runAsLeader(key, async () => undefined, options as RunAsLeaderOptions)).rejects.toThrow(message);
  });

  it('rejects when called under a lock on its own key, which would deadlock', async () => {
    const nested = one.withLock('billing', () => one.runAsLeader('billing', async () => undefined));
    await expect(nested).rejects.toMatchObject({ code: 'LOCK_DEADLOCK' });
  });

  it('sends no request if the signal is already aborted', async () => {
    const provider = new ScriptedProvider();
    const { locks } = await startManager({ provider });
    await new LockService(locks).runAsLeader('billing', async () => undefined, { signal: AbortSignal.abort() });
    expect(provider.order).toEqual([]);
  });
});

it("leads on the service's provider", async () => {
  const { locks, clock } = await startManager({
    providers: { main: new MemoryLockProvider(), side: new MemoryLockProvider() },
    default: 'main',
  });
  const service = new LockService(locks);
  void service.via('side').runAsLeader('billing', new Obedient().task);
  await clock.advance(0);
  expect([service.isLeader('billing'), service.via('side').isLeader('billing')]).toEqual([false, true]);
});

it('never runs two tasks at once in a process or has two leaders, even when locks are lost', async () => {
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
        // The task takes a while to stop.
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

it('warns once about a task that returns immediately, and backs off', async () => {
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
