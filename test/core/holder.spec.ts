import { LockBusyError, LockUnavailableError } from '../../lib/api/errors.js';
import { startManager, deferred } from './manager-rig.js';
import { MemoryLockProvider } from '../../lib/providers/memory/memory-lock-provider.js';
import { MemoryStore } from '../../lib/providers/memory/memory-store.js';
import { FakeClock } from '../../lib/testing/fake-clock.js';
import { ScriptedProvider } from './scripted-provider.js';
import type { SeenHolder } from '../../lib/providers/shared/seen-holders.js';
import { SeenHolders } from '../../lib/providers/shared/seen-holders.js';
import { requestFor } from '../direct-backend.js';

/** Starts three applications that share a store and a clock. */
async function applications() {
  const clock = new FakeClock();
  const store = new MemoryStore();
  const start = (instance: string) => startManager({ clock, instance, provider: new MemoryLockProvider({ store }) });
  return { clock, shop: await start('shop'), billing: await start('billing'), third: await start('third') };
}

async function busy(refused: Promise<unknown>): Promise<LockBusyError> {
  const error: unknown = await refused.catch((reason: unknown) => reason);
  if (!(error instanceof LockBusyError)) throw new Error(`Expected a busy lock, but got ${String(error)}`);
  return error;
}

describe('the holder of a busy lock', () => {
  it('is in the error and the event with its instance and start if another application holds the lock', async () => {
    const { clock, shop, billing } = await applications();
    const since = new Date(clock.wallTime());
    await shop.locks.acquire('order:42');
    await clock.advance(39_000);
    const refused = busy(billing.locks.acquire('order:42', { wait: 2_000 }));
    await clock.advance(2_000);
    const error = await refused;
    const heldBy = { instance: 'shop', method: null, since, holders: 1 };
    expect(error.heldBy).toEqual(heldBy);
    expect(error.message).toMatch(
      /^Lock "order:42" \(provider "main"\) was busy for the whole wait of 2000 ms: instance "shop" has held it for 41 s\. Raise "wait"/,
    );
    expect(billing.events.at(-1)).toMatchObject({ name: 'busy', event: { key: 'order:42', waited: 2_000, heldBy } });
  });

  it('includes the method if the same process holds the lock', async () => {
    const { locks, clock } = await startManager({ instance: 'shop' });
    const since = new Date(clock.wallTime());
    await locks.acquirePlanned(locks.plan({}, { method: 'OrderService.pay', template: null }), 'a');
    await clock.advance(3);
    const error = await busy(locks.acquire('a', { wait: 0 }));
    expect(error.heldBy).toEqual({ instance: 'shop', method: 'OrderService.pay', since, holders: 1 });
    expect(error.message).toContain(
      'was busy: instance "shop" (OrderService.pay) has held it for 3 ms. This process holds it. Raise',
    );
  });

  it('is not blamed for the whole wait if it came after the caller', async () => {
    const { clock, shop, billing } = await applications();
    const first = await shop.locks.acquire('a');
    const second = shop.locks.acquire('a', { mode: 'exclusive' });
    await clock.advance(10);
    const refused = busy(billing.locks.acquire('a', { wait: 100 }));
    await clock.advance(97);
    await first.release();
    await second;
    await clock.advance(3);
    const error = await refused;
    expect(error.message).toContain(
      'for the whole wait of 100 ms: it changed hands; instance "shop" has now held it for 3 ms. Raise',
    );
    expect(error.heldBy).toMatchObject({ instance: 'shop', since: new Date(clock.wallTime() - 3) });
  });

  it.each([
    ['shared', { mode: 'shared' } as const, { wait: 0 }],
    ['limited', { limit: 2 } as const, { limit: 2, wait: 0 }],
  ])('is a number of holders for a %s lock', async (_, terms, refused) => {
    const { shop, billing, third } = await applications();
    await shop.locks.acquire('a', terms);
    await billing.locks.acquire('a', terms);
    const error = await busy(third.locks.acquire('a', refused));
    expect(error.heldBy).toEqual({ instance: null, method: null, since: null, holders: 2 });
    expect(error.message).toContain('was busy: 2 holders have it.');
  });

  it.each([
    ['seen long before', 800, 1_000, 'instance "shop" held it 1 s ago'],
    ['seen just now', 800, 1_950, 'instance "shop" has held it for 1 s'],
    ['seen when it had already held for longer than since then', -9_000, 1_000, 'instance "shop" has held it for 11 s'],
    ['of unknown age, seen before', null, 1_000, 'instance "shop" held it 1 s ago'],
    ['of unknown age, seen just now', null, 1_950, 'instance "shop" has it'],
    ['that arrived meanwhile', 1_200, 1_300, 'it changed hands; instance "shop" has now held it for 100 ms'],
  ])('is reported as last observed: a holder %s', async (_, since, seenAt, words) => {
    const provider = ScriptedProvider.obliging();
    provider.onAcquire = (request) => {
      request.waits();
      return new Promise<never>(() => undefined);
    };
    const backend = Object.assign(provider, {
      heldBy: () => ({ holders: 1, instance: 'shop', since, seenAt }),
    });
    const { locks, clock } = await startManager({ provider: backend });
    await clock.advance(1_000);
    const refused = busy(locks.acquire('a', { wait: 1_000 }));
    await clock.advance(1_000);
    expect((await refused).message).toContain(`for the whole wait of 1000 ms: ${words}. Raise`);
  });

  it('is null for a key that is only retained, and for a backend that does not know', async () => {
    const { shop, billing } = await applications();
    const retained = await shop.locks.acquire('a', { minHold: 1_000 });
    await retained.release();
    const provider = ScriptedProvider.obliging();
    provider.onAcquire = () => 'busy';
    const unknowing = await startManager({ provider });
    for (const { locks } of [billing, unknowing]) {
      const error = await busy(locks.acquire('a', { wait: 0 }));
      expect(error.heldBy).toBeNull();
      expect(error.message).toContain('was busy. Raise');
    }
  });

  describe('of a backend whose methods throw', () => {
    const broken = (): never => {
      throw new TypeError('a bug of the backend');
    };

    it('is unknown, and the lock is granted nevertheless', async () => {
      const provider = Object.assign(ScriptedProvider.obliging(), { heldBy: broken, unansweredFor: broken });
      const { locks, events } = await startManager({ provider });
      provider.onAcquire = undefined;
      const acquired = locks.acquire('a', { wait: 1_000 });
      const [ask] = provider.asks;
      ask?.input.waits();
      ask?.grant();
      const lock = await acquired;
      expect(lock.isHeld()).toBe(true);
      expect(events.map(({ name }) => name)).toEqual(['waiting', 'acquired']);
      expect(await lock.release()).toBe('released');
    });

    it('does not turn an outage into a busy lock for a caller whose wait is over', async () => {
      const provider = Object.assign(ScriptedProvider.obliging(), { unansweredFor: broken });
      provider.onAcquire = (request) => {
        request.waits();
        return new Promise<never>(() => undefined);
      };
      const { locks, clock } = await startManager({ provider });
      const refused = expect(locks.acquire('a', { wait: 1_000 })).rejects.toThrow(LockUnavailableError);
      await clock.advance(2_000);
      await refused;
    });
  });

  it('is left out of the serialized error', async () => {
    const { shop, billing } = await applications();
    await shop.locks.acquire('a');
    const error = await busy(billing.locks.acquire('a', { wait: 0 }));
    expect(error.heldBy).not.toBeNull();
    expect(Object.keys(error)).not.toContain('heldBy');
    expect(JSON.stringify(Object.assign({}, error))).not.toContain('holders');
    expect(error.toJSON()).not.toHaveProperty('heldBy');
  });
});

const OWN = { id: '00000000abcd', name: 'shop:1' };
const idOf = (number: number): string => number.toString(16).padStart(12, '0');
const by = (instance: string | null, rest: Partial<SeenHolder> = {}): SeenHolder => ({
  ...{ holders: 1, instance, heldFor: 400 },
  ...rest,
});
const settle = () => new Promise((resolve) => setImmediate(resolve));

describe('SeenHolders', () => {
  it('returns the last observed holders, with their age as of that request', () => {
    const holders = new SeenHolders(OWN, (id) => Promise.resolve(id));
    const request = requestFor('a', 'f'.repeat(32));
    expect(holders.heldBy(request)).toBeNull();
    holders.saw(request, by(OWN.id), 1_000);
    expect(holders.heldBy(request)).toEqual({ holders: 1, instance: 'shop:1', since: 600, seenAt: 1_000 });
    holders.saw(request, by(null, { holders: 3, heldFor: null }), 2_000);
    expect(holders.heldBy(request)).toEqual({ holders: 3, instance: null, since: null, seenAt: 2_000 });
    holders.saw(request, undefined, 3_000);
    expect(holders.heldBy(request)).toBeNull();
  });

  it("shows the holder's id until the name is read, which happens only once and at the location that the holder gives", async () => {
    const answer = deferred<string>();
    const reads: unknown[] = [];
    const holders = new SeenHolders(OWN, (...read) => {
      reads.push(read);
      return answer.promise;
    });
    const [one, other] = [requestFor('a', 'e'.repeat(32)), requestFor('b', 'f'.repeat(32))];
    holders.saw(one, by(idOf(7), { nameAt: '/locks/a/7' }), 0);
    holders.saw(other, by(idOf(7), { nameAt: '/locks/b/7' }), 0);
    expect(holders.heldBy(one)?.instance).toBe(idOf(7));
    answer.resolve('billing:2');
    await settle();
    expect([one, other].map((request) => holders.heldBy(request)?.instance)).toEqual(['billing:2', 'billing:2']);
    expect(reads).toEqual([[idOf(7), '/locks/a/7']]);
  });

  it('reads the name again on the next observation if a read failed', async () => {
    const answers = [Promise.reject(new Error('down')), Promise.resolve('billing:2')];
    const holders = new SeenHolders(OWN, () => answers.shift() ?? Promise.reject(new Error('read again')));
    const request = requestFor('a', 'f'.repeat(32));
    holders.saw(request, by(idOf(7)), 0);
    await settle();
    expect(holders.heldBy(request)?.instance).toBe(idOf(7));
    holders.saw(request, by(idOf(7)), 1);
    await settle();
    expect(holders.heldBy(request)?.instance).toBe('billing:2');
  });

  it('caches a thousand names, and evicts the oldest', async () => {
    const reads: string[] = [];
    const holders = new SeenHolders(OWN, (id) => {
      reads.push(id);
      return Promise.resolve(`name of ${id}`);
    });
    const request = requestFor('a', 'f'.repeat(32));
    const seeAll = async (from: number, to: number): Promise<void> => {
      for (let number = from; number <= to; number += 1) holders.saw(request, by(idOf(number)), 0);
      await settle();
    };
    await seeAll(1, 1_000);
    await seeAll(1, 1_000);
    expect(reads).toHaveLength(1_000);
    await seeAll(1_001, 1_001);
    await seeAll(2, 1_000);
    expect(reads).toHaveLength(1_001);
    await seeAll(1, 1);
    expect(reads).toHaveLength(1_002);
    expect(holders.heldBy(request)?.instance).toBe(`name of ${idOf(1)}`);
  });
});
