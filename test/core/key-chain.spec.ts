import { LockBusyError } from '../../lib/api/errors.js';
import { acquireChannel } from '../../lib/core/events/channels.js';
import { deferred, startManager, watch } from './manager-rig.js';
import { type Ask, ScriptedProvider } from './scripted-provider.js';

/** Starts a manager on a backend that supports chained requests. The test provides every response. */
async function start(
  options: Parameters<typeof startManager>[0] = {},
  chains: ScriptedProvider['chains'] = () => true,
) {
  const provider = new ScriptedProvider();
  provider.chains = chains;
  provider.onRelease = () => 'released';
  provider.onRenew = (renewal) => Promise.resolve(provider.acknowledge(renewal));
  const manager = await startManager({ provider, ...options });
  /** Returns the latest request for a key. */
  const askFor = (key: string): Ask => {
    const ask = provider.asks.findLast(({ input }) => input.key === key);
    if (ask === undefined) throw new Error(`No request for "${key}" was sent.`);
    return ask;
  };
  const queue = (key: string) => {
    provider.queue(askFor(key).input.id);
  };
  /** Reports the key's request as queued; the requests behind it were not sent. */
  const queueFirst = async (key: string, ...behind: readonly string[]) => {
    queue(key);
    for (const each of behind) askFor(each).answer('not-asked');
    await manager.clock.advance(0);
  };
  const events = () => manager.events.map(({ name, event }) => `${name} ${(event as { key?: string }).key ?? ''}`);
  return { provider, askFor, queue, queueFirst, happened: events, ...manager };
}

describe('several keys on a backend with chained requests', () => {
  it('are requested in one tick, each after the previous one, and held when all are granted', async () => {
    const { provider, locks, clock, askFor, happened } = await start();
    const asked = watch(locks.acquire(['c', 'a', 'b']));
    expect(provider.order).toEqual(['acquire a', 'acquire b', 'acquire c']);
    const requests = provider.asks.map(({ input }) => input);
    expect(requests.map(({ after }) => after)).toEqual([undefined, requests[0], requests[1]]);
    expect(requests.map(({ otherKeysHeld }) => otherKeysHeld)).toEqual([0, 1, 2]);
    for (const key of ['a', 'b', 'c']) askFor(key).grant();
    await clock.advance(0);
    expect(asked.value?.keys).toEqual(['a', 'b', 'c']);
    expect(happened()).toEqual(['acquired a', 'acquired b', 'acquired c']);
    // The chain is unlinked, so that no request retains another.
    expect(requests.map(({ after }) => after)).toEqual([undefined, undefined, undefined]);
  });

  it('are waited for one at a time: keys behind a busy key are requested again, all together, once it is granted', async () => {
    const { provider, locks, clock, askFor, queueFirst, happened } = await start();
    const asked = watch(locks.acquire(['a', 'b', 'c', 'd'], { wait: 10_000 }));
    askFor('a').grant();
    await queueFirst('b', 'c', 'd');
    expect(happened()).toEqual(['acquired a', 'waiting b']);
    expect(locks.admin.waiting().map(({ key }) => key)).toEqual(['b']);
    await clock.advance(1_000);
    expect(provider.order.slice(4)).toEqual([]);
    const first = provider.asks.map(({ input }) => input.id);
    askFor('b').grant();
    await clock.advance(0);
    expect(provider.order.slice(4)).toEqual(['acquire c', 'acquire d']);
    const [c, d] = [askFor('c').input, askFor('d').input];
    expect([c.after, d.after]).toEqual([undefined, c]);
    expect([c, d].every(({ id }) => !first.includes(id))).toBe(true);
    // The call has reached these keys only now.
    expect([c.since, d.since]).toEqual([clock.now(), clock.now()]);
    askFor('c').grant();
    askFor('d').grant();
    await clock.advance(0);
    expect(asked.value?.keys).toEqual(['a', 'b', 'c', 'd']);
    expect(happened()).toEqual(['acquired a', 'waiting b', 'acquired b', 'acquired c', 'acquired d']);
    expect(provider.order.filter((call) => call.startsWith('release'))).toEqual([]);
  });

  it.each(['a', 'b', 'c'])('with wait: 0 fail at the first busy key, "%s", and report only that one', async (busy) => {
    const { provider, locks, clock, askFor, happened } = await start();
    const asked = watch(locks.acquire(['a', 'b', 'c'], { wait: 0, minHold: 60_000 }));
    const before = ['a', 'b', 'c'].filter((key) => key < busy);
    for (const key of before) askFor(key).grant();
    askFor(busy).answer('busy');
    for (const key of ['a', 'b', 'c'].filter((each) => each > busy)) askFor(key).answer('not-asked');
    await clock.advance(0);
    expect(asked.error).toBeInstanceOf(LockBusyError);
    expect(asked.error).toMatchObject({ key: busy });
    expect(happened()).toEqual([
      ...before.map((key) => `acquired ${key}`),
      `busy ${busy}`,
      ...before.toReversed().map((key) => `released ${key}`),
    ]);
    expect(provider.order.slice(3)).toEqual(before.toReversed().map((key) => `release ${key}`));
    expect(locks.admin.held()).toEqual([]);
    await clock.advance(60_000);
    expect(happened()).toHaveLength(2 * before.length + 1);
  });

  it('are released except for the first, which is retried, if no request gets a response', async () => {
    const { provider, locks, clock, askFor, happened } = await start();
    const asked = watch(locks.acquire(['a', 'b', 'c'], { wait: 10_000 }));
    const [a] = provider.asks.map(({ input }) => input.id);
    for (const key of ['a', 'b', 'c']) askFor(key).fail(new Error('response lost'));
    await clock.advance(0);
    expect(provider.order.slice(3)).toEqual(['release b', 'release c']);
    expect(locks.admin.waiting().map(({ key }) => key)).toEqual(['a']);
    await clock.advance(1_000);
    expect(provider.order.slice(5)).toEqual(['acquire a']);
    expect(askFor('a').input.id).toBe(a);
    askFor('a').grant();
    await clock.advance(0);
    expect(provider.order.slice(6)).toEqual(['acquire b', 'acquire c']);
    askFor('b').grant();
    askFor('c').grant();
    await clock.advance(0);
    expect(asked.value?.isHeld()).toBe(true);
    expect(happened()).toEqual(['unavailable ', 'acquired a', 'acquired b', 'acquired c']);
  });

  it('release a failed request behind others, and retry it when its turn comes', async () => {
    const { provider, locks, clock, askFor } = await start();
    const asked = watch(locks.acquire(['a', 'b', 'c'], { wait: 0 }));
    askFor('a').grant();
    askFor('b').fail(new Error('not a lock'));
    askFor('c').answer('not-asked');
    await clock.advance(0);
    expect(provider.order.slice(3)).toEqual(['release b', 'acquire b', 'acquire c']);
    askFor('b').fail(new Error('not a lock'));
    askFor('c').answer('not-asked');
    await clock.advance(0);
    expect(asked.error).toMatchObject({ code: 'LOCK_UNAVAILABLE', key: 'b' });
    expect(locks.admin.held()).toEqual([]);
  });

  it.each<[string, (ask: Ask) => void]>([
    ['is queued', () => undefined],
    ['is granted too late', (ask) => ask.grant({ validUntil: -1 })],
  ])('are never held behind a key that %s: a grant that arrives nevertheless is released', async (_, answer) => {
    const { provider, locks, clock, askFor, queue, happened } = await start();
    const asked = watch(locks.acquire(['a', 'b'], { wait: 10_000 }));
    if (answer.length === 0) queue('a');
    else answer(askFor('a'));
    askFor('b').grant();
    await clock.advance(0);
    expect(provider.order).toContain('release b');
    expect(happened()).not.toContain('acquired b');
    await clock.advance(1_000);
    askFor('a').grant();
    await clock.advance(0);
    askFor('b').grant();
    await clock.advance(0);
    expect(asked.value?.keys).toEqual(['a', 'b']);
    expect(happened().filter((each) => each.startsWith('acquired'))).toEqual(['acquired a', 'acquired b']);
  });

  it("release a grant that arrives before the previous key's grant, and request that key again afterward", async () => {
    const { provider, locks, clock, askFor, queue, happened } = await start();
    const asked = watch(locks.acquire(['a', 'b', 'c'], { wait: 10_000 }));
    queue('c');
    askFor('b').grant();
    await clock.advance(0);
    expect(happened()).toEqual([]);
    expect(provider.order).toContain('release b');
    askFor('a').grant();
    await clock.advance(0);
    expect(happened()).toEqual(['acquired a']);
    askFor('b').grant();
    await clock.advance(0);
    askFor('c').grant();
    await clock.advance(0);
    expect(asked.state).toBe('fulfilled');
    expect(happened()).toEqual(['acquired a', 'acquired b', 'acquired c']);
  });

  it('report `waiting` for a later key only when the call reaches it, even if it was queued before', async () => {
    const { locks, clock, askFor, queue, happened } = await start();
    const asked = watch(locks.acquire(['a', 'b', 'c'], { wait: 10_000 }));
    for (const key of ['a', 'b']) askFor(key).grant();
    queue('c');
    await clock.advance(0);
    expect(happened()).toEqual(['acquired a', 'acquired b', 'waiting c']);
    askFor('c').grant();
    await clock.advance(0);
    expect(asked.state).toBe('fulfilled');
  });

  it.each(['before any answer', 'while the second is queued', 'while the third is in flight'])(
    'are all released if the signal aborts %s',
    async (when) => {
      const { provider, locks, clock, askFor, queueFirst, happened } = await start();
      const controller = new AbortController();
      const asked = watch(locks.acquire(['a', 'b', 'c'], { signal: controller.signal, minHold: '1h' }));
      if (when !== 'before any answer') askFor('a').grant();
      if (when === 'while the second is queued') await queueFirst('b', 'c');
      if (when === 'while the third is in flight') askFor('b').grant();
      await clock.advance(0);
      controller.abort('enough');
      await clock.advance(0);
      expect(asked.error).toBe('enough');
      const released = provider.order.filter((call) => call.startsWith('release')).map((call) => call.slice(-1));
      expect(released.sort()).toEqual(when === 'while the second is queued' ? ['a', 'b'] : ['a', 'b', 'c']);
      expect(locks.admin.held()).toEqual([]);
      expect(locks.admin.waiting()).toEqual([]);
      // Grants that were in flight are released.
      for (const { input, grant } of provider.asks) {
        const isAnswered = !released.includes(input.key);
        if (!isAnswered) grant();
      }
      await clock.advance(60_000);
      expect(locks.admin.held()).toEqual([]);
      expect(happened().filter((each) => /busy|unavailable|lost/.test(each))).toEqual([]);
    },
  );

  it("fail with the first key's error if the backend does not respond, and report nothing for the others", async () => {
    const { provider, locks, clock, happened } = await start();
    const asked = watch(locks.acquire(['a', 'b', 'c'], { wait: 100 }));
    await clock.advance(5_000);
    expect(asked.error).toMatchObject({ code: 'LOCK_UNAVAILABLE', key: 'a' });
    expect(provider.order.slice(3)).toEqual(['release a', 'release b', 'release c']);
    expect(happened()).toEqual(['unavailable ']);
    expect(locks.admin.waiting()).toEqual([]);
  });

  it('get the full response time for each key', async () => {
    const { locks, clock, askFor } = await start();
    const asked = watch(locks.acquire(['a', 'b', 'c'], { wait: 0 }));
    // A caller that does not wait allows one second for each response.
    for (const key of ['a', 'b', 'c']) {
      await clock.advance(900);
      askFor(key).grant();
    }
    await clock.advance(0);
    expect(asked.value?.keys).toEqual(['a', 'b', 'c']);
  });

  it('are rejected by a shutdown midway', async () => {
    const { provider, locks, clock, askFor, happened } = await start();
    const asked = watch(locks.acquire(['a', 'b', 'c']));
    askFor('a').grant();
    await clock.advance(0);
    const stopped = watch(locks.stop());
    await clock.advance(10_000);
    expect(asked.error).toMatchObject({ code: 'LOCK_UNAVAILABLE', key: 'b' });
    expect(String(asked.error)).toContain('shutting down');
    expect(stopped.state).toBe('fulfilled');
    expect(provider.order.slice(3).sort()).toEqual(['release a', 'release b', 'release c']);
    expect(happened()).toEqual(['acquired a', 'released a']);
  });

  it('are lost when the second is granted if the first was lost while the second waited', async () => {
    const { provider, locks, clock, askFor, queueFirst, happened } = await start();
    const asked = watch(locks.acquire(['a', 'b', 'c'], { wait: 10_000 }));
    askFor('a').grant();
    await queueFirst('b', 'c');
    provider.revoke(askFor('a').input.id);
    askFor('b').grant();
    await clock.advance(0);
    expect(asked.error).toMatchObject({ code: 'LOCK_LOST', key: 'a' });
    expect(locks.admin.held()).toEqual([]);
    expect(happened()).toEqual(['acquired a', 'waiting b', 'lost a', 'acquired b', 'released b']);
    // The third key is not requested again.
    expect(provider.order).toEqual(['acquire a', 'acquire b', 'acquire c', 'release a', 'release b']);
  });

  it('are released if granted ahead when the call is aborted', async () => {
    const { provider, locks, clock, askFor, happened } = await start();
    const controller = new AbortController();
    locks.events.on('acquired', ({ key }) => {
      if (key === 'c') controller.abort(new Error('not needed anymore'));
    });
    const asked = watch(locks.acquire(['a', 'b', 'c'], { signal: controller.signal }));
    for (const key of ['a', 'b', 'c']) askFor(key).grant();
    await clock.advance(0);
    expect(asked.error).toBe(controller.signal.reason);
    expect(provider.order.slice(3)).toEqual(['release c', 'release b', 'release a']);
    expect(locks.admin.held()).toEqual([]);
    expect(happened()).toEqual(['acquired a', 'acquired b', 'acquired c', 'released c', 'released b', 'released a']);
  });

  it('count minHold from the moment when all keys are held', async () => {
    const { provider, locks, clock, askFor } = await start();
    const keeps: number[] = [];
    provider.onRelease = (_, { keepFor }) => {
      keeps.push(keepFor);
      return 'released';
    };
    const asked = watch(locks.acquire(['a', 'b'], { minHold: 60_000 }));
    askFor('a').grant();
    askFor('b').grant();
    await clock.advance(0);
    await asked.value?.release();
    expect(keeps).toEqual([60_000, 60_000]);
  });

  it.each(['granted', 'not sent'])(
    'take precedence over another call of this process that reaches one of them while they are in flight, if they are %s',
    async (outcome) => {
      const { provider, locks, clock, askFor, queueFirst, happened } = await start();
      const asked = watch(locks.acquire(['a', 'b'], { wait: 10_000 }));
      // As deeply nested, because other callers are in a separate queue of this process.
      const other = watch(locks.acquire(['0', 'b'], { wait: 10_000 }));
      expect(provider.order).toEqual(['acquire a', 'acquire b', 'acquire 0']);
      askFor('0').grant();
      await clock.advance(0);
      expect(happened()).toEqual(['acquired 0', 'waiting b']);
      if (outcome === 'granted') {
        askFor('a').grant();
        askFor('b').grant();
        await clock.advance(0);
        expect(asked.state).toBe('fulfilled');
        expect(other.state).toBe('pending');
        await asked.value?.release();
        askFor('b').grant();
        await clock.advance(0);
        expect(other.value?.keys).toEqual(['0', 'b']);
        return;
      }
      await queueFirst('a', 'b');
      // The other call can request the key immediately.
      expect(provider.order.slice(3)).toEqual(['acquire b']);
      askFor('b').grant();
      await clock.advance(0);
      expect(other.value?.keys).toEqual(['0', 'b']);
      askFor('a').grant();
      await clock.advance(0);
      expect(asked.state).toBe('pending');
      expect(happened().slice(2)).toEqual(['waiting a', 'acquired b', 'acquired a', 'waiting b']);
      const released = other.value?.release();
      await clock.advance(0);
      await released;
      askFor('b').grant();
      await clock.advance(0);
      expect(asked.state).toBe('fulfilled');
    },
  );

  it('do not affect the result of a call with wait: 0 that reaches one of them', async () => {
    const { locks, clock, askFor, queueFirst } = await start();
    const asked = watch(locks.acquire(['a', 'b'], { wait: 10_000 }));
    const other = watch(locks.tryAcquire(['0', 'b']));
    askFor('0').grant();
    await clock.advance(0);
    await queueFirst('a', 'b');
    askFor('b').grant();
    await clock.advance(0);
    expect(other.value?.keys).toEqual(['0', 'b']);
    expect(asked.state).toBe('pending');
  });

  it('are chained up to a key that this process holds or waits for, and again after it', async () => {
    const { provider, locks, clock, askFor } = await start();
    const other = watch(locks.acquire(['0', 'b'], { wait: 10_000 }));
    askFor('0').grant();
    askFor('b').grant();
    await clock.advance(0);
    const asked = watch(locks.acquire(['a', 'b', 'c', 'd'], { wait: 10_000 }));
    expect(provider.order.slice(2)).toEqual(['acquire a']);
    askFor('a').grant();
    await clock.advance(0);
    const released = other.value?.release();
    await clock.advance(0);
    await released;
    // The key that another call of this process held is requested on its own, before it is released.
    expect(provider.order.slice(3)).toEqual(['acquire b', 'release b', 'release 0']);
    askFor('b').grant();
    await clock.advance(0);
    expect(provider.order.slice(6)).toEqual(['acquire c', 'acquire d']);
    expect(askFor('d').input.after).toBe(askFor('c').input);
    askFor('c').grant();
    askFor('d').grant();
    await clock.advance(0);
    expect(asked.state).toBe('fulfilled');
  });

  it('exclude a key that is already held around them from the chain, but count it', async () => {
    const { provider, locks, clock, askFor } = await start({ defaults: { reentrant: true } });
    const inner = deferred();
    const outer = watch(
      locks.withLock('b', async () => {
        const lock = await locks.acquire(['a', 'b', 'c', 'd']);
        inner.resolve();
        return lock.keys;
      }),
    );
    askFor('b').grant();
    await clock.advance(0);
    expect(provider.order).toEqual(['acquire b', 'acquire a']);
    askFor('a').grant();
    await clock.advance(0);
    expect(provider.order.slice(2)).toEqual(['acquire c', 'acquire d']);
    expect(provider.asks.slice(1).map(({ input }) => input.otherKeysHeld)).toEqual([1, 2, 3]);
    expect(askFor('d').input.after).toBe(askFor('c').input);
    askFor('c').grant();
    askFor('d').grant();
    await clock.advance(0);
    expect(outer.value).toEqual(['a', 'b', 'c', 'd']);
  });

  it('are chained as far as the backend allows', async () => {
    const { provider, locks, clock, askFor } = await start({}, (key, next) => key[0] === next[0]);
    const asked = watch(locks.acquire(['a1', 'a2', 'b1', 'b2', 'c1']));
    expect(provider.order).toEqual(['acquire a1', 'acquire a2']);
    askFor('a1').grant();
    askFor('a2').grant();
    await clock.advance(0);
    expect(provider.order.slice(2)).toEqual(['acquire b1', 'acquire b2']);
    askFor('b1').grant();
    askFor('b2').grant();
    await clock.advance(0);
    askFor('c1').grant();
    await clock.advance(0);
    expect(asked.state).toBe('fulfilled');
  });

  it('have one span each, which covers the wait for that key', async () => {
    const spans: string[] = [];
    const say = (what: string) => (message: object) => {
      spans.push(`${what} ${(message as { key: string }).key}`);
    };
    const subscribers = { start: say('start'), asyncEnd: say('end'), error: say('error') } as never;
    acquireChannel.subscribe(subscribers);
    try {
      const { locks, clock, askFor, queueFirst } = await start();
      const asked = watch(locks.acquire(['a', 'b', 'c'], { wait: 10_000 }));
      await queueFirst('a', 'b', 'c');
      expect(spans).toEqual(['start a']);
      askFor('a').grant();
      await clock.advance(0);
      await queueFirst('b', 'c');
      expect(spans).toEqual(['start a', 'end a', 'start b']);
      askFor('b').grant();
      await clock.advance(0);
      askFor('c').grant();
      await clock.advance(0);
      expect(asked.state).toBe('fulfilled');
      expect(spans).toEqual(['start a', 'end a', 'start b', 'end b', 'start c', 'end c']);
    } finally {
      acquireChannel.unsubscribe(subscribers);
    }
  });
});
