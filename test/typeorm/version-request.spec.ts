import { SeenHolders } from '../../lib/providers/shared/seen-holders.js';
import type { Clock } from '../../lib/api/clock.js';
import type { AcquireRequest, LockProvider } from '../../lib/api/lock-provider.js';
import { systemClock } from '../../lib/core/toolkit/clock.js';
import { validUntil } from '../../lib/core/toolkit/validity.js';
import type { LeaseTable } from '../../lib/providers/sql/version/lease-table.js';
import type { LockRow } from '../../lib/providers/sql/table/lock-table.js';
import { FREED, isGranted, type Lease, leaseOf } from '../../lib/providers/sql/version/lease.js';
import { type LeaseDatabase, VersionRequest } from '../../lib/providers/sql/version/version-request.js';
import { VersionLockBackend } from '../../lib/providers/sql/version/version-lock-backend.js';
import { FakeClock } from '../../lib/testing/fake-clock.js';
import { contextFor } from '../backend-context.js';
import { startManager } from '../core/manager-rig.js';
import { requestFor } from '../direct-backend.js';
import { until } from '../until.js';

const unseen = new SeenHolders({ id: '0123456789ab', name: 'host:1' }, (id) => Promise.resolve(id));
const turn = () => new Promise((resolve) => setImmediate(resolve));

/** A lease table whose statements the test answers in the order in which they were sent. */
function scripted(terms: Partial<AcquireRequest> = {}, others: Partial<LeaseTable> = {}, clock: Clock = systemClock) {
  const sent: string[] = [];
  const open: { resolve(answer: unknown): void; reject(error: Error): void }[] = [];
  const statement = (name: string) => () => {
    sent.push(name);
    return new Promise((resolve, reject) => open.push({ resolve, reject }));
  };
  const names = ['read', 'createRow', 'claim', 'renew', 'voidClaim', 'release', 'free'];
  const leases = { ...Object.fromEntries(names.map((name) => [name, statement(name)])), ...others };
  const ofPlaces = ['claim', 'reserve', 'renew', 'giveUp', 'release'].map(
    (name) => [name, statement(`${name} of a place`)] as const,
  );
  const limited = { leases, ...Object.fromEntries(ofPlaces) };
  const request = requestFor('k', 'me', terms);
  const database = { leases, limited } as unknown as LeaseDatabase;
  const attempt = new VersionRequest(contextFor([], { clock }), database, request, unseen);
  return {
    attempt,
    leave: () => {
      request.abort();
    },
    sent,
    async answer(answer: unknown) {
      open.shift()?.resolve(answer);
      await turn();
    },
    async fail() {
      open.shift()?.reject(new Error('No reply.'));
      await turn();
    },
  };
}

const heldBy = (holder: string, version: bigint, remaining: number): Lease => ({
  ...{ version, serverTime: 0, holders: null, pieces: [] },
  holds: [{ holder, token: version, limited: undefined, expires: remaining * 1000 }],
});
const busy = heldBy('other', 7n, 5);
const free: Lease = { version: 7n, serverTime: 0, holds: [], holders: null, pieces: [] };
const outcomeOf = (answer: Promise<unknown>) => Promise.race([answer, Promise.resolve('pending')]);

/** An attempt that retries after a claim without a reply. */
async function askedAgain() {
  const { fail, ...script } = scripted();
  const first = script.attempt.acquire();
  await script.answer(free);
  await fail();
  await expect(first).rejects.toThrow('No reply.');
  return { ...script, again: script.attempt.acquire() };
}

describe('a caller that leaves', () => {
  it('gets busy immediately while the row is held, even if a read is in flight', async () => {
    const { attempt, leave, sent, answer } = scripted();
    const acquired = attempt.acquire();
    await answer(busy);
    await until(() => sent.length === 2, 'it reads again');
    leave();
    expect(await acquired).toBe('busy');
    await answer(free);
    expect(sent).toEqual(['read', 'read']);
  });

  it('gets the outcome of a claim in flight', async () => {
    for (const [version, expected] of [
      [8n, expect.objectContaining({ fencingToken: 8n })],
      [undefined, 'busy'],
    ] as const) {
      const { attempt, leave, sent, answer } = scripted();
      const acquired = attempt.acquire();
      await answer(busy);
      await until(() => sent.length === 2, 'it reads again');
      await answer(free);
      expect(sent).toEqual(['read', 'read', 'claim']);
      leave();
      expect(await outcomeOf(acquired)).toBe('pending');
      await answer(version);
      await answer(busy);
      expect(await acquired).toEqual(expected);
    }
  });

  it('voids a claim that may still be granted with its release, and sends none after it', async () => {
    const { attempt, leave, sent, answer, again } = await askedAgain();
    leave();
    const released = attempt.release({ keepFor: 0, failed: true });
    await answer(free);
    expect(await again).toBe('busy');
    await answer(undefined);
    await answer(false);
    expect(await released).toBe('lost');
    expect(sent).toEqual(['read', 'claim', 'read', 'voidClaim', 'release']);
  });

  it('does not get busy while it waits and a claim may still be granted', async () => {
    const { leave, sent, answer, again } = await askedAgain();
    await answer({ ...busy, version: free.version });
    leave();
    await expect(again).rejects.toThrow(/may still acquire the lock/);
    expect(sent).toEqual(['read', 'claim', 'read']);
  });
});

describe('an attempt that has only read the row', () => {
  it('is released without a statement', async () => {
    const { attempt, sent, fail } = scripted({ wait: 0 });
    const acquired = attempt.acquire();
    await Promise.all([fail(), expect(acquired).rejects.toThrow('No reply.')]);
    expect(await attempt.release({ keepFor: 0, failed: true })).toBe('lost');
    expect(sent).toEqual(['read']);
  });

  it('sends no claim if it is released while it reads', async () => {
    const { attempt, sent, answer } = scripted();
    const acquired = attempt.acquire();
    expect(await attempt.release({ keepFor: 0, failed: true })).toBe('lost');
    await answer(free);
    expect(await acquired).toBe('busy');
    expect(sent).toEqual(['read']);
  });

  it('sends a release if it finds its own row', async () => {
    const { attempt, sent, answer } = scripted();
    const acquired = attempt.acquire();
    await answer(heldBy('me', 7n, 30_000));
    await answer(true);
    expect(await acquired).toMatchObject({ fencingToken: 7n });
    void attempt.release({ keepFor: 0, failed: true });
    expect(sent).toEqual(['read', 'renew', 'free']);
  });

  it('leaves nothing to retry after an outage with many callers', async () => {
    const sent = { read: 0, claim: 0, release: 0 };
    const refused = (statement: keyof typeof sent) => () => {
      sent[statement] += 1;
      return Promise.reject(new Error('connect ECONNREFUSED'));
    };
    const leases = { read: refused('read'), claim: refused('claim'), release: refused('release') };
    class Backend extends VersionLockBackend {
      protected override open(): Promise<LeaseDatabase> {
        const rest = { diagnose: () => [], close: () => Promise.resolve() };
        return Promise.resolve({ leases, ...rest } as unknown as LeaseDatabase);
      }

      override connect(): Promise<void> {
        return Promise.resolve();
      }
    }
    type Settings = ConstructorParameters<typeof VersionLockBackend>[1];
    const provider: LockProvider = {
      createBackend: (context) => new Backend(context, {} as Settings),
    };
    const { locks, clock } = await startManager({ provider, shutdownGrace: 0 });
    for (let call = 0; call < 100; call += 1) void locks.tryAcquire(`k${call}`).catch(() => undefined);
    await clock.advance(20_000);
    expect(sent.read).toBeGreaterThanOrEqual(100);
    expect(sent).toMatchObject({ claim: 0, release: 0 });
    await locks.stop();
    expect(clock.pendingTimers).toBe(0);
  });
});

describe('a lease found in the row', () => {
  const own = heldBy('me', 8n, 9_000);

  it('counts from a renewal, because the claim may not survive a failover', async () => {
    const clock = new FakeClock();
    const { attempt, sent, answer } = scripted({ lease: 10_000 }, {}, clock);
    const acquired = attempt.acquire();
    await clock.advance(500);
    await answer(own);
    const sentAt = clock.now();
    await clock.advance(500);
    expect(await outcomeOf(acquired)).toBe('pending');
    await answer(true);
    expect(await acquired).toMatchObject({ fencingToken: 8n, validUntil: validUntil(sentAt, 10_000) });
    expect(sent).toEqual(['read', 'renew']);
  });

  it('is neither granted nor busy without a reply to that renewal', async () => {
    for (const wait of [0, 60_000]) {
      const { attempt, leave, answer, fail } = scripted({ wait });
      const acquired = attempt.acquire();
      await answer(own);
      leave();
      expect(await outcomeOf(acquired)).toBe('pending');
      await Promise.all([fail(), expect(acquired).rejects.toThrow('No reply.')]);
    }
  });

  it('is claimed again if it has ended', async () => {
    const { attempt, sent, answer } = scripted({ wait: 0 });
    const acquired = attempt.acquire();
    await answer(own);
    await answer(false);
    await answer({ ...free, version: 8n });
    await answer(9n);
    expect(await acquired).toMatchObject({ fencingToken: 9n });
    expect(sent).toEqual(['read', 'renew', 'read', 'claim']);
  });

  it.each([
    ['without a renewal if its reservation was acknowledged', true, []],
    ['after a renewal if its reservation was not acknowledged', false, ['renew of a place']],
  ])('is granted %s', async (_, isAcknowledged, confirmed) => {
    const limited = { limit: 1, weight: 1 };
    const hold = { holder: 'me', token: 8n, limited, expires: 5_000_000 };
    const scene = scripted({ wait: 0, mode: 'limited', limited });
    const first = scene.attempt.acquire();
    await scene.answer(free);
    await scene.answer(undefined);
    await scene.answer(free);
    let acquired = first;
    if (isAcknowledged) await scene.answer(true);
    else {
      await Promise.all([scene.fail(), expect(first).rejects.toThrow('No reply.')]);
      acquired = scene.attempt.acquire();
    }
    scene.sent.length = 0;
    await scene.answer({ ...free, holds: [hold] });
    if (!isAcknowledged) await scene.answer(true);
    expect(await acquired).toMatchObject({ fencingToken: null });
    expect(scene.sent).toEqual(confirmed);
  });
});

describe('a reservation without a reply', () => {
  const limited = { limit: 2, weight: 1 };
  const reserveWithoutAnswer = async (clock: FakeClock) => {
    const scene = scripted({ wait: 0, mode: 'limited', limited }, {}, clock);
    const acquired = scene.attempt.acquire();
    await scene.answer(free);
    await scene.answer(undefined);
    await scene.answer(free);
    await Promise.all([scene.fail(), expect(acquired).rejects.toThrow('No reply.')]);
    expect(scene.sent).toEqual(['read', 'claim of a place', 'read', 'reserve of a place']);
    scene.sent.length = 0;
    return scene;
  };

  it('is released once it can no longer take effect', async () => {
    const clock = new FakeClock();
    const { attempt, sent, answer } = await reserveWithoutAnswer(clock);
    const released = attempt.release({ keepFor: 0, failed: true });
    await answer({ ...free, serverTime: 100_000 });
    await clock.advance(399);
    expect(sent).toEqual(['read']);
    await clock.advance(1);
    await answer(true);
    expect(await released).toBe('released');
    expect(sent).toEqual(['read', 'release of a place']);
  });

  it('is not reported as busy before that time', async () => {
    const { attempt, sent, answer } = await reserveWithoutAnswer(new FakeClock());
    const again = attempt.acquire();
    const full = { ...free, holds: [{ holder: 'other', token: 7n, limited: { limit: 1, weight: 1 }, expires: 5_000 }] };
    await Promise.all([answer(full), expect(again).rejects.toThrow(/may still acquire the lock/)]);
    const later = attempt.acquire();
    await answer({ ...full, serverTime: 500_001 });
    expect(await later).toBe('busy');
    expect(sent).toEqual(['read', 'read']);
  });
});

describe('a reserved position without room', () => {
  const limited = { limit: 1, weight: 1 };
  const rowOf = (...holders: readonly (readonly [holder: string, token: bigint])[]): Lease => {
    const holds = holders.map(([holder, token]) => ({ holder, token, limited, expires: 5_000_000 }));
    const pieces = holds.map((hold) => ({ text: '', hold, hasEnded: false, isFreed: false }));
    return { ...free, holds, holders: '', pieces };
  };

  it('is never granted once its release was sent, even if the release failed and there is room later', async () => {
    const { attempt, sent, answer, fail } = scripted({ wait: 0, mode: 'limited', limited });
    const first = attempt.acquire();
    await answer(free);
    await answer(undefined);
    await answer(free);
    await answer(true);
    await answer(rowOf(['other', 8n], ['me', 9n]));
    expect(sent.slice(3)).toEqual(['reserve of a place', 'read', 'giveUp of a place']);
    await Promise.all([fail(), expect(first).rejects.toThrow('No reply.')]);
    sent.length = 0;
    const again = attempt.acquire();
    await answer(rowOf(['me', 9n]));
    expect(await outcomeOf(again)).toBe('pending');
    await answer(true);
    await answer(rowOf());
    await answer(true);
    await answer(rowOf(['me', 10n]));
    expect(await again).toMatchObject({ fencingToken: null });
    expect(sent).toEqual(['read', 'giveUp of a place', 'read', 'reserve of a place', 'read']);
  });
});

describe('minHold of a claim whose reply was lost', () => {
  const durations = async (lease: number, minHold: number): Promise<number[]> => {
    const renewed: number[] = [];
    const clock = new FakeClock();
    const renew = (_held: unknown, duration: number) => {
      renewed.push(duration);
      return Promise.resolve(true);
    };
    const { attempt, answer, fail } = scripted({ wait: 0, lease, minHold }, { renew }, clock);
    const first = attempt.acquire();
    await answer(free);
    await Promise.all([fail(), expect(first).rejects.toThrow('No reply.')]);
    const again = attempt.acquire();
    await answer(heldBy('me', 8n, 1_000));
    const grant = await again;
    if (grant === 'busy') throw new Error('Expected a grant.');
    await attempt.renew(lease);
    await clock.advance(minHold);
    await attempt.renew(1_000);
    return renewed;
  };

  it('is kept by renewals, so a crash does not shorten it', async () => {
    expect(await durations(10_000, 60_000)).toEqual([60_000, 60_000, 1_000]);
  });

  it('ends on time, even if the claim was for a longer lease', async () => {
    expect(await durations(30_000, 10_000)).toEqual([30_000, 30_000, 1_000]);
  });
});

const held = heldBy('other', 7n, 5_000);

/** Requests for these keys, each after the one before it, on a table whose statements the test answers by name. */
function chainOf(keys: readonly string[], terms: Partial<AcquireRequest> = {}) {
  const sent: string[] = [];
  const open = new Map<string, { resolve(answer: unknown): void; reject(error: Error): void }>();
  const statement = (what: string) => (name: string) => {
    // The name of a row ends with its key.
    const label = `${what} ${name.split(':').at(-1)}`;
    sent.push(label);
    return new Promise((resolve, reject) => open.set(label, { resolve, reject }));
  };
  const ofHold = (what: string) => (hold: { readonly name: string }) => statement(what)(hold.name);
  const names = ['read', 'createRow', 'voidClaim', 'release'];
  const leases = {
    ...Object.fromEntries(names.map((name) => [name, statement(name)])),
    ...{ claim: ofHold('claim'), free: ofHold('free') },
  };
  const database = { leases, limited: { leases } } as unknown as LeaseDatabase;
  const requests: VersionRequest[] = [];
  const told: string[] = [];
  let after: AcquireRequest | undefined;
  for (const key of keys) {
    const request = requestFor(key, `by-${key}`, { after, ...terms });
    request.waits = () => void told.push(key);
    const own = new VersionRequest(contextFor(), database, request, unseen);
    request.state = own as never;
    requests.push(own);
    after = request;
  }
  const answers: unknown[] = [];
  return {
    sent,
    answers,
    told,
    requests,
    ask() {
      for (const [index, own] of requests.entries()) {
        void own.acquire().then(
          (answer) => (answers[index] = typeof answer === 'object' ? 'grant' : answer),
          (error: unknown) => (answers[index] = error),
        );
      }
    },
    async answer(label: string, answer: unknown) {
      open.get(label)?.resolve(answer);
      await turn();
    },
    async fail(label: string) {
      open.get(label)?.reject(new Error('No reply.'));
      await turn();
    },
  };
}

describe('several keys of a version lock', () => {
  it('are read together, and claimed one by one in order', async () => {
    const { ask, answer, sent, answers } = chainOf(['a', 'b', 'c']);
    ask();
    expect(sent).toEqual(['read a', 'read b', 'read c']);
    for (const key of ['c', 'b', 'a']) await answer(`read ${key}`, free);
    expect(sent.slice(3)).toEqual(['claim a']);
    await answer('claim a', 8n);
    expect(sent.slice(4)).toEqual(['claim b']);
    await answer('claim b', 8n);
    expect(answers).toEqual(['grant', 'grant']);
    await answer('claim c', 8n);
    expect(answers).toEqual(['grant', 'grant', 'grant']);
    expect(sent).toHaveLength(6);
  });

  it('are not claimed behind a key that waits', async () => {
    const { ask, answer, sent, answers, told, requests } = chainOf(['a', 'b', 'c', 'd']);
    ask();
    for (const key of ['a', 'c', 'd']) await answer(`read ${key}`, free);
    await answer('read b', held);
    await answer('claim a', 8n);
    // The key may have been freed since the read.
    expect(sent.slice(4)).toEqual(['claim a', 'read b']);
    expect(answers).toEqual(['grant']);
    await answer('read b', held);
    expect(told).toEqual(['b']);
    expect(answers).toEqual(['grant', undefined, 'not-asked', 'not-asked']);
    // No statement was sent for these.
    expect(await requests[2]?.release({ keepFor: 0, failed: true })).toBe('lost');
    expect(sent.filter((each) => /[cd]$/.test(each))).toEqual(['read c', 'read d']);
    await requests[1]?.release({ keepFor: 0, failed: true });
  });

  it('are claimed if a row that was held when read is free when its turn comes', async () => {
    const { ask, answer, answers } = chainOf(['a', 'b'], { wait: 0 });
    ask();
    await answer('read a', free);
    await answer('read b', held);
    await answer('claim a', 8n);
    await answer('read b', free);
    await answer('claim b', 8n);
    expect(answers).toEqual(['grant', 'grant']);
  });

  it('are read again if another claim was faster or a row was missing', async () => {
    const { ask, answer, sent, answers } = chainOf(['a', 'b', 'c'], { wait: 0 });
    ask();
    await answer('read a', free);
    await answer('read b', free);
    await answer('read c', undefined);
    await answer('claim a', 8n);
    await answer('claim b', undefined);
    expect(sent.at(-1)).toBe('read b');
    await answer('read b', { ...free, version: 8n });
    await answer('claim b', 9n);
    expect(sent.at(-1)).toBe('createRow c');
    await answer('createRow c', undefined);
    await answer('read c', free);
    await answer('claim c', 8n);
    expect(answers).toEqual(['grant', 'grant', 'grant']);
  });

  it.each(['busy', 'failed'])('are not claimed behind a key that is %s', async (outcome) => {
    const { ask, answer, fail, sent, answers } = chainOf(['a', 'b'], { wait: 0 });
    ask();
    await answer('read b', free);
    if (outcome === 'busy') await answer('read a', held);
    else await fail('read a');
    expect(answers).toEqual([outcome === 'busy' ? 'busy' : expect.any(Error), 'not-asked']);
    expect(sent).toEqual(['read a', 'read b']);
  });

  it('are read again if the first read failed', async () => {
    const { ask, answer, fail, answers } = chainOf(['a', 'b'], { wait: 0 });
    ask();
    await answer('read a', free);
    await fail('read b');
    await answer('claim a', 8n);
    await answer('read b', free);
    await answer('claim b', 8n);
    expect(answers).toEqual(['grant', 'grant']);
  });

  it('send nothing more after their release', async () => {
    const { ask, answer, sent, requests, answers } = chainOf(['a', 'b', 'c'], { wait: 0 });
    ask();
    for (const key of ['a', 'b', 'c']) await answer(`read ${key}`, free);
    expect(await requests[1]?.release({ keepFor: 0, failed: true })).toBe('lost');
    await answer('claim a', 8n);
    expect(answers).toEqual(['grant', 'not-asked', 'not-asked']);
    expect(sent.at(-1)).toBe('claim a');
  });
});

const NOW = 1_700_000_000_000_000;

/** A row with two limited holders for a limit of one. The lease of the first ends at this time. */
const rowWith = (end: string): LockRow => ({
  ...{ name: 'k', token: 2, holder: null, label: null, expires: NOW + 1_000_000, server_time: NOW },
  holders: `;first=${end},1,1,1;second=${NOW + 1_000_000},2,1,1`,
});

const isSecondGranted = (end: string) => {
  const lease = leaseOf(rowWith(end));
  return isGranted(lease, lease.pieces[1]!.hold);
};

it('a limited holder whose lease has ended takes its share until it is released, since a renewal may be in flight', () => {
  expect(isSecondGranted(String(NOW + 1))).toBe(false);
  expect(isSecondGranted(String(NOW - 1))).toBe(false);
  expect(isSecondGranted(FREED)).toBe(true);
});
