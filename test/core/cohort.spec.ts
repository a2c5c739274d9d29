import type { LockCapabilities } from '../../lib/api/lock-provider.js';
import { LockBusyError } from '../../lib/api/errors.js';
import type { LockOptions } from '../../lib/api/lock-options.js';
import type { Lock } from '../../lib/api/lock.js';
import { deferred, type Outcome, startManager, watch } from './manager-rig.js';
import { ScriptedProvider } from './scripted-provider.js';

async function started(capabilities: Partial<LockCapabilities> = {}) {
  const provider = new ScriptedProvider(capabilities);
  provider.onRelease = () => 'released';
  const rig = await startManager({ provider });
  /** Callers of one key, in this order. */
  const crowd = (...options: LockOptions[]) => options.map((each) => watch(rig.locks.acquire('a', each)));
  /** Answers the last request with a grant that may have so many followers. */
  const grant = async (followers: number, token = 10n) => {
    provider.asks.at(-1)?.grant({ followers, fencingToken: token });
    await rig.clock.advance(0);
  };
  return { ...rig, provider, crowd, grant };
}

const states = (callers: readonly Outcome<Lock>[]) =>
  callers.map(({ value, error }) => (value ? value.isHeld() : error instanceof Error ? error.name : 'waits'));
/** Releases the lock of a caller that was granted it by now, in however many turns of the microtask queue. */
const end = async (caller: Outcome<Lock> | undefined) => {
  await new Promise(setImmediate);
  return caller?.value?.release();
};

describe('a cohort', () => {
  it('has the callers that had come when it was granted, with ids of their own and the next tokens', async () => {
    const { clock, provider, crowd, grant } = await started();
    const callers = crowd({}, {}, {});
    await grant(63);
    const [late] = crowd({});
    for (const caller of callers) expect(await end(caller)).toBe('released');
    await clock.advance(0);
    expect(callers.map(({ value }) => value?.fencingToken)).toEqual([10n, 11n, 12n]);
    const ids = callers.map(({ value }) => value?.holder);
    expect(ids[0]).toBe(provider.asks[0]?.input.id);
    expect(new Set(ids).size).toBe(3);
    expect(late?.state).toBe('pending');
    // The next one is asked for before the release, so that the release sees all who wait.
    expect(provider.order).toEqual(['acquire a', 'acquire a', 'release a']);
    await grant(0, 13n);
    expect(late?.value?.fencingToken).toBe(13n);
  });

  it('excludes each of them from the others', async () => {
    const { locks, clock, crowd, grant } = await started();
    const callers = crowd({}, {}, {});
    await grant(63);
    for (const [index, caller] of callers.entries()) {
      await clock.advance(0);
      expect(states(callers).filter((state) => state === true)).toEqual([true]);
      expect(callers[index]?.value?.isHeld()).toBe(true);
      expect(locks.admin.held()).toHaveLength(1);
      await end(caller);
    }
    expect(locks.admin.held()).toEqual([]);
  });

  it('has as many as the grant allows', async () => {
    const { clock, provider, crowd, grant } = await started();
    const callers = crowd({}, {}, {});
    await grant(1);
    await end(callers[0]);
    await end(callers[1]);
    await clock.advance(0);
    expect(states(callers)).toEqual([false, false, 'waits']);
    expect(provider.asks).toHaveLength(2);
  });

  it('is asked for with the number of callers that it could serve, up to 64', async () => {
    const { clock, provider, crowd, grant } = await started();
    const counts: number[] = [];
    const ages: number[] = [];
    provider.onAcquire = ({ callers, since }) => void (counts.push(callers), ages.push(clock.now() - since));
    const [first] = crowd({});
    await grant(0);
    await clock.advance(30);
    crowd({}, {}, { mode: 'shared' }, {});
    await clock.advance(20);
    await end(first);
    expect([counts, ages]).toEqual([
      [1, 2],
      [0, 20],
    ]);
  });

  it('is asked for on behalf of 64 where more wait', async () => {
    const { provider, crowd, grant } = await started();
    const counts: number[] = [];
    provider.onAcquire = ({ callers }) => void counts.push(callers);
    const [first] = crowd({});
    await grant(0);
    crowd(...Array.from({ length: 100 }, () => ({})));
    await end(first);
    expect(counts).toEqual([1, 64]);
  });

  it('lets nobody in later than 10 ms after the grant', async () => {
    const { clock, provider, crowd, grant } = await started();
    const callers = crowd({}, {}, {});
    await grant(63);
    await clock.advance(10);
    await end(callers[0]);
    await clock.advance(1);
    expect(callers[1]?.value?.isHeld()).toBe(true);
    await end(callers[1]);
    await clock.advance(0);
    expect(states(callers)).toEqual([false, false, 'waits']);
    expect(provider.asks).toHaveLength(2);
  });

  it.each<[string, LockOptions]>([['minHold', { minHold: 100 }]])('does not form with %s', async (_, options) => {
    const { crowd, grant, provider } = await started();
    const [first] = crowd(options, options);
    await grant(63);
    await end(first);
    expect(provider.asks).toHaveLength(2);
  });

  it.each<[string, LockOptions]>([
    ['another lease', { lease: 5_000 }],
    ['another mode', { mode: 'shared' }],
    ['minHold', { minHold: 100 }],
  ])('does not include a caller with %s, nor those behind it', async (_, options) => {
    const { clock, crowd, grant, provider } = await started();
    const callers = crowd({}, options, {});
    await grant(63);
    await end(callers[0]);
    await clock.advance(0);
    expect(states(callers)).toEqual([false, 'waits', 'waits']);
    expect(provider.asks).toHaveLength(2);
  });

  it('passes over callers that have left', async () => {
    const leaving = new AbortController();
    const { clock, crowd, grant, provider } = await started();
    const callers = crowd({}, { signal: leaving.signal }, { wait: 5 }, {});
    await grant(63);
    leaving.abort('enough');
    await clock.advance(5);
    expect(callers[2]?.error).toBeInstanceOf(LockBusyError);
    await end(callers[0]);
    await clock.advance(0);
    expect(callers[3]?.value?.fencingToken).toBe(11n);
    expect(provider.order).toEqual(['acquire a']);
  });
});

describe('a cohort is ended', () => {
  type Rig = Awaited<ReturnType<typeof started>>;
  const acknowledging = ({ provider }: Rig) => {
    provider.onRenew = (renewal) => Promise.resolve(provider.acknowledge(renewal));
  };

  it.each<[string, (lock: Lock, rig: Rig) => unknown]>([
    [
      'an extension to another lease',
      (lock, rig) => {
        acknowledging(rig);
        return lock.extend(10_000);
      },
    ],
    [
      'a suspension of the machine',
      (_, { clock }) => {
        clock.suspend(5_000);
      },
    ],
    ['a forceRelease of this process that was answered', (_, { locks }) => locks.admin.forceRelease('a')],
    ['a forceRelease of this process that is in flight', (_, { locks }) => void locks.admin.forceRelease('a')],
  ])('by %s', async (_, happens) => {
    const rig = await started({ forceRelease: true });
    const { clock, provider, crowd, grant } = rig;
    Object.assign(provider, { forceRelease: () => Promise.resolve(true) });
    const callers = crowd({}, {});
    await grant(63);
    await happens(callers[0]?.value as Lock, rig);
    expect(callers[0]?.state).toBe('fulfilled');
    await end(callers[0]);
    await clock.advance(0);
    expect(callers[1]?.state).toBe('pending');
    expect(provider.order.filter((call) => !call.startsWith('renew'))).toEqual(['acquire a', 'acquire a', 'release a']);
  });

  it('by a loss', async () => {
    const { clock, provider, crowd, grant } = await started();
    const callers = crowd({}, {});
    await grant(63);
    provider.revoke(provider.asks[0]?.input.id ?? '');
    expect(await end(callers[0])).toBe('lost');
    await clock.advance(0);
    expect(states(callers)).toEqual([false, 'waits']);
    expect(provider.asks).toHaveLength(2);
  });

  it('by the end of its lease', async () => {
    const { clock, provider, crowd } = await started();
    const callers = crowd({ lease: 100 }, { lease: 100 });
    provider.asks[0]?.grant({ followers: 63, validUntil: clock.now() + 5 });
    await clock.advance(0);
    clock.block(5);
    expect(await end(callers[0])).toBe('lost');
    await clock.advance(0);
    expect(callers[1]?.state).toBe('pending');
    expect(provider.asks).toHaveLength(2);
  });

  it('by a maxHold inside it', async () => {
    const { clock, provider, crowd, grant } = await started();
    const callers = crowd({}, { maxHold: 5 }, {});
    await grant(63);
    await end(callers[0]);
    await clock.advance(5);
    expect(states(callers)).toEqual([false, false, 'waits']);
    expect(callers[1]?.value?.signal.reason).toMatchObject({ reason: 'max-hold' });
    expect(provider.order).toEqual(['acquire a', 'acquire a', 'release a']);
  });

  it('not by a renewal that is not answered', async () => {
    const { clock, crowd, grant } = await started();
    const callers = crowd({}, {});
    await grant(63);
    watch(callers[0]?.value?.extend() ?? Promise.resolve());
    await end(callers[0]);
    await clock.advance(0);
    expect(callers[1]?.value?.isHeld()).toBe(true);
  });
});

describe('a local handoff', () => {
  it('meets the loss of a renewal that was sent before it: the present holder has lost', async () => {
    const { clock, provider, crowd, grant, events } = await started();
    const callers = crowd({}, {}, {});
    await grant(63);
    watch(callers[0]?.value?.extend() ?? Promise.resolve());
    expect(await end(callers[0])).toBe('released');
    await clock.advance(0);
    provider.renewals[0]?.answer('lost');
    await clock.advance(0);
    expect(states(callers)).toEqual([false, false, 'waits']);
    expect(callers[1]?.value?.signal.reason).toMatchObject({ reason: 'revoked' });
    expect(await end(callers[1])).toBe('lost');
    expect(events.filter(({ name }) => name === 'lost')).toHaveLength(1);
    expect(provider.asks).toHaveLength(2);
  });

  it('meets what the backend reports of the request: the present holder has lost', async () => {
    const { clock, provider, crowd, grant } = await started();
    const callers = crowd({}, {});
    await grant(63);
    await end(callers[0]);
    await clock.advance(0);
    provider.revoke(provider.asks[0]?.input.id ?? '');
    expect(callers[1]?.value?.isHeld()).toBe(false);
  });

  it('keeps what an extension before it has gained, and the answer to one that comes after it', async () => {
    const { clock, provider, crowd, grant } = await started();
    const callers = crowd({}, {});
    await grant(63);
    await clock.advance(5);
    watch(callers[0]?.value?.extend() ?? Promise.resolve());
    await end(callers[0]);
    await clock.advance(0);
    const before = callers[1]?.value?.remaining() ?? 0;
    provider.renewals.forEach(({ input, answer }) => answer(provider.acknowledge(input)));
    await clock.advance(0);
    expect(callers[1]?.value?.remaining()).toBe(before + 5);
  });

  it('is renewed by the watchdog under the id that the backend knows, and released by it', async () => {
    const { clock, provider, crowd, grant } = await started();
    const callers = crowd({}, {});
    await grant(63);
    await end(callers[0]);
    const released: string[] = [];
    provider.onRenew = (renewal) => {
      expect(renewal.request.id).toBe(provider.asks[0]?.input.id);
      return Promise.resolve(provider.acknowledge(renewal));
    };
    provider.onRelease = ({ id }) => (released.push(id), 'released');
    await clock.advance(120_000);
    expect(callers[1]?.value?.isHeld()).toBe(true);
    expect(await end(callers[1])).toBe('released');
    expect(released).toEqual([provider.asks[0]?.input.id]);
    await clock.advance(60_000);
    expect(clock.pendingTimers).toBe(0);
  });

  it('that meets an abort in the same tick goes on to the next caller', async () => {
    const leaving = new AbortController();
    const { clock, provider, crowd, grant } = await started();
    const callers = crowd({}, { signal: leaving.signal }, {});
    await grant(63);
    const releasing = callers[0]?.value?.release();
    leaving.abort('too late');
    await releasing;
    await clock.advance(0);
    expect(callers[1]?.error).toBe('too late');
    expect(callers[2]?.value?.fencingToken).toBe(12n);
    expect(callers[2]?.value?.isHeld()).toBe(true);
    expect(provider.order).toEqual(['acquire a']);
  });

  it('does not happen once the application stops', async () => {
    const { locks, clock, provider, grant } = await started();
    const gate = deferred();
    const ran: number[] = [];
    const tasks = [1, 2, 3].map((task) =>
      watch(
        locks.withLock('a', async () => {
          ran.push(task);
          await gate.promise;
        }),
      ),
    );
    await grant(63);
    const stopping = watch(locks.stop());
    gate.resolve();
    await clock.advance(0);
    expect(ran).toEqual([1]);
    expect(tasks.map(({ state }) => state)).toEqual(['fulfilled', 'rejected', 'rejected']);
    expect([stopping.state, provider.order, clock.pendingTimers]).toEqual(['fulfilled', ['acquire a', 'release a'], 0]);
  });

  it('gives limited shares on inside the process, without a token', async () => {
    const { clock, provider, crowd } = await started({ limits: true });
    const callers = crowd({ limit: 2 }, { limit: 2 }, { limit: 2 }, { limit: 2, weight: 2 });
    for (let each = 0; each < 2; each += 1) {
      provider.asks.at(-1)?.grant({ followers: 63, fencingToken: null });
      await clock.advance(0);
    }
    provider.queue(provider.asks.at(-1)?.input.id ?? '');
    expect(states(callers)).toEqual([true, true, 'waits', 'waits']);
    await end(callers[0]);
    await clock.advance(0);
    expect(states(callers)).toEqual([false, true, true, 'waits']);
    // It wants more, so it waits for a grant of its own.
    await end(callers[1]);
    await clock.advance(0);
    expect(callers[3]?.state).toBe('pending');
    expect(callers[2]?.value?.fencingToken).toBeNull();
    expect(provider.releases).toHaveLength(0);
    expect(provider.order.filter((call) => call === 'release a').length).toBeGreaterThan(0);
  });
});
