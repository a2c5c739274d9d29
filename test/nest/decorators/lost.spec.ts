import { once } from 'node:events';
import { Injectable, Scope, type Type, Controller, Get, HttpException, Param, Res } from '@nestjs/common';
import { lastValueFrom, Observable, of, toArray, firstValueFrom } from 'rxjs';
import { Test } from '@nestjs/testing';
import { jest } from '@jest/globals';
import { request, type ServerResponse } from 'node:http';
import {
  currentLock,
  DistributedLock,
  LockLostError,
  LockService,
  type LossContext,
  MemoryLockProvider,
  LockAdmin,
} from '../../../lib/index.js';
import { provideLockServiceStub } from '../../../lib/testing/index.js';
import { start, type Platform, serve, until } from '../apps.js';

/** In ms, 100 times what a method needs to start. Losing the lock before the start is a different case. */
const LOST_AFTER = 300;

/** Waits until the current lock is lost. */
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
  it('calls a function after the method, with the instance as this, and returns its result to the caller', async () => {
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

  it('throws what the handler throws, and does not call the handler for the loss of an inner lock', async () => {
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

  it('calls a function with the instance of a request-scoped provider as this', async () => {
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

  it('returns its result from a generator, and appends it to the values of an Observable', async () => {
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

  it('handles a lock lost before the method starts, without running the method', async () => {
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

interface Order {
  id: string;
}

@Injectable()
class Orders {
  readonly own = new AbortController();
  readonly ran: string[] = [];

  @DistributedLock('order:#{order.id}', { signal: (_order: Order, signal?: AbortSignal) => signal })
  async pay(order: Order, _signal?: AbortSignal) {
    this.ran.push(order.id);
    return 'paid';
  }

  @DistributedLock((order: Order) => order.id, {
    onBusy: () => 'instead',
    signal: (_: Order, { signal }: { signal: AbortSignal }) => signal,
  })
  async ship(order: Order, _options: { signal: AbortSignal }) {
    return order.id;
  }

  @DistributedLock('a', {
    signal() {
      return (this as unknown as Orders).own.signal;
    },
  })
  async ownSignal() {
    return 'done';
  }

  @DistributedLock('order:1', { signal: (signal: AbortSignal) => signal })
  watch(_signal: AbortSignal): Observable<string> {
    return of('seen');
  }

  @DistributedLock('order:1', { signal: (signal: AbortSignal) => signal })
  async *rows(_signal: AbortSignal) {
    yield 'row';
  }

  @DistributedLock('wrong', { signal: (text: string) => text as unknown as AbortSignal })
  async wrong(text: string) {
    return text;
  }
}

async function setup() {
  const app = await start({ providers: [Orders] });
  return { orders: app.get(Orders), locks: app.get(LockService), admin: app.get(LockAdmin) };
}

describe('signal', () => {
  it('ends the wait of a decorated method: the call rejects with its reason and leaves the queue', async () => {
    const { orders, locks, admin } = await setup();
    await locks.acquire('order:1');
    const controller = new AbortController();
    const reason = new Error('the user went away');
    const paying = orders.pay({ id: '1' }, controller.signal);
    await until(() => admin.waiting().length === 1);
    controller.abort(reason);
    await expect(paying).rejects.toBe(reason);
    expect(admin.waiting()).toEqual([]);
    expect(orders.ran).toEqual([]);
  });

  it('keeps the method from running if it has already aborted, even if the lock is free', async () => {
    const { orders } = await setup();
    await expect(orders.pay({ id: '1' }, AbortSignal.abort('gone'))).rejects.toBe('gone');
    expect(orders.ran).toEqual([]);
  });

  it('may be absent in a call, and does not end a hold', async () => {
    const { orders } = await setup();
    await expect(orders.pay({ id: '1' })).resolves.toBe('paid');
    const controller = new AbortController();
    const paying = orders.pay({ id: '2' }, controller.signal);
    await until(() => orders.ran.includes('2'));
    controller.abort();
    await expect(paying).resolves.toBe('paid');
  });

  it('works with a key function, and may come from an object or the instance; an abort does not call onBusy', async () => {
    const { orders, locks, admin } = await setup();
    await locks.acquire(['1', 'a']);
    const controller = new AbortController();
    const calls = [orders.ship({ id: '1' }, controller), orders.ownSignal()];
    await until(() => admin.waiting().length === 2);
    controller.abort('gone');
    orders.own.abort('shut');
    await expect(Promise.allSettled(calls)).resolves.toMatchObject([{ reason: 'gone' }, { reason: 'shut' }]);
  });

  it('ends the wait of an Observable and of an async generator', async () => {
    const { orders, locks, admin } = await setup();
    const lock = await locks.acquire('order:1');
    const controller = new AbortController();
    const calls = [firstValueFrom(orders.watch(controller.signal)), orders.rows(controller.signal).next()];
    await until(() => admin.waiting().length === 2);
    // Unsubscribing still ends the wait, too.
    const subscription = orders.watch(new AbortController().signal).subscribe();
    await until(() => admin.waiting().length === 3);
    subscription.unsubscribe();
    await until(() => admin.waiting().length === 2);
    controller.abort('gone');
    await expect(Promise.allSettled(calls)).resolves.toMatchObject([{ reason: 'gone' }, { reason: 'gone' }]);
    await lock.release();
  });

  it('retains nothing of its calls if it outlives them', async () => {
    const { orders } = await setup();
    const { signal } = new AbortController();
    const added = jest.spyOn(signal, 'addEventListener');
    const removed = jest.spyOn(signal, 'removeEventListener');
    for (let call = 0; call < 3; call += 1) await firstValueFrom(orders.watch(signal));
    expect(added).toHaveBeenCalled();
    expect(removed).toHaveBeenCalledTimes(added.mock.calls.length);
    expect(Object.getOwnPropertySymbols(signal).map(String)).not.toContain('Symbol(kDependantSignals)');
  });

  it('is refused with a clear error if it is not an AbortSignal', async () => {
    const { orders } = await setup();
    await expect(orders.wrong('text')).rejects.toThrow(
      /^Option "signal" of Orders\.wrong returned a string, but must return an AbortSignal/,
    );
  });
});

it.each<Platform>(['Express', 'Fastify'])(
  'a request leaves the queue when its client disconnects: %s',
  async (platform) => {
    const ran: string[] = [];
    const closed = (response: ServerResponse | { raw: ServerResponse }): AbortSignal => {
      const controller = new AbortController();
      ('raw' in response ? response.raw : response).once('close', () => {
        controller.abort(new HttpException('Client closed request', 499));
      });
      return controller.signal;
    };
    @Controller()
    class OrdersController {
      @Get(':id')
      @DistributedLock('order:#{id}', {
        wait: '1m',
        signal: (_id: string, response: ServerResponse) => closed(response),
      })
      async pay(@Param('id') id: string, @Res({ passthrough: true }) _response: ServerResponse) {
        ran.push(id);
        return 'paid';
      }
    }
    const { app, fetch } = await serve({ controllers: [OrdersController] }, {}, undefined, platform);
    const [locks, admin] = [app.get(LockService), app.get(LockAdmin)];
    const lock = await locks.acquire('order:1');
    const client = request(`${await app.getUrl()}/1`).end();
    const ended = once(client, 'error');
    await until(() => admin.waiting().length === 1);
    client.destroy(new Error('the user closed the page'));
    await ended;
    await until(() => admin.waiting().length === 0);
    await lock.release();
    expect(ran).toEqual([]);
    expect(await (await fetch('/1')).text()).toBe('paid');
  },
);
