import { AsyncLocalStorage } from 'node:async_hooks';
import { subscribe, tracingChannel, unsubscribe } from 'node:diagnostics_channel';
import type { LockEventName } from '../../lib/api/lock-events.js';
import { deferred, startManager, watch } from './manager-rig.js';
import { ScriptedProvider } from './scripted-provider.js';

const OF_A = { key: 'a', provider: 'main', mode: 'exclusive', method: null, template: null };
const STEPS = ['start', 'end', 'asyncStart', 'asyncEnd', 'error'] as const;

const leaving: (() => void)[] = [];
afterEach(() => {
  for (const leave of leaving.splice(0)) leave();
});

function listen(name: string, listener: (message: unknown) => void): void {
  subscribe(name, listener);
  leaving.push(() => unsubscribe(name, listener));
}

/** Records the steps of a tracing channel, each with a snapshot of the trace. */
function traced(operation: 'acquire' | 'hold') {
  const steps: { readonly step: string; readonly trace: object; readonly seen: object }[] = [];
  for (const step of STEPS) {
    listen(`tracing:nestjs-distributed-lock:${operation}:${step}`, (trace) => {
      steps.push({ step, trace: trace as object, seen: { ...(trace as object) } });
    });
  }
  return {
    names: () => steps.map(({ step }) => step),
    contexts: () => new Set(steps.map(({ trace }) => trace)).size,
    last: () => steps.at(-1)?.seen,
  };
}

describe('the tracing channel of acquisitions', () => {
  it('reports an acquisition in one trace, without the holder id', async () => {
    const { locks } = await startManager();
    const acquire = traced('acquire');
    const lock = await locks.acquire('a');
    expect(acquire.names()).toEqual(['start', 'end', 'asyncStart', 'asyncEnd']);
    expect(acquire.contexts()).toBe(1);
    expect(acquire.last()).toEqual({ ...OF_A, result: undefined });
    await lock.release();
  });

  it('reports why an acquisition failed', async () => {
    const { locks, clock } = await startManager();
    await locks.acquire('a');
    const acquire = traced('acquire');
    const [queued] = Array.from({ length: 10_000 }, () => watch(locks.acquire('a', { wait: 100 })));
    await expect(locks.acquire('a')).rejects.toMatchObject({ code: 'LOCK_CAPACITY' });
    expect(acquire.last()).toMatchObject({ error: { code: 'LOCK_CAPACITY' } });
    await clock.advance(100);
    expect(queued?.error).toMatchObject({ code: 'LOCK_BUSY' });
    expect(acquire.last()).toMatchObject({ ...OF_A, error: queued?.error });
  });

  it('binds a store around the acquisition, but not around the request, which outlives the caller', async () => {
    const provider = ScriptedProvider.obliging();
    const { locks } = await startManager({ provider });
    const store = new AsyncLocalStorage<unknown>();
    const { start } = tracingChannel<unknown, { key: string }>('nestjs-distributed-lock:acquire');
    start.bindStore(store, (trace) => trace.key);
    leaving.push(() => void start.unbindStore(store));
    let seen: unknown = 'nothing';
    provider.onAcquire = (_, grant) => {
      seen = store.getStore();
      return grant();
    };
    await locks.withLock('a', () => {
      expect(store.getStore()).toBeUndefined();
    });
    expect(seen).toBeUndefined();
  });
});

describe('the tracing channel of holds', () => {
  it('reports a hold from the grant to the release, including nested entries', async () => {
    const { locks, clock } = await startManager();
    const hold = traced('hold');
    const task = deferred();
    const running = locks.withLock('a', (lock) => {
      expect(hold.last()).toEqual({ ...OF_A, fencingToken: lock.fencingToken });
      return locks.withLock('a', () => task.promise, { within: lock });
    });
    await clock.advance(0);
    expect(hold.names()).toEqual(['start', 'end']);
    task.resolve();
    await running;
    await clock.advance(0);
    expect(hold.names()).toEqual(['start', 'end', 'asyncStart', 'asyncEnd']);
    expect(hold.contexts()).toBe(1);
    expect(hold.last()).toMatchObject({ result: 'released' });
  });

  it("starts a hold in its caller's async context, even after a local handoff", async () => {
    const provider = ScriptedProvider.obliging();
    provider.onAcquire = (_, grant) => ({ ...grant(), followers: 1 });
    const { locks, clock } = await startManager({ provider });
    const store = new AsyncLocalStorage<string>();
    const seen: (string | undefined)[] = [];
    listen('tracing:nestjs-distributed-lock:hold:start', () => seen.push(store.getStore()));
    const callers = ['ann', 'bob', 'cid'].map((name) => store.run(name, () => locks.withLock('a', () => undefined)));
    await clock.advance(0);
    await Promise.all(callers);
    expect(seen).toEqual(['ann', 'bob', 'cid']);
  });

  it('reports a loss, a loss that only the release detects, and a release without a response', async () => {
    const provider = ScriptedProvider.obliging();
    const { locks, clock } = await startManager({ provider });
    const hold = traced('hold');
    const revoked = await locks.acquire('a');
    provider.revoke(revoked.holder);
    await clock.advance(0);
    expect(hold.last()).toMatchObject({ ...OF_A, error: { code: 'LOCK_LOST', reason: 'revoked' } });
    const gone = await locks.acquire('a');
    provider.onRelease = () => 'lost';
    await gone.release();
    await clock.advance(0);
    expect(hold.last()).toMatchObject({ ...OF_A, error: { code: 'LOCK_LOST', reason: 'revoked' } });
    const unanswered = await locks.acquire('a');
    provider.onRelease = () => 'unknown';
    await unanswered.release();
    await clock.advance(0);
    expect(hold.last()).toMatchObject({ result: 'pending' });
    expect(hold.contexts()).toBe(3);
    expect(hold.names().filter((name) => name === 'asyncEnd')).toHaveLength(3);
    provider.onRelease = () => 'released';
    await clock.advance(100);
  });
});

it('every event has its own channel, with the event as its message', async () => {
  const { locks, events } = await startManager();
  const heard: unknown[] = [];
  for (const name of ['acquired', 'released'] satisfies LockEventName[]) {
    listen(`nestjs-distributed-lock:${name}`, (event) => heard.push({ name, event }));
  }
  await locks.withLock('a', () => undefined);
  expect(heard).toEqual(events);
  expect(heard).toHaveLength(2);
});

it('unanswered renewals are reported, but late responses to them are not', async () => {
  const provider = ScriptedProvider.obliging();
  const { locks, clock, events } = await startManager({ provider });
  provider.onRenew = () => Promise.resolve('unknown');
  await locks.acquire('a', { lease: 3_000 });
  await clock.advance(1_000);
  expect(events.at(-1)).toEqual({ name: 'renewal-failed', event: { ...OF_A, remaining: 2_000 } });
  provider.onRenew = () => Promise.reject(new Error('gone'));
  await clock.advance(300);
  expect(events.slice(-2).map(({ name }) => name)).toEqual(['unavailable', 'renewal-failed']);
  let answer: (() => void) | undefined;
  provider.onRenew = () => new Promise((resolve) => (answer = () => resolve('unknown')));
  await clock.advance(3_000);
  const told = events.length;
  expect(events.at(-1)).toMatchObject({ name: 'lost', event: { reason: 'expired' } });
  answer?.();
  await clock.advance(0);
  expect(events).toHaveLength(told);
});
