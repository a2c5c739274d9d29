import { once } from 'node:events';
import { Injectable, Scope, type Type } from '@nestjs/common';
import { lastValueFrom, Observable, of, toArray } from 'rxjs';
import {
  currentLock,
  DistributedLock,
  LockLostError,
  LockService,
  type LossContext,
  MemoryLockProvider,
} from '../../../lib/index.js';
import { provideLockServiceStub } from '../../../lib/testing/index.js';
import { Test } from '@nestjs/testing';
import { start } from '../apps.js';

/** A hundred times as long as a method needs to start, in ms: a lock that is lost before is another case. */
const LOST_AFTER = 300;

/** Waits until its own lock is lost. */
async function untilLost(): Promise<void> {
  const { signal } = currentLock();
  if (!signal.aborted) await once(signal, 'abort');
}

function oneThenLost(): Observable<number> {
  return new Observable((subscriber) => {
    subscriber.next(1);
    void untilLost().then(() => {
      subscriber.complete();
    });
  });
}

async function losing<T extends object>(type: Type<T>): Promise<T> {
  const app = await start({ providers: [type] }, { provider: new MemoryLockProvider() });
  return app.resolve(type);
}

describe('onLost', () => {
  it('a function answers the call after the method, with the instance as its this', async () => {
    const losses: LossContext[] = [];
    @Injectable()
    class Orders {
      readonly repaired: unknown[] = [];

      @DistributedLock('order:#{id}', {
        maxHold: LOST_AFTER,
        onLost(this: Orders, loss: LossContext) {
          losses.push(loss);
          this.repaired.push(...loss.args);
          return 'repaired';
        },
      })
      async pay(id: number): Promise<string> {
        await untilLost();
        return `paid ${id}`;
      }
    }
    const orders = await losing(Orders);
    await expect(orders.pay(1)).resolves.toBe('repaired');
    expect(orders.repaired).toEqual([1]);
    expect(losses).toEqual([
      {
        keys: ['order:1'],
        provider: 'default',
        method: 'Orders.pay',
        args: [1],
        error: expect.any(LockLostError) as LockLostError,
      },
    ]);
    expect(losses[0]?.error).toMatchObject({
      reason: 'max-hold',
      outcome: { status: 'fulfilled', value: 'paid 1' },
    });
  });

  it('what the handler throws is thrown; it is not called for a lock that was not lost, nor for an inner one', async () => {
    const outer: unknown[] = [];
    @Injectable()
    class Orders {
      constructor(private readonly locks: LockService) {}

      @DistributedLock('order:#{id}', {
        maxHold: LOST_AFTER,
        onLost({ error }: LossContext) {
          throw new Error('undone', { cause: error.outcome });
        },
      })
      async pay(id: number): Promise<void> {
        await untilLost();
        throw new Error(`of the method ${id}`);
      }

      @DistributedLock('outer', { onLost: (loss) => outer.push(loss) })
      async around(): Promise<void> {
        await this.locks.withLock('inner', untilLost, { maxHold: LOST_AFTER });
      }
    }
    const orders = await losing(Orders);
    await expect(orders.pay(1)).rejects.toMatchObject({
      message: 'undone',
      cause: { status: 'rejected', reason: { message: 'of the method 1' } },
    });
    await expect(orders.around()).rejects.toMatchObject({ key: 'inner', reason: 'max-hold' });
    expect(outer).toEqual([]);
  });

  it('has the instance of a request-scoped provider', async () => {
    @Injectable({ scope: Scope.REQUEST })
    class Orders {
      readonly id = Math.random();

      @DistributedLock('order', {
        maxHold: LOST_AFTER,
        onLost(this: Orders) {
          return this.id;
        },
      })
      async pay(): Promise<number> {
        await untilLost();
        return 0;
      }
    }
    const orders = await losing(Orders);
    await expect(orders.pay()).resolves.toBe(orders.id);
  });

  it('its answer is what a generator returns, and follows the values of an Observable', async () => {
    @Injectable()
    class Feed {
      @DistributedLock('generator', { maxHold: LOST_AFTER, onLost: () => 'end' })
      async *generated(): AsyncGenerator<number, string | undefined> {
        yield 1;
        await untilLost();
        return undefined;
      }

      @DistributedLock('observable', { maxHold: LOST_AFTER, onLost: () => of(2, 3) })
      answered(): Observable<number> {
        return oneThenLost();
      }

      @DistributedLock('silent', { maxHold: LOST_AFTER, onLost: () => undefined })
      silent(): Observable<number> {
        return oneThenLost();
      }
    }
    const feed = await losing(Feed);
    const generator = feed.generated();
    expect(await generator.next()).toEqual({ done: false, value: 1 });
    expect(await generator.next()).toEqual({ done: true, value: 'end' });
    expect(await lastValueFrom(feed.answered().pipe(toArray()))).toEqual([1, 2, 3]);
    expect(await lastValueFrom(feed.silent().pipe(toArray()))).toEqual([1]);
  });

  it('a lock that is lost before the method starts is one as well, and the method does not run', async () => {
    let runs = 0;
    @Injectable()
    class Orders {
      @DistributedLock('order', { onLost: ({ error }) => error.reason })
      async pay(): Promise<string> {
        runs += 1;
        await untilLost();
        return 'paid';
      }
    }
    const stub = provideLockServiceStub();
    const module = await Test.createTestingModule({ providers: [Orders, stub] }).compile();
    const call = module.get(Orders).pay();
    await stub.lose('order');
    await expect(call).resolves.toBe('revoked');
    expect(runs).toBe(1);
    expect(stub.calls).toMatchObject([{ onLost: 'throw' }]);
  });
});
