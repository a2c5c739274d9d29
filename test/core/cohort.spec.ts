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
  /** Starts callers of one key, in this order. */
  const crowd = (...options: LockOptions[]) => options.map((each) => watch(rig.locks.acquire('a', each)));
  /** Responds to the last request with a grant that allows this many followers. */
  const grant = async (followers: number, token = 10n) => {
    provider.asks.at(-1)?.grant({ followers, fencingToken: token });
    await rig.clock.advance(0);
  };
  return { ...rig, provider, crowd, grant };
}

const states = (callers: readonly Outcome<Lock>[]) =>
  callers.map(({ value, error }) => (value ? value.isHeld() : error instanceof Error ? error.name : 'waits'));
/** Releases the caller's lock, after however many microtasks it takes to be granted. */
const end = async (caller: Outcome<Lock> | undefined) => {
  await new Promise(setImmediate);
  return caller?.value?.release();
};

describe('a cohort', () => {
  it('consists of the callers present at the grant, each with its own id and the next token', async () => {
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
    // The next request is sent before the release, so that the release sees all waiting processes.
    expect(provider.order).toEqual(['acquire a', 'acquire a', 'release a']);
    await grant(0, 13n);
    expect(late?.value?.fencingToken).toBe(13n);
  });

  it('keeps mutual exclusion among its callers', async () => {
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

  it('serves as many callers as the grant allows', async () => {
    const { clock, provider, crowd, grant } = await started();
    const callers = crowd({}, {}, {});
    await grant(1);
    await end(callers[0]);
    await end(callers[1]);
    await clock.advance(0);
    expect(states(callers)).toEqual([false, false, 'waits']);
    expect(provider.asks).toHaveLength(2);
  });

  it('is requested with the number of callers that it could serve', async () => {
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

  it('is requested for at most 64 callers', async () => {
    const { provider, crowd, grant } = await started();
    const counts: number[] = [];
    provider.onAcquire = ({ callers }) => void counts.push(callers);
    const [first] = crowd({});
    await grant(0);
    crowd(...Array.from({ length: 100 }, () => ({})));
    await end(first);
    expect(counts).toEqual([1, 64]);
  });

  it('admits no caller later than 10 ms after the grant', async () => {
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

  it.each<[string, LockOptions]>([['minHold', { minHold: 100 }]])(
    'does not form for callers with %s',
    async (_, options) => {
      const { crowd, grant, provider } = await started();
      const [first] = crowd(options, options);
      await grant(63);
      await end(first);
      expect(provider.asks).toHaveLength(2);
    },
  );

  it.each<[string, LockOptions]>([
    ['another lease', { lease: 5_000 }],
    ['another mode', { mode: 'shared' }],
    ['minHold', { minHold: 100 }],
  ])('excludes a caller with %s, and the callers behind it', async (_, options) => {
    const { clock, crowd, grant, provider } = await started();
    const callers = crowd({}, options, {});
    await grant(63);
    await end(callers[0]);
    await clock.advance(0);
    expect(states(callers)).toEqual([false, 'waits', 'waits']);
    expect(provider.asks).toHaveLength(2);
  });

  it('skips callers that have left', async () => {
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

describe('the end of a cohort', () => {
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
    ['a forceRelease by this process that has completed', (_, { locks }) => locks.admin.forceRelease('a')],
    ['a forceRelease by this process that is in flight', (_, { locks }) => void locks.admin.forceRelease('a')],
  ])('is caused by %s', async (_, happens) => {
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

  it('is caused by a loss', async () => {
    const { clock, provider, crowd, grant } = await started();
    const callers = crowd({}, {});
    await grant(63);
    provider.revoke(provider.asks[0]?.input.id ?? '');
    expect(await end(callers[0])).toBe('lost');
    await clock.advance(0);
    expect(states(callers)).toEqual([false, 'waits']);
    expect(provider.asks).toHaveLength(2);
  });

  it('is caused by the end of its lease', async () => {
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

  it('is caused by a maxHold within it', async () => {
    const { clock, provider, crowd, grant } = await started();
    const callers = crowd({}, { maxHold: 5 }, {});
    await grant(63);
    await end(callers[0]);
    await clock.advance(5);
    expect(states(callers)).toEqual([false, false, 'waits']);
    expect(callers[1]?.value?.signal.reason).toMatchObject({ reason: 'max-hold' });
    expect(provider.order).toEqual(['acquire a', 'acquire a', 'release a']);
  });

  it('is not caused by an unanswered renewal', async () => {
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
  it('applies a loss found by an earlier renewal to the current holder', async () => {
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

  it('applies a loss reported by the backend to the current holder', async () => {
    const { clock, provider, crowd, grant } = await started();
    const callers = crowd({}, {});
    await grant(63);
    await end(callers[0]);
    await clock.advance(0);
    provider.revoke(provider.asks[0]?.input.id ?? '');
    expect(callers[1]?.value?.isHeld()).toBe(false);
  });

  it('preserves the gain of an earlier extension, even if the response arrives after the handoff', async () => {
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

  it('keeps the id known to the backend for renewals and the release', async () => {
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

  it('skips a caller that aborts in the same tick', async () => {
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

  it('passes on limited shares within the process, without a token', async () => {
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
    // This caller has a higher weight, so it waits for its own grant.
    await end(callers[1]);
    await clock.advance(0);
    expect(callers[3]?.state).toBe('pending');
    expect(callers[2]?.value?.fencingToken).toBeNull();
    expect(provider.releases).toHaveLength(0);
    expect(provider.order.filter((call) => call === 'release a').length).toBeGreaterThan(0);
  });
});
