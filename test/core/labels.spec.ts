import { subscribe, unsubscribe } from 'node:diagnostics_channel';
import { inspect } from 'node:util';
import type { AcquireRequest, BackendContext } from '../../lib/api/lock-provider.js';
import type { LockOptions } from '../../lib/api/lock-options.js';
import type { AcquireTrace, HolderLabel, HoldTrace } from '../../lib/api/lock-traces.js';
import type { LockManager } from '../../lib/core/lock-manager.js';
import { MemoryBackend } from '../../lib/providers/memory/memory-backend.js';
import { MemoryLockProvider } from '../../lib/providers/memory/memory-lock-provider.js';
import { MemoryStore } from '../../lib/providers/memory/memory-store.js';
import { FakeClock } from '../../lib/testing/fake-clock.js';
import { startManager, watch } from './manager-rig.js';
import { ScriptedProvider } from './scripted-provider.js';

const PARENT = `00-${'a'.repeat(32)}-${'b'.repeat(16)}-01`;
const OTHER = `00-${'c'.repeat(32)}-${'d'.repeat(16)}-01`;

const leaving: (() => void)[] = [];
afterEach(() => {
  for (const leave of leaving.splice(0)) leave();
});

function listen(channel: string, listener: (message: unknown) => void): void {
  subscribe(channel, listener);
  leaving.push(() => unsubscribe(channel, listener));
}

/** Gives every hold from here on a span, chosen by its method, and records the label that each wait learns. */
function tracing(traceparents: Readonly<Record<string, string | null>> = {}) {
  const seen: (HolderLabel & { readonly by: string | null })[] = [];
  const traces: (AcquireTrace | HoldTrace)[] = [];
  listen('tracing:nestjs-distributed-lock:hold:start', (message) => {
    const trace = message as HoldTrace;
    const { method } = trace;
    trace.traceparent = method !== null && method in traceparents ? traceparents[method] : PARENT;
    traces.push(trace);
  });
  listen('tracing:nestjs-distributed-lock:acquire:start', (message) => {
    const trace = message as AcquireTrace;
    trace.onHolder = (label) => seen.push({ ...label, by: trace.method });
    traces.push(trace);
  });
  return { seen, traces };
}

const call = (locks: LockManager, method: string | null, options: LockOptions = {}, key = 'a') =>
  locks.acquirePlanned(locks.plan(options, { method, template: null }), key);

/** Starts three applications that share a store and a clock. */
async function applications() {
  const clock = new FakeClock();
  const store = new MemoryStore();
  const start = (instance: string) => startManager({ clock, instance, provider: new MemoryLockProvider({ store }) });
  return {
    clock,
    shop: (await start('shop')).locks,
    billing: (await start('billing')).locks,
    third: (await start('third')).locks,
  };
}

/** Records the labels it is given. The test chooses the label it returns. */
class LabellingProvider extends ScriptedProvider {
  readonly written: { readonly id: string; readonly text: string; readonly duration: number }[] = [];
  looks = 0;
  onLabelOf: () => Promise<string | null> = () => Promise.resolve(null);

  label({ id, key }: AcquireRequest, text: string, duration: number): void {
    this.order.push(`label ${key}`);
    this.written.push({ id, text, duration });
  }

  labelOf(): Promise<string | null> {
    this.looks += 1;
    return this.onLabelOf();
  }

  static override obliging(): LabellingProvider {
    const provider = new LabellingProvider();
    provider.onAcquire = (_, grant) => grant();
    provider.onRenew = (renewal) => Promise.resolve(provider.acknowledge(renewal));
    provider.onRelease = () => 'released';
    return provider;
  }
}

describe('the label of a long hold', () => {
  it('reaches a traced caller of another application only once, 250 ms into its wait', async () => {
    const { clock, shop, billing } = await applications();
    const { seen } = tracing();
    await call(shop, 'Orders.pay');
    await clock.advance(1_000);
    const waiting = watch(call(billing, 'Billing.close', { wait: 5_000 }));
    await clock.advance(249);
    expect(seen).toEqual([]);
    await clock.advance(1);
    expect(seen).toEqual([{ method: 'Orders.pay', traceparent: PARENT, by: 'Billing.close' }]);
    await clock.advance(3_000);
    expect(seen).toHaveLength(1);
    expect(waiting.state).toBe('pending');
  });

  it.each([
    ['a reader behind a writer', {}, { mode: 'shared' }, true],
    ['a writer behind a reader', { mode: 'shared' }, {}, false],
    ['a limited caller behind limited ones', { limit: 1 }, { limit: 1 }, false],
  ] as const)('reaches a caller only if an exclusive lock blocks it: %s', async (_, holds, waits, isLearned) => {
    const { clock, shop, billing } = await applications();
    const { seen } = tracing();
    await call(shop, 'Orders.pay', holds);
    await clock.advance(300);
    const waiting = watch(call(billing, 'Billing.close', { wait: 2_000, ...waits }));
    await clock.advance(1_000);
    expect(waiting.state).toBe('pending');
    expect(seen.map(({ method }) => method)).toEqual(isLearned ? ['Orders.pay'] : []);
  });

  it('is looked up again by a caller that came before the holder', async () => {
    const { clock, shop, billing, third } = await applications();
    const { seen } = tracing();
    const first = await call(shop, 'Orders.first');
    const second = watch(call(third, 'Orders.second', { wait: 5_000 }));
    const waiting = watch(call(billing, 'Billing.close', { wait: 5_000 }));
    await clock.advance(100);
    await first.release();
    await clock.advance(399);
    expect(second.state).toBe('fulfilled');
    expect(seen).toEqual([]);
    await clock.advance(1);
    expect(seen).toEqual([{ method: 'Orders.second', traceparent: PARENT, by: 'Billing.close' }]);
    expect(waiting.state).toBe('pending');
  });

  it('never belongs to an earlier holder', async () => {
    const { clock, shop, billing, third } = await applications();
    const { seen } = tracing();
    const first = await call(shop, 'Orders.first', { lease: 60_000 });
    const second = watch(call(third, 'Orders.second', { wait: 5_000 }));
    await clock.advance(300);
    expect(seen.splice(0)).toEqual([{ method: 'Orders.first', traceparent: PARENT, by: 'Orders.second' }]);
    const waiting = watch(call(billing, 'Billing.close', { wait: 5_000 }));
    await clock.advance(240);
    await first.release();
    await clock.advance(240);
    // The first lookup found the second holder, which had no label yet.
    expect(second.state).toBe('fulfilled');
    expect(seen).toEqual([]);
    await clock.advance(1_000);
    expect(seen.map(({ method }) => method)).toEqual(['Orders.second']);
    expect(waiting.state).toBe('pending');
  });

  it("contains a traceparent only if it is well-formed and the holder's span is sampled", async () => {
    const { clock, shop, billing } = await applications();
    const bad = [
      null,
      '00-0-0-01',
      `${PARENT}\n`,
      PARENT.toUpperCase(),
      PARENT.replace(/01$/, '00'),
      `01${PARENT.slice(2)}`,
    ];
    const zeros = [`00-${'0'.repeat(32)}-${'b'.repeat(16)}-01`, `00-${'a'.repeat(32)}-${'0'.repeat(16)}-01`];
    for (const [index, traceparent] of [...bad, ...zeros].entries()) {
      const { seen } = tracing({ 'Orders.pay': traceparent });
      await call(shop, 'Orders.pay', {}, `key${index}`);
      const waiting = watch(call(billing, null, { wait: 600 }, `key${index}`));
      await clock.advance(600);
      expect(waiting.state).toBe('rejected');
      expect(seen).toEqual([{ method: 'Orders.pay', traceparent: null, by: null }]);
      for (const leave of leaving.splice(0)) leave();
    }
  });

  it('does not appear in errors, events, the log, or copies of a trace', async () => {
    const provider = LabellingProvider.obliging();
    const { locks, clock, events, log } = await startManager({ provider });
    provider.onLabelOf = () => Promise.resolve(`${PARENT} Orders.pay`);
    const { seen, traces } = tracing({ 'Orders.pay': OTHER });
    await call(locks, 'Orders.pay');
    const refused = watch(call(locks, 'Orders.wait', { wait: 600 }));
    await clock.advance(600);
    expect(seen).toHaveLength(1);
    const shown = [
      refused.error,
      (refused.error as Error).message,
      events,
      log,
      traces,
      traces.map((each) => ({ ...each })),
    ];
    for (const each of shown) {
      expect(
        inspect(each, { depth: 9 }) +
          JSON.stringify(each, (_, value: unknown) => (typeof value === 'bigint' ? 0 : value)),
      ).not.toMatch(/a{32}|c{32}|onHolder|traceparent/);
    }
  });
});

describe('a hold', () => {
  it('is labeled after 250 ms, for the rest of its lease, and again with each renewal', async () => {
    const provider = LabellingProvider.obliging();
    const { locks, clock } = await startManager({ provider });
    tracing();
    const lock = await call(locks, 'Orders.pay', { lease: 3_000 });
    await clock.advance(249);
    expect(provider.written).toEqual([]);
    await clock.advance(1);
    const label = { id: lock.holder, text: `${PARENT} Orders.pay` };
    expect(provider.written).toMatchObject([label]);
    expect(provider.written[0]?.duration).toBeGreaterThan(2_600);
    expect(provider.written[0]?.duration).toBeLessThanOrEqual(2_750);
    await clock.advance(2_500);
    expect(provider.order).toEqual(['acquire a', 'label a', 'renew a', 'label a', 'renew a', 'label a']);
    expect(provider.written.slice(1)).toMatchObject([label, label]);
    for (const { duration } of provider.written.slice(1)) expect(duration).toBeGreaterThan(2_900);
    await lock.release();
    await clock.advance(10_000);
    expect(provider.written).toHaveLength(3);
  });

  it('is not labeled if it ends earlier, or without a tracing subscriber or a span', async () => {
    const provider = LabellingProvider.obliging();
    const { locks, clock } = await startManager({ provider });
    const untraced = await call(locks, 'Orders.pay');
    // The watchdog's timer.
    expect(clock.pendingTimers).toBe(1);
    listen('tracing:nestjs-distributed-lock:hold:start', () => undefined);
    const spanless = await call(locks, 'Orders.pay', {}, 'b');
    expect(clock.pendingTimers).toBe(1);
    tracing();
    const short = await call(locks, 'Orders.pay', {}, 'c');
    await clock.advance(249);
    await short.release();
    await clock.advance(30_000);
    for (const lock of [untraced, spanless]) expect(lock.isHeld()).toBe(true);
    expect(provider.written).toEqual([]);
  });

  it.each([{ mode: 'shared' }, { limit: 2 }] as const)(
    'is not labeled if it can be held concurrently: %j',
    async (terms) => {
      const provider = new LabellingProvider({ limits: true });
      provider.onAcquire = (_, grant) => grant();
      provider.onRelease = () => 'released';
      const { locks, clock } = await startManager({ provider });
      tracing();
      const lock = await call(locks, 'Orders.pay', terms);
      await clock.advance(5_000);
      expect(lock.isHeld()).toBe(true);
      expect(provider.written).toEqual([]);
    },
  );

  it('is not labeled if LockService acquired it outside a sampled span', async () => {
    const provider = LabellingProvider.obliging();
    const { locks, clock } = await startManager({ provider });
    listen('tracing:nestjs-distributed-lock:hold:start', (trace) => ((trace as HoldTrace).traceparent = null));
    await locks.acquire('a');
    await clock.advance(1_000);
    expect(provider.written).toEqual([]);
  });

  it('of a cohort is labeled by its current holder, under the id of the grant', async () => {
    const provider = new LabellingProvider();
    provider.onRelease = () => 'released';
    const { locks, clock } = await startManager({ provider });
    tracing({ 'Orders.second': OTHER });
    const [first, second] = ['Orders.first', 'Orders.second'].map((method) => watch(call(locks, method)));
    provider.asks[0]?.grant({ followers: 63 });
    await clock.advance(9);
    await first?.value?.release();
    await clock.advance(249);
    expect(second?.state).toBe('fulfilled');
    expect(provider.written).toEqual([]);
    await clock.advance(1);
    expect(provider.written).toMatchObject([{ id: provider.asks[0]?.input.id, text: `${OTHER} Orders.second` }]);
    await clock.advance(5_000);
    expect(provider.written).toHaveLength(1);
  });

  it('writes no label if it is lost before the check, as in a process that was stopped', async () => {
    const provider = LabellingProvider.obliging();
    const { locks, clock } = await startManager({ provider });
    tracing();
    await call(locks, 'Orders.pay', { lease: 3_000 });
    clock.block(3_000);
    await clock.advance(10_000);
    expect(provider.order).not.toContain('label a');
    expect(locks.admin.held()).toEqual([]);
  });

  it('writes no further labels after it is revoked or while renewals fail', async () => {
    const provider = LabellingProvider.obliging();
    const { locks, clock } = await startManager({ provider });
    tracing();
    const lock = await call(locks, 'Orders.pay', { lease: 3_000 });
    await clock.advance(500);
    provider.onRenew = () => Promise.resolve('unknown');
    await clock.advance(1_000);
    provider.onRenew = () => Promise.resolve('lost');
    await clock.advance(1_000);
    expect(lock.isHeld()).toBe(false);
    expect(provider.written).toHaveLength(1);
  });

  it('is labeled after a suspension of the machine only once the backend has confirmed it', async () => {
    const provider = LabellingProvider.obliging();
    const { locks, clock } = await startManager({ provider });
    tracing();
    await call(locks, 'Orders.pay', { lease: 30_000 });
    clock.suspend(60_000);
    await clock.advance(300);
    expect(provider.order).toEqual(['acquire a']);
    await clock.advance(10_000);
    expect(provider.order).toEqual(['acquire a', 'renew a', 'label a']);
  });

  it('survives a backend whose label() throws', async () => {
    const provider = LabellingProvider.obliging();
    provider.label = () => {
      throw new Error('No label');
    };
    const { locks, clock, log } = await startManager({ provider });
    tracing();
    const lock = await call(locks, 'Orders.pay', { lease: 3_000 });
    await clock.advance(10_000);
    expect(lock.isHeld()).toBe(true);
    expect(await lock.release()).toBe('released');
    expect(log).toEqual([]);
  });

  it('leaves no timer when the application stops', async () => {
    const { locks, clock } = await startManager({ provider: LabellingProvider.obliging(), shutdownGrace: 0 });
    tracing();
    await call(locks, 'Orders.pay');
    const stopped = watch(locks.stop());
    await clock.advance(1);
    expect(stopped.state).toBe('fulfilled');
    expect(clock.pendingTimers).toBe(0);
  });
});

describe('a traced wait', () => {
  /** Starts a caller that waits behind a holder of its own process, on a backend with the given label. */
  async function waitFor(labelOf: () => Promise<string | null>) {
    const provider = LabellingProvider.obliging();
    provider.onLabelOf = labelOf;
    const rig = await startManager({ provider });
    const { seen } = tracing();
    const lock = await call(rig.locks, 'Orders.pay', { lease: 30_000 });
    const waiting = watch(call(rig.locks, null, { wait: 2_000 }));
    return { ...rig, provider, seen, lock, waiting };
  }

  it.each([
    '',
    ' ',
    '-',
    '-x',
    '- ',
    PARENT.slice(1),
    `${PARENT} `,
    ` ${PARENT}`,
    `${PARENT}\n`,
    `${PARENT} Orders.pay\n`,
    `${PARENT} \u001b[31mOrders.pay`,
    `${PARENT} Orders\u202epay`,
    `${PARENT} ${'x'.repeat(201)}`,
    `${PARENT}-00 Orders.pay`,
    `${PARENT.replace(/01$/, '00')} Orders.pay`,
    `ff${PARENT.slice(2)} Orders.pay`,
    `${PARENT.toUpperCase()} Orders.pay`,
    `00-${'0'.repeat(32)}-${'b'.repeat(16)}-01 Orders.pay`,
    `00-${'a'.repeat(32)}-${'0'.repeat(16)}-01 Orders.pay`,
    `00-${'g'.repeat(32)}-${'b'.repeat(16)}-01 Orders.pay`,
    '{"traceparent":"x"}',
    'x'.repeat(1_000_000),
  ])('ignores a malformed label: %#', async (text) => {
    const { clock, provider, seen, waiting } = await waitFor(() => Promise.resolve(text));
    await clock.advance(1_500);
    expect(provider.looks).toBe(2);
    expect(seen).toEqual([]);
    expect(waiting.state).toBe('pending');
  });

  it.each<[string, () => Promise<string | null>]>([
    ['rejects', () => Promise.reject(new Error('NOPERM'))],
    ['does not respond', () => new Promise(() => undefined)],
    [
      'throws',
      () => {
        throw new Error('No label');
      },
    ],
  ])('continues without a label if the backend %s', async (_, labelOf) => {
    const { clock, seen, lock, waiting, log } = await waitFor(labelOf);
    await clock.advance(1_000);
    expect(waiting.state).toBe('pending');
    await lock.release();
    await clock.advance(0);
    expect(waiting.state).toBe('fulfilled');
    expect(seen).toEqual([]);
    expect(log).toEqual([]);
  });

  it('learns nothing if it ends during the lookup', async () => {
    let answer: ((text: string) => void) | undefined;
    const { clock, seen, lock, waiting } = await waitFor(() => new Promise((resolve) => (answer = resolve)));
    await clock.advance(300);
    await lock.release();
    await clock.advance(0);
    expect(waiting.state).toBe('fulfilled');
    answer?.(`${PARENT} Orders.pay`);
    await clock.advance(1_000);
    expect(seen).toEqual([]);
  });

  it('survives a subscriber that throws', async () => {
    const { locks, clock, log, provider, lock } = await waitFor(() => Promise.resolve(`${PARENT} Orders.pay`));
    let calls = 0;
    listen('tracing:nestjs-distributed-lock:acquire:start', (trace) => {
      (trace as AcquireTrace).onHolder = () => {
        calls += 1;
        throw new Error('The tracer is broken');
      };
    });
    const waiting = watch(locks.acquire('a', { wait: 5_000 }));
    await clock.advance(2_500);
    expect(calls).toBe(1);
    expect(provider.looks).toBe(2);
    await lock.release();
    await clock.advance(0);
    expect(waiting.state).toBe('fulfilled');
    expect(log).toEqual([]);
  });

  it("retains neither its trace nor its hold's request after it ends", async () => {
    const { gc } = globalThis as { gc?: () => void };
    if (!gc) throw new Error('Run node with --expose-gc.');
    const kept: WeakRef<object>[] = [];
    class Backend extends MemoryBackend {
      override acquire(request: AcquireRequest) {
        kept.push(new WeakRef(request));
        return super.acquire(request);
      }
    }
    const provider = { createBackend: (context: BackendContext) => new Backend(context, new MemoryStore()) };
    const { locks, clock } = await startManager({ provider });
    for (const operation of ['acquire', 'hold']) {
      listen(`tracing:nestjs-distributed-lock:${operation}:start`, (message) => {
        const trace = message as AcquireTrace & HoldTrace;
        trace.traceparent = PARENT;
        trace.onHolder = () => trace.key;
        kept.push(new WeakRef(trace));
      });
    }
    const work = async () => {
      const lock = await locks.acquire('a');
      await lock.release();
    };
    await work();
    await clock.advance(0);
    // The label that is due in 250 ms.
    expect(clock.pendingTimers).toBe(1);
    const isKept = () => kept.some((each) => each.deref() !== undefined);
    for (let turn = 0; turn < 50 && isKept(); turn += 1) {
      await new Promise(setImmediate);
      gc();
    }
    expect(kept).toHaveLength(3);
    expect(isKept()).toBe(false);
  });

  it('learns the holder of a chained key', async () => {
    const provider = LabellingProvider.obliging();
    provider.chains = () => true;
    provider.onAcquire = ({ key }, grant) => (key === 'a' ? grant() : undefined);
    provider.onLabelOf = () => Promise.resolve(`${PARENT} Orders.pay`);
    const { locks, clock } = await startManager({ provider });
    const { seen } = tracing();
    const waiting = watch(locks.acquirePlanned(locks.plan({}, { method: 'Orders.all', template: null }), ['a', 'b']));
    await clock.advance(0);
    provider.queue(provider.asks[0]?.input.id ?? '');
    await clock.advance(500);
    expect(provider.order).toEqual(['acquire a', 'acquire b', 'label a']);
    expect(waiting.state).toBe('pending');
    expect(seen).toEqual([{ method: 'Orders.pay', traceparent: PARENT, by: 'Orders.all' }]);
  });

  it('learns the holder of the second of several keys', async () => {
    const { clock, shop, billing } = await applications();
    const { seen } = tracing();
    await call(shop, 'Orders.pay', {}, 'b');
    const waiting = watch(
      billing.acquirePlanned(billing.plan({}, { method: 'Billing.all', template: null }), ['a', 'b']),
    );
    await clock.advance(500);
    expect(waiting.state).toBe('pending');
    expect(seen).toEqual([{ method: 'Orders.pay', traceparent: PARENT, by: 'Billing.all' }]);
  });

  it('looks up no label if it is not recorded or ends within 250 ms', async () => {
    const provider = LabellingProvider.obliging();
    const { locks, clock } = await startManager({ provider });
    await locks.acquire('a');
    listen('tracing:nestjs-distributed-lock:acquire:start', () => undefined);
    const unrecorded = watch(locks.acquire('a', { wait: 1_000 }));
    await clock.advance(1_000);
    expect(unrecorded.state).toBe('rejected');
    tracing();
    const short = watch(locks.acquire('a', { wait: 249 }));
    await clock.advance(2_000);
    expect(short.state).toBe('rejected');
    expect(provider.looks).toBe(0);
  });
});
