import { once } from 'node:events';
import { ConflictException, Injectable, type Type } from '@nestjs/common';
import {
  type BusyContext,
  currentLock,
  DistributedLock,
  type DistributedLockModuleOptions,
  LockDefaults,
  LockService,
  LockBusyError,
  MemoryLockProvider,
  RunOnce,
} from '../../../lib/index.js';
import { Gate, start } from '../apps.js';

async function run<T extends object>(type: Type<T>, options?: DistributedLockModuleOptions) {
  const app = await start({ providers: [type] }, options);
  return { it: app.get(type), locks: app.get(LockService) };
}

describe('onBusy', () => {
  const contexts: BusyContext[] = [];
  @Injectable()
  class Orders {
    ran = 0;

    @DistributedLock('order:#{id}', { wait: 0 })
    async throws(id: number) {
      this.ran += id;
    }

    @DistributedLock('order:#{id}', { onBusy: 'skip' })
    async skips(id: number): Promise<string | undefined> {
      return `done ${id}`;
    }

    @DistributedLock('order:#{id}', { wait: 0, onBusy: (busy) => (contexts.push(busy), Promise.resolve('instead')) })
    async replaced(id: number) {
      return `done ${id}`;
    }

    @DistributedLock((id: number) => [`order:${id}`, 'all'], {
      wait: 0,
      onBusy: ({ keys }) => {
        throw new ConflictException(keys);
      },
    })
    async refused(_id: number) {}
  }

  it('throws LockBusyError by default, without running the method', async () => {
    const { it: orders, locks } = await run(Orders);
    await locks.acquire('order:1');
    await expect(orders.throws(1)).rejects.toBeInstanceOf(LockBusyError);
    await expect(orders.throws(1)).rejects.toThrow(/order:1.*Orders\.throws/);
    expect(orders.ran).toBe(0);
    await orders.throws(2);
    expect(orders.ran).toBe(2);
  });

  it('does not blame acquire() when simultaneous calls do not wait', async () => {
    const { it: orders, locks } = await run(Orders);
    const calls = await Promise.allSettled([orders.throws(1), orders.throws(1)]);
    const [busy] = calls.flatMap((call) => (call.status === 'rejected' ? [call.reason as Error] : []));
    expect(busy).toBeInstanceOf(LockBusyError);
    expect(busy?.message).not.toContain('acquire()');
    const task = () => undefined;
    const tasks = await Promise.allSettled([
      locks.withLock('task', task, { wait: 0 }),
      locks.withLock('task', task, { wait: 0 }),
    ]);
    expect(tasks).toContainEqual({
      status: 'rejected',
      reason: expect.objectContaining({ message: expect.not.stringContaining('acquire()') as string }) as Error,
    });
    await locks.acquire('order:3');
    await expect(orders.throws(3)).rejects.toThrow(/This process holds it\. .*within: lock.* under lock\.run\(\)/);
  });

  it("resolves to undefined immediately with 'skip', and emits an event", async () => {
    const { it: orders, locks } = await run(Orders, { defaults: { wait: '10m' } });
    const skipped: unknown[] = [];
    locks.events.on('skipped', (event) => skipped.push(event));
    await locks.acquire('order:1');
    await expect(orders.skips(1)).resolves.toBeUndefined();
    await expect(orders.skips(2)).resolves.toBe('done 2');
    const origin = { method: 'Orders.skips', template: 'order:#{id}' };
    expect(skipped).toEqual([{ key: 'order:1', provider: 'memory', mode: 'exclusive', ...origin, reason: 'busy' }]);
  });

  it('passes the call to a function, whose result replaces that of the method', async () => {
    const { it: orders, locks } = await run(Orders);
    await locks.acquire('order:1');
    await expect(orders.replaced(1)).resolves.toBe('instead');
    expect(contexts).toEqual([
      {
        keys: ['order:1'],
        provider: 'memory',
        method: 'Orders.replaced',
        args: [1],
        error: expect.any(LockBusyError) as LockBusyError,
      },
    ]);
  });

  it('rethrows what a function throws, unchanged', async () => {
    const { it: orders, locks } = await run(Orders);
    await locks.acquire('all');
    await expect(orders.refused(1)).rejects.toThrow(new ConflictException(['all', 'order:1']));
  });

  it("calls a function with the instance as this, so that it can call a subclass's methods", async () => {
    @Injectable()
    class Prices {
      readonly cache = new Map([['a', 1]]);

      @DistributedLock('price:#{id}', {
        wait: 0,
        onBusy(this: Prices, { args: [id] }: BusyContext) {
          return this.cache.get(String(id));
        },
      })
      async fetched(id: string): Promise<number | undefined> {
        return id.length * 100;
      }

      @DistributedLock('price:#{id}', {
        wait: 0,
        onBusy(this: Prices, busy: BusyContext) {
          return this.cached(busy);
        },
      })
      async delegated(id: string): Promise<number | undefined> {
        return id.length * 100;
      }

      cached({ args: [id], error }: BusyContext): unknown {
        expect(error).toBeInstanceOf(LockBusyError);
        return this.cache.get(String(id));
      }
    }
    @Injectable()
    class Halved extends Prices {
      override cached(busy: BusyContext): unknown {
        return Number(super.cached(busy)) / 2;
      }
    }
    const app = await start({ providers: [Prices, Halved] });
    await app.get(LockService).acquire('price:a');
    await expect(app.get(Prices).fetched('a')).resolves.toBe(1);
    await expect(app.get(Prices).delegated('a')).resolves.toBe(1);
    await expect(app.get(Halved).delegated('a')).resolves.toBe(0.5);
    await expect(app.get(Halved).delegated('b')).resolves.toBe(100);
  });

  it("is not called for other errors, or for a LockBusyError thrown by the method's own code", async () => {
    @Injectable()
    class Broken {
      @DistributedLock('#{id}', { onBusy: () => 'never' })
      async run(id: string) {
        throw new LockBusyError(`of ${id} itself`);
      }
    }
    const { it: broken } = await run(Broken);
    await expect(broken.run('')).rejects.toThrow(/empty string/);
    await expect(broken.run('1')).rejects.toThrow(new LockBusyError('of 1 itself'));
  });
});

describe('@RunOnce', () => {
  const gate = new Gate();
  @Injectable()
  class Jobs {
    runs = 0;
    @RunOnce('nightly', { minHold: 0, maxHold: '1m' })
    async nightly() {
      this.runs += 1;
      await gate.opened;
    }
    @RunOnce('hourly', { minHold: '1m' })
    async hourly() {
      this.runs += 1;
    }
    @RunOnce('short', { minHold: 0, maxHold: 1 })
    async short() {
      const { signal } = currentLock();
      // The millisecond may be over before the method starts.
      if (!signal.aborted) await once(signal, 'abort');
    }
  }

  it('runs the first call, and skips calls during its run', async () => {
    const { it: jobs } = await run(Jobs);
    const first = jobs.nightly();
    await jobs.nightly();
    expect(jobs.runs).toBe(1);
    gate.open();
    await first;
    await jobs.nightly();
    expect(jobs.runs).toBe(2);
  });

  it('does not run again within minHold', async () => {
    const { it: jobs } = await run(Jobs);
    await jobs.hourly();
    await jobs.hourly();
    expect(jobs.runs).toBe(1);
  });

  it('aborts a run that takes longer than maxHold', async () => {
    const { it: jobs } = await run(Jobs);
    await expect(jobs.short()).rejects.toMatchObject({ name: 'LockLostError', reason: 'max-hold' });
  });
});

describe('@LockDefaults', () => {
  @LockDefaults({ wait: 0, provider: 'second', maxHold: '2m' })
  class Base {
    @DistributedLock('base')
    async inherited() {
      return currentLock().provider;
    }
  }
  @Injectable()
  class Orders extends Base {
    @DistributedLock('order')
    async classLevel() {
      return currentLock().provider;
    }
    @DistributedLock('order', { provider: 'first', wait: undefined })
    async own() {
      return currentLock().provider;
    }
    @DistributedLock('order', { wait: '1m' })
    async waits() {
      return 'waited';
    }
  }
  const two = () => ({
    providers: { first: new MemoryLockProvider(), second: new MemoryLockProvider() },
    default: 'first',
    defaults: { wait: '1h' },
  });

  it("override the module's defaults and are overridden by the method's options, also in subclasses", async () => {
    const { it: orders, locks } = await run(Orders, two());
    await expect(orders.inherited()).resolves.toBe('second');
    await expect(orders.classLevel()).resolves.toBe('second');
    await expect(orders.own()).resolves.toBe('first');
    const lock = await locks.via('second').acquire('order');
    await expect(orders.classLevel()).rejects.toBeInstanceOf(LockBusyError);
    const waiting = orders.waits();
    await lock.release();
    await expect(waiting).resolves.toBe('waited');
  });

  it("do not make a method with onBusy: 'skip' wait", async () => {
    @Injectable()
    @LockDefaults({ wait: '1h' })
    class Skipping {
      @DistributedLock('skip', { onBusy: 'skip' })
      async run() {}
    }
    const { it: skipping, locks } = await run(Skipping);
    await locks.acquire('skip');
    await expect(skipping.run()).resolves.toBeUndefined();
  });
});
