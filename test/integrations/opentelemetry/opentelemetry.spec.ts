import { readFileSync } from 'node:fs';
import { AsyncLocalStorage } from 'node:async_hooks';
import {
  type Context,
  context,
  type ContextManager,
  diag,
  ROOT_CONTEXT,
  SpanStatusCode,
  trace,
  type TracerProvider,
} from '@opentelemetry/api';
import {
  AggregationTemporality,
  type DataPoint,
  type Histogram,
  InMemoryMetricExporter,
  MeterProvider,
  PeriodicExportingMetricReader,
} from '@opentelemetry/sdk-metrics';
import {
  AlwaysOffSampler,
  BasicTracerProvider,
  InMemorySpanExporter,
  SimpleSpanProcessor,
} from '@opentelemetry/sdk-trace-base';
import { Cron, ScheduleModule, SchedulerRegistry } from '@nestjs/schedule';
import {
  DistributedLock,
  LockLostError,
  LockManager,
  LockService,
  MemoryLockProvider,
  RunAsLeader,
  RunOnce,
} from '../../../lib/index.js';
import { DistributedLockInstrumentation } from '../../../lib/integrations/opentelemetry/index.js';
import { deferred, startManager, watch } from '../../core/manager-rig.js';
import { ScriptedProvider } from '../../core/scripted-provider.js';
import { start, until } from '../../nest/apps.js';
import { MemoryStore } from '../../../lib/providers/memory/memory-store.js';
import { FakeClock } from '../../../lib/testing/fake-clock.js';

/** Works like the context manager of the Node SDK, which isn't a dependency of this repository. */
class AsyncContexts implements ContextManager {
  readonly #storage = new AsyncLocalStorage<Context>();
  active = () => this.#storage.getStore() ?? ROOT_CONTEXT;
  with = ((active, task, self, ...args) =>
    this.#storage.run(active, () => task.apply(self as never, args))) as ContextManager['with'];
  bind = <T>(_: Context, target: T) => target;
  enable = () => this;
  disable = () => this;
}

const spans = new InMemorySpanExporter();
const tracerProvider = new BasicTracerProvider({ spanProcessors: [new SimpleSpanProcessor(spans)] });
let instrumentation: DistributedLockInstrumentation;
let exporter: InMemoryMetricExporter;
let meterProvider: MeterProvider;

beforeAll(() => context.setGlobalContextManager(new AsyncContexts()));
afterAll(() => {
  context.disable();
});
beforeEach(() => {
  spans.reset();
  exporter = new InMemoryMetricExporter(AggregationTemporality.CUMULATIVE);
  meterProvider = new MeterProvider({
    readers: [new PeriodicExportingMetricReader({ exporter, exportIntervalMillis: 60_000 })],
  });
  instrumentation = new DistributedLockInstrumentation();
  instrumentation.setTracerProvider(tracerProvider);
  instrumentation.setMeterProvider(meterProvider);
  instrumentation.enable();
});
afterEach(async () => {
  instrumentation.disable();
  await meterProvider.shutdown();
});

const finished = () => spans.getFinishedSpans().map(({ name, attributes, status }) => ({ name, attributes, status }));
const OK = { code: SpanStatusCode.UNSET };

/** Returns the data points of a metric. */
async function points(name: string): Promise<readonly DataPoint<unknown>[]> {
  await meterProvider.forceFlush();
  const metrics =
    exporter
      .getMetrics()
      .at(-1)
      ?.scopeMetrics.flatMap((scope) => scope.metrics) ?? [];
  return metrics.find(({ descriptor }) => descriptor.name === name)?.dataPoints ?? [];
}

/** Returns the sums, or a histogram's counts, by outcome. */
async function byOutcome(name: string): Promise<Record<string, number>> {
  const count = (value: unknown) => (typeof value === 'number' ? value : (value as Histogram).count);
  const entries = (await points(name)).map(({ attributes, value }) => [
    attributes['distributed_lock.outcome'] ?? 'now',
    count(value),
  ]);
  return Object.fromEntries(entries) as Record<string, number>;
}

describe('spans', () => {
  it("a decorated call has acquire and hold spans under the caller's span, with the template but not the key", async () => {
    class Orders {
      @DistributedLock('order:#{id}')
      async pay(id: number) {
        return id;
      }
    }
    const app = await start({ providers: [Orders] });
    const tracer = tracerProvider.getTracer('test');
    const caller = tracer.startSpan('caller');
    await context.with(trace.setSpan(context.active(), caller), () => app.get(Orders).pay(4_711));
    caller.end();
    const attributes = {
      'distributed_lock.provider': 'memory',
      'distributed_lock.mode': 'exclusive',
      'distributed_lock.template': 'order:#{id}',
      'code.function.name': 'Orders.pay',
    };
    expect(finished()).toEqual([
      { name: 'lock.acquire', attributes: { ...attributes, 'distributed_lock.outcome': 'acquired' }, status: OK },
      { name: 'lock.hold', attributes: { ...attributes, 'distributed_lock.outcome': 'released' }, status: OK },
      { name: 'caller', attributes: {}, status: OK },
    ]);
    const [acquire, hold] = spans.getFinishedSpans();
    expect([acquire?.parentSpanContext, hold?.parentSpanContext].map((parent) => parent?.spanId)).toEqual([
      caller.spanContext().spanId,
      caller.spanContext().spanId,
    ]);
    expect(acquire?.instrumentationScope).toMatchObject({ name: 'nestjs-distributed-lock' });
  });

  it('a deadlock has the outcome `busy` and its own error type', async () => {
    const { locks, clock } = await startManager();
    const cross = (outer: string, inner: string) =>
      watch(
        locks.withLock(outer, async () => {
          await new Promise<void>((resolve) => clock.setTimer(resolve, 1));
          await locks.withLock(inner, () => undefined);
        }),
      );
    const both = [cross('a', 'b'), cross('b', 'a')];
    await clock.advance(4_000);
    expect(both.map(({ state }) => state).sort()).toEqual(['fulfilled', 'rejected']);
    const [span] = spans.getFinishedSpans().filter(({ attributes }) => attributes['error.type'] === 'LOCK_DEADLOCK');
    expect(span?.attributes).toMatchObject({ 'distributed_lock.outcome': 'busy' });
    expect(span?.status.code).not.toBe(SpanStatusCode.ERROR);
  });

  it('the outcome `busy` is not an error, but `unavailable` and `lost` are', async () => {
    const provider = ScriptedProvider.obliging();
    const { locks, clock } = await startManager({ provider });
    provider.onAcquire = () => 'busy';
    await locks.tryAcquire('a');
    provider.onAcquire = () => undefined;
    const cancelled = watch(locks.acquire('a', { signal: AbortSignal.abort() }));
    const controller = new AbortController();
    const leaving = watch(locks.acquire('a', { signal: controller.signal }));
    // Abort reasons need not be errors.
    controller.abort('the client has gone');
    await clock.advance(1_000);
    const unanswered = watch(locks.acquire('a', { wait: 0 }));
    await clock.advance(2_000);
    expect([cancelled, leaving, unanswered].map(({ state }) => state)).toEqual(['rejected', 'rejected', 'rejected']);
    provider.onAcquire = (_, grant) => grant();
    const lock = await locks.acquire('a');
    provider.revoke(lock.holder);
    await clock.advance(0);
    const told = finished().map(({ name, attributes, status }) => [
      name,
      attributes['distributed_lock.outcome'],
      attributes['error.type'],
      status.code === SpanStatusCode.ERROR,
    ]);
    // A call whose signal is already aborted has no span.
    expect(told).toEqual([
      ['lock.acquire', 'busy', 'LOCK_BUSY', false],
      ['lock.acquire', 'cancelled', '_OTHER', false],
      ['lock.acquire', 'unavailable', 'LOCK_UNAVAILABLE', true],
      ['lock.acquire', 'acquired', undefined, false],
      ['lock.hold', 'lost', 'LOCK_LOST', true],
    ]);
    expect(finished().at(-1)?.attributes['distributed_lock.loss.reason']).toBe('revoked');
  });

  it('spans include the key if configured', async () => {
    instrumentation.setConfig({ keys: true });
    const { locks, clock } = await startManager();
    await locks.withLock('order:no-4711', () => undefined);
    await clock.advance(0);
    expect(finished().map(({ attributes }) => attributes['distributed_lock.key'])).toEqual([
      'order:no-4711',
      'order:no-4711',
    ]);
  });

  it('spans and metrics do not contain the key by default, not even in a message', async () => {
    const { locks, clock } = await startManager();
    const lock = await locks.acquire('order:no-4711');
    const waiting = watch(locks.acquire('order:no-4711', { wait: 10 }));
    await clock.advance(10);
    expect(waiting.state).toBe('rejected');
    await lock.release();
    await clock.advance(0);
    const said = spans
      .getFinishedSpans()
      .map(({ name, attributes, status, events }) => [name, attributes, status, events]);
    expect(said).toHaveLength(3);
    expect(JSON.stringify(said)).not.toContain('no-4711');
    await meterProvider.forceFlush();
    expect(JSON.stringify(exporter.getMetrics())).not.toContain('no-4711');
  });
});

describe('the link from a waiting acquire span to the hold span', () => {
  /** Returns a lock that has been held for a second under its span. */
  async function held() {
    const rig = await startManager();
    const lock = await rig.locks.acquirePlanned(rig.locks.plan({}, { method: 'Orders.pay', template: null }), 'a');
    await rig.clock.advance(1_000);
    return { ...rig, lock };
  }
  const spansOf = (name: string) => spans.getFinishedSpans().filter((span) => span.name === name);

  it('is added after 250 ms', async () => {
    const { locks, clock, lock } = await held();
    const waits = [249, 251].map((wait) => watch(locks.acquire('a', { wait })));
    await clock.advance(300);
    expect(waits.map(({ state }) => state)).toEqual(['rejected', 'rejected']);
    await lock.release();
    await clock.advance(0);
    const [, short, long] = spansOf('lock.acquire');
    const [hold] = spansOf('lock.hold');
    expect(short?.links).toEqual([]);
    expect(short?.attributes).not.toHaveProperty('distributed_lock.holder.method');
    expect(long?.links.map(({ context: { traceId, spanId } }) => ({ traceId, spanId }))).toEqual([
      { traceId: hold?.spanContext().traceId, spanId: hold?.spanContext().spanId },
    ]);
    expect(long?.attributes).toMatchObject({
      'distributed_lock.outcome': 'busy',
      'distributed_lock.holder.method': 'Orders.pay',
    });
  });

  it('is neither added nor looked up if the acquire span is not sampled', async () => {
    const { locks, clock } = await held();
    instrumentation.setTracerProvider(new BasicTracerProvider({ sampler: new AlwaysOffSampler() }));
    const before = clock.pendingTimers;
    const waiting = watch(locks.acquire('a', { wait: 5_000 }));
    // Only the deadline's timer.
    expect(clock.pendingTimers).toBe(before + 1);
    await clock.advance(5_000);
    expect(waiting.state).toBe('rejected');
  });

  it('is not added without an SDK, and no label is written', async () => {
    instrumentation.setTracerProvider(trace.getTracerProvider());
    const { locks, clock } = await startManager();
    const before = clock.pendingTimers;
    await locks.acquirePlanned(locks.plan({}, { method: 'Orders.pay', template: null }), 'a');
    // Only the watchdog's timer.
    expect(clock.pendingTimers).toBe(before + 1);
  });

  it('is not added after the instrumentation is disabled', async () => {
    const { locks, clock } = await held();
    const warnings: unknown[] = [];
    const warn = (...words: unknown[]) => void warnings.push(words);
    const silent = () => undefined;
    diag.setLogger({ error: warn, warn, info: silent, debug: silent, verbose: silent });
    const waiting = watch(locks.acquire('a', { wait: 1_000 }));
    instrumentation.disable();
    await clock.advance(1_000);
    diag.disable();
    expect(waiting.state).toBe('rejected');
    expect(spansOf('lock.acquire').map(({ links }) => links)).toEqual([[], []]);
    expect(warnings).toEqual([]);
  });

  it.each(['startSpan', 'spanContext', 'isRecording', 'addLink', 'setAttribute', 'setAttributes', 'end'])(
    'does not affect locks if the SDK throws in %s',
    async (method) => {
      const fail = () => {
        throw new Error('The tracer is broken.');
      };
      const tracer = tracerProvider.getTracer('broken');
      const broken = {
        startSpan: (...args: Parameters<typeof tracer.startSpan>) =>
          method === 'startSpan' ? fail() : Object.assign(tracer.startSpan(...args), { [method]: fail }),
      };
      instrumentation.setTracerProvider({ getTracer: () => broken } as unknown as TracerProvider);
      const uncaught: unknown[] = [];
      const onUncaught = (error: unknown) => void uncaught.push(error);
      process.on('uncaughtException', onUncaught);
      try {
        const { locks, clock, lock, log } = await held();
        const waiting = watch(locks.acquire('a', { wait: 5_000 }));
        await clock.advance(600);
        expect(await lock.release()).toBe('released');
        await clock.advance(0);
        expect(waiting.state).toBe('fulfilled');
        expect(await waiting.value?.release()).toBe('released');
        await new Promise(setImmediate);
        expect(log).toEqual([]);
      } finally {
        process.off('uncaughtException', onUncaught);
      }
      expect(uncaught).toEqual([]);
    },
  );
});

describe('metrics', () => {
  it('count attempts and holds by outcome with durations in seconds, and show current waiters and holders', async () => {
    const provider = ScriptedProvider.obliging();
    const { locks, clock } = await startManager({ provider });
    const held = await locks.acquire('a');
    provider.onAcquire = () => undefined;
    const waiting = locks.acquire('a');
    expect(await byOutcome('distributed_lock.held')).toEqual({ now: 1 });
    expect(await byOutcome('distributed_lock.waiting')).toEqual({ now: 1 });
    // When a holder loses its lock, a request is sent for the callers behind it in the same process.
    provider.revoke(held.holder);
    await clock.advance(0);
    provider.asks[0]?.grant();
    await (await waiting).release();
    provider.onAcquire = () => 'busy';
    await locks.tryAcquire('a');
    await clock.advance(0);
    expect(await byOutcome('distributed_lock.held')).toEqual({ now: 0 });
    expect(await byOutcome('distributed_lock.waiting')).toEqual({ now: 0 });
    expect(await byOutcome('distributed_lock.acquire.duration')).toEqual({ acquired: 2, busy: 1 });
    expect(await byOutcome('distributed_lock.hold.duration')).toEqual({ lost: 1, released: 1 });
    for (const { value } of await points('distributed_lock.hold.duration')) {
      expect((value as Histogram & { max: number }).max).toBeLessThan(10);
    }
  });

  it('attribute contention to a template and at most eight holder instances, or to no instance without a template', async () => {
    const clock = new FakeClock();
    const store = new MemoryStore();
    const join = (instance: string) => startManager({ clock, instance, provider: new MemoryLockProvider({ store }) });
    const { locks } = await join('shop');
    const plans = [locks.plan({}, { method: 'Orders.pay', template: 'order:#{id}' }), locks.plan({})];
    for (let number = 1; number <= 12; number += 1) {
      const other = await join(`web-${number}`);
      for (const plan of plans) {
        const key = `order:${number}`;
        const held = await other.locks.acquire(key);
        const [first, second] = [locks.acquirePlanned(plan, key), locks.acquirePlanned(plan, key)];
        await clock.advance(1_000);
        await held.release();
        await clock.advance(500);
        await (await first).release();
        await (await second).release();
      }
    }
    const found = (await points('distributed_lock.contention.duration')).map(({ attributes, value }) => {
      const { count, sum, buckets } = value as Histogram;
      expect(buckets.boundaries).toEqual([]);
      return { ...attributes, count, sum };
    });
    const ofMethod = { 'distributed_lock.template': 'order:#{id}', 'code.function.name': 'Orders.pay' };
    const where = { 'distributed_lock.provider': 'main', 'distributed_lock.mode': 'exclusive' };
    const by = (blocker: string, instance?: string) => ({
      ...{ ...where, 'distributed_lock.blocked_by': blocker },
      ...(instance !== undefined && { 'distributed_lock.holder.instance': instance }),
    });
    const named = Array.from({ length: 8 }, (_, index) => ({
      ...{ ...ofMethod, ...by('holder', `web-${index + 1}`), count: 1, sum: 1 },
    }));
    expect(found).toHaveLength(12);
    expect(found).toEqual(
      expect.arrayContaining([
        ...named,
        { ...ofMethod, ...by('holder'), count: 4, sum: 4 },
        { ...ofMethod, ...by('queue'), count: 12, sum: 18 },
        { ...by('holder'), count: 12, sum: 12 },
        { ...by('queue'), count: 12, sum: 18 },
      ]),
    );
  });

  it('count renewals, unanswered renewals, and outages', async () => {
    const provider = ScriptedProvider.obliging();
    const { locks, clock } = await startManager({ provider });
    await locks.acquire('a', { lease: 3_000 });
    await clock.advance(1_000);
    provider.onRenew = () => Promise.reject(new Error('redis://user:secret@host is gone'));
    await clock.advance(1_300);
    expect(await byOutcome('distributed_lock.renewals')).toEqual({ renewed: 1, unanswered: 2 });
    expect(await points('distributed_lock.outages')).toMatchObject([
      { attributes: { 'distributed_lock.provider': 'main' }, value: 1 },
    ]);
    expect(JSON.stringify(exporter.getMetrics())).not.toContain('secret');
  });

  it('count skipped runs by job', async () => {
    const gate = deferred();
    class Jobs {
      @RunOnce('report', { minHold: 0 })
      async report() {
        await gate.promise;
      }
    }
    const app = await start({ providers: [Jobs] });
    const first = app.get(Jobs).report();
    await app.get(Jobs).report();
    gate.resolve();
    await first;
    expect(await points('distributed_lock.skipped')).toMatchObject([
      { attributes: { 'code.function.name': 'Jobs.report', 'distributed_lock.template': 'report' }, value: 1 },
    ]);
  });

  it("show a method's last success, ignoring runs that failed or lost their lock", async () => {
    let failure: Error | undefined;
    class Jobs {
      @RunOnce('report', { minHold: 0 })
      async report() {
        if (failure) throw failure;
      }
    }
    const provider = ScriptedProvider.obliging();
    const app = await start({ providers: [Jobs] }, { provider });
    const lastSuccess = async () =>
      (await points('distributed_lock.last_success')).map(({ attributes, value }) => ({
        method: attributes['code.function.name'],
        template: attributes['distributed_lock.template'],
        value: Number(value),
      }));
    await app.get(LockService).withLock('report', () => undefined);
    failure = new Error('The report failed.');
    await expect(app.get(Jobs).report()).rejects.toBe(failure);
    expect(await lastSuccess()).toEqual([]);
    failure = undefined;
    const before = Date.now() / 1000;
    await app.get(Jobs).report();
    const [first, ...others] = await lastSuccess();
    expect(first).toMatchObject({ method: 'Jobs.report', template: 'report' });
    expect(others).toEqual([]);
    expect(first!.value).toBeGreaterThanOrEqual(before);
    provider.onRelease = () => 'lost';
    await expect(app.get(Jobs).report()).rejects.toThrow(LockLostError);
    expect(await lastSuccess()).toEqual([first]);
  });

  it('show how long a job is overdue, in seconds', async () => {
    class Jobs {
      @Cron('* * * * * *')
      @RunOnce('report')
      async report() {}
    }
    const provider = new MemoryLockProvider();
    const app = await start({ imports: [ScheduleModule.forRoot()], providers: [Jobs] }, { provider });
    const overdue = async () => (await points('distributed_lock.job.overdue')) as readonly DataPoint<number>[];
    const [job, ...others] = await overdue();
    expect(others).toEqual([]);
    expect(job!.attributes).toEqual({
      'distributed_lock.provider': 'default',
      'distributed_lock.mode': 'exclusive',
      'distributed_lock.template': 'report',
      'code.function.name': 'Jobs.report',
    });
    const crons = [...app.get(SchedulerRegistry).getCronJobs().values()];
    for (const cron of crons) await cron.stop();
    let seconds = 0;
    while (seconds < 1.2) seconds = (await overdue())[0]!.value;
    await app.get(Jobs).report();
    expect((await overdue())[0]!.value).toBeLessThan(seconds);
  });

  it('count elections and resignations and show current leaderships, by method but not by key', async () => {
    const gate = deferred();
    class Billing {
      @RunAsLeader('billing')
      async run() {
        await gate.promise;
      }
    }
    const app = await start({ providers: [Billing] });
    const locks = app.get(LockService);
    void locks.runAsLeader('tenant:no-4711', () => deferred().promise);
    await until(() => locks.isLeader('billing') && locks.isLeader('tenant:no-4711'));
    const attributes = { 'distributed_lock.provider': 'memory', 'distributed_lock.mode': 'exclusive' };
    const decorated = { ...attributes, 'distributed_lock.template': 'billing', 'code.function.name': 'Billing.run' };
    const values = async (name: string) =>
      (await points(name)).map(({ attributes: own, value }) => ({ attributes: own, value }));
    for (const name of ['distributed_lock.leading', 'distributed_lock.elections']) {
      expect(await values(name)).toEqual(
        expect.arrayContaining([
          { attributes: decorated, value: 1 },
          { attributes, value: 1 },
        ]),
      );
    }
    gate.resolve();
    await until(() => !locks.isLeader('billing'));
    await expect(values('distributed_lock.resignations')).resolves.toEqual([
      { attributes: { ...decorated, 'distributed_lock.resignation.reason': 'task-ended' }, value: 1 },
    ]);
    expect(await values('distributed_lock.leading')).toContainEqual({ attributes: decorated, value: 0 });
    // Disabling the instrumentation resets campaigns in progress.
    instrumentation.disable();
    expect(await values('distributed_lock.leading')).toContainEqual({ attributes, value: 0 });
    expect(JSON.stringify(exporter.getMetrics())).not.toContain('no-4711');
  });
});

describe('the instrumentation', () => {
  it('enables only once, and when disabled ends open spans and records nothing more', async () => {
    instrumentation.enable();
    const { locks, clock } = await startManager();
    const lock = await locks.acquire('a');
    expect(finished()).toHaveLength(1);
    instrumentation.disable();
    expect(instrumentation.getConfig()).toEqual({ keys: false, enabled: false });
    expect(await byOutcome('distributed_lock.held')).toEqual({ now: 0 });
    expect(finished()[1]).toMatchObject({ name: 'lock.hold', status: OK });
    await lock.release();
    await locks.withLock('a', () => undefined);
    await clock.advance(0);
    expect(finished()).toHaveLength(2);
    expect(await points('distributed_lock.hold.duration')).toEqual([]);
  });

  it('ignores locks acquired before it was enabled', async () => {
    instrumentation.disable();
    const { locks, clock } = await startManager();
    const lock = await locks.acquire('a');
    instrumentation.enable();
    await lock.release();
    await clock.advance(0);
    expect(finished()).toEqual([]);
    expect(await points('distributed_lock.held')).toEqual([]);
  });

  it('does not change results or errors of calls', async () => {
    const manager = new LockManager({ providers: { main: ScriptedProvider.obliging() } });
    await manager.start();
    const locks = new LockService(manager);
    const mine = new Error('mine');
    await expect(locks.withLock('a', () => Promise.reject(mine))).rejects.toBe(mine);
    expect(await locks.withLock('a', (lock) => [lock.key, lock.isHeld()])).toEqual(['a', true]);
    await manager.stop();
  });

  it('reports the package version', () => {
    const { version } = JSON.parse(readFileSync('package.json', 'utf8')) as { version: string };
    expect(instrumentation.instrumentationVersion).toBe(version);
  });
});
