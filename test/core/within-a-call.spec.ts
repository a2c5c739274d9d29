import { subscribe, unsubscribe } from 'node:diagnostics_channel';
import { LockUnavailableError } from '../../lib/api/errors.js';
import type { LockOptions } from '../../lib/api/lock-options.js';
import { startManager, watch } from './manager-rig.js';
import { ScriptedProvider } from './scripted-provider.js';

const HOLD = 'tracing:nestjs-distributed-lock:hold:start';
const LEASE = 10_000;
const VALIDITY = LEASE - (LEASE * 0.01 + 2);

/** A manager over a provider that grants what is asked for until `silent()` is called. */
async function started(fair = true) {
  const provider = ScriptedProvider.obliging({ fair });
  const silent = () => {
    provider.onAcquire = undefined;
  };
  return { ...(await startManager({ provider })), provider, silent };
}

describe('what a listener does in the middle of a call', () => {
  it('leaves the caller in a queue that a stop knows of', async () => {
    const { locks, clock, silent } = await started();
    const [lapsing, other] = [await locks.acquire('a', { lease: LEASE }), await locks.acquire('b')];
    lapsing.signal.addEventListener('abort', () => void other.release());
    clock.block(VALIDITY);
    silent();
    // Finds the loss. The listener releases the other lock, so that two queues become empty in this call.
    const waiting = watch(locks.acquire('a', { wait: Infinity }));
    expect(locks.admin.waiting().map(({ key }) => key)).toEqual(['a']);
    const stopped = locks.stop();
    await clock.advance(20_000);
    await stopped;
    expect(waiting.error).toBeInstanceOf(LockUnavailableError);
  });

  it('leaves no timer of a caller that it sends away', async () => {
    const { locks, clock, silent } = await started();
    silent();
    const controller = new AbortController();
    watch(locks.acquire('a', { wait: 60_000 }));
    locks.events.on('waiting', () => controller.abort(new Error('not wanted')));
    const sent = watch(locks.acquire('a', { wait: 24 * 3_600_000, signal: controller.signal }));
    await clock.advance(0);
    expect((sent.error as Error).message).toBe('not wanted');
    const { pendingTimers } = clock;
    await clock.advance(61_500);
    // Nothing of the wait of a day is left beside those of the first caller.
    expect(clock.pendingTimers).toBeLessThan(pendingTimers);
    await clock.advance(120_000);
    expect(clock.pendingTimers).toBe(0);
  });

  it('takes a caller out whose signal it aborts before that is in the queue', async () => {
    const { locks, clock, silent } = await started();
    const controller = new AbortController();
    const lapsing = await locks.acquire('a', { lease: LEASE });
    lapsing.signal.addEventListener('abort', () => controller.abort(new Error('with the lock')));
    clock.block(VALIDITY);
    silent();
    const waiting = watch(locks.acquire('a', { wait: 60_000, signal: controller.signal }));
    await clock.advance(0);
    expect((waiting.error as Error).message).toBe('with the lock');
    expect(locks.admin.waiting()).toEqual([]);
  });
});

describe('a lock that is entered again while the outer one ends', () => {
  const options: LockOptions = { maxHold: 5_000 };

  it('keeps the end that the outer one has set, and its trace', async () => {
    const { locks, clock } = await started();
    let traces = 0;
    const count = () => {
      traces += 1;
    };
    subscribe(HOLD, count);
    try {
      const outer = await locks.acquire('a', options);
      await clock.advance(4_000);
      const entering = outer.run(() => locks.acquire('a', options));
      void outer.release();
      const inner = await entering;
      expect(traces).toBe(1);
      expect(inner.remaining()).toBeLessThanOrEqual(1_000);
      await clock.advance(1_000);
      expect(inner.isHeld()).toBe(false);
    } finally {
      unsubscribe(HOLD, count);
    }
  });
});

describe('a process that is alone at a backend that is polled', () => {
  it('does not pause for others after minutes without a caller behind its lock', async () => {
    const { locks, clock, provider } = await started(false);
    for (let minute = 0; minute < 3; minute += 1) {
      await (await locks.acquire('a')).release();
      await clock.advance(60_000);
    }
    const held = await locks.acquire('a');
    const next = watch(locks.acquire('a'));
    await held.release();
    await clock.advance(0);
    expect(next.value?.isHeld()).toBe(true);
    expect(provider.order.slice(-2)).toEqual(['release a', 'acquire a']);
  });
});

it('a logger that throws keeps no lock from being renewed', async () => {
  const provider = ScriptedProvider.obliging();
  const fail = () => {
    throw new Error('the logger');
  };
  const { locks, clock } = await startManager({ provider, logger: { debug: fail, warn: fail, error: fail } });
  await locks.acquire('a', { lease: LEASE, maxHold: 4_000 });
  const kept = await locks.acquire('b', { lease: LEASE });
  await clock.advance(60_000);
  expect(kept.isHeld()).toBe(true);
  await kept.release();
  await locks.stop();
});
