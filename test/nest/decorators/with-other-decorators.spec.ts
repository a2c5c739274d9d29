import { AsyncLocalStorage } from 'node:async_hooks';
import { Controller, Get, Injectable, Param, Post, Query } from '@nestjs/common';
import { EventEmitter2, EventEmitterModule, OnEvent } from '@nestjs/event-emitter';
import { Cron, Interval, ScheduleModule, SchedulerRegistry, Timeout } from '@nestjs/schedule';
import { ApiOkResponse, ApiOperation, ApiTags, DocumentBuilder, SwaggerModule } from '@nestjs/swagger';
import { fork } from 'node:child_process';
import { once } from 'node:events';
import { fileURLToPath } from 'node:url';
import { currentLock, DistributedLock, LockService, RunOnce } from '../../../lib/index.js';
import { close, serve, start, until } from '../apps.js';
import { compileLibrary } from '../../servers/compiled-library.js';

// Decorators of other packages, above and below ours. Stacks are built by hand so that one test covers both orders.

type Order = 'above' | 'below';

/** Stacks our decorator above or below the others. */
function stack(order: Order, ours: unknown, ...others: MethodDecorator[]): MethodDecorator {
  const locking = ours as MethodDecorator;
  // Applied in this order: the lowest one first.
  const applied = order === 'above' ? [...others, locking] : [locking, ...others];
  return (target, name, descriptor) => {
    for (const decorate of applied) decorate(target, name, descriptor);
  };
}

describe.each<Order>(['above', 'below'])('with @DistributedLock %s', (order) => {
  it('@Cron, @Interval and @Timeout run under the lock', async () => {
    const seen: string[] = [];
    const note = () => void seen.push(currentLock().key);
    @Injectable()
    class Jobs {
      @stack(order, DistributedLock('cron'), Cron('* * * * * *', { name: 'cron' }))
      async cron() {
        note();
      }
      @stack(order, DistributedLock('interval'), Interval('interval', 1))
      async interval() {
        note();
      }
      @stack(order, DistributedLock('timeout'), Timeout('timeout', 1))
      async timeout() {
        note();
      }
    }
    const app = await start({ imports: [ScheduleModule.forRoot()], providers: [Jobs] });
    const { fireOnTick } = app.get(SchedulerRegistry).getCronJob('cron');
    await fireOnTick.call(app.get(SchedulerRegistry).getCronJob('cron'));
    await until(() => new Set(seen).size === 3);
    await close(app);
    expect([...new Set(seen)].sort()).toEqual(['cron', 'interval', 'timeout']);
  });

  it('@RunOnce skips a job whose lock is held', async () => {
    let runs = 0;
    @Injectable()
    class Jobs {
      @stack(order, RunOnce('nightly', { minHold: 0 }), Cron('0 3 1 1 *', { name: 'nightly' }))
      async nightly() {
        runs += 1;
      }
    }
    const app = await start({ imports: [ScheduleModule.forRoot()], providers: [Jobs] });
    const job = app.get(SchedulerRegistry).getCronJob('nightly');
    const lock = await app.get(LockService).acquire('nightly');
    await job.fireOnTick();
    await lock.release();
    await job.fireOnTick();
    await until(() => runs === 1);
  });

  it('@OnEvent runs its listener under the lock', async () => {
    const seen: string[] = [];
    @Injectable()
    class Listener {
      @stack(order, DistributedLock('order:#{event.id}'), OnEvent('paid'))
      async paid(event: { id: number }) {
        seen.push(`${currentLock().key} ${event.id}`);
      }
    }
    const app = await start({ imports: [EventEmitterModule.forRoot()], providers: [Listener] });
    await app.get(EventEmitter2).emitAsync('paid', { id: 7 });
    expect(seen).toEqual(['order:7 7']);
  });

  it('composes with a decorator that wraps the method and copies its metadata', async () => {
    const transaction = new AsyncLocalStorage<string>();
    const steps: string[] = [];
    // Replaces the method with a Proxy, as nestjs-cls does.
    const Transactional: MethodDecorator = (_target, _name, descriptor) => {
      const original = descriptor.value as unknown as (...args: unknown[]) => Promise<unknown>;
      const proxy = new Proxy(original, {
        apply: (method, self, args: unknown[]) =>
          transaction.run('tx', async () => {
            const result = await method.apply(self, args);
            steps.push('commit');
            return result;
          }),
      });
      for (const key of Reflect.getMetadataKeys(original) as unknown[]) {
        Reflect.defineMetadata(key, Reflect.getMetadata(key, original), proxy);
      }
      descriptor.value = proxy as never;
    };
    @Injectable()
    class Orders {
      @stack(order, DistributedLock('order:#{id}'), Transactional)
      async pay(id: number) {
        return `${currentLock().key} in ${String(transaction.getStore())} ${id}`;
      }
    }
    const app = await start({ providers: [Orders] });
    app.get(LockService).events.on('released', () => steps.push('release'));
    await expect(app.get(Orders).pay(7)).resolves.toBe('order:7 in tx 7');
    // The upper decorator is the outer one: if the lock is above, it's released only after the commit.
    expect(steps).toEqual(order === 'above' ? ['commit', 'release'] : ['release', 'commit']);
  });

  it('does not change what Swagger documents for a handler', async () => {
    const describeWith = async (ours: unknown) => {
      @ApiTags('orders')
      @Controller('orders')
      class OrderController {
        @stack(order, ours, Post(':id'), ApiOperation({ summary: 'Pays' }), ApiOkResponse({ description: 'Paid' }))
        async pay(@Param('id') id: string, @Query('amount') amount: number) {
          return { id, amount };
        }
        @stack(order, ours, Get(':id'))
        async find(@Param('id') id: string) {
          return id;
        }
      }
      const { app } = await serve({ controllers: [OrderController] });
      return SwaggerModule.createDocument(app, new DocumentBuilder().build());
    };
    const locked = await describeWith(DistributedLock('order:#{id}'));
    expect(locked.paths).toEqual((await describeWith(() => undefined)).paths);
    expect(locked.paths['/orders/{id}']?.post).toMatchObject({
      operationId: 'OrderController_pay',
      summary: 'Pays',
      parameters: [{ name: 'id' }, { name: 'amount' }],
    });
  });
});

const PROGRAM = fileURLToPath(new URL('use-cls-program.mjs', import.meta.url));

it('@UseCls of nestjs-cls works above and below @DistributedLock, and supplies #{ctx…} if it is above', async () => {
  const library = await compileLibrary();
  try {
    const program = fork(PROGRAM, [library.folder], { execArgv: [] });
    const ended = once(program, 'exit');
    const [seen] = (await Promise.race([once(program, 'message'), ended])) as [unknown];
    expect(seen).toEqual(['acme:above for acme', 'all:below for acme']);
    // The program ends on its own: the library doesn't keep the process alive.
    expect(await ended).toEqual([0, null]);
  } finally {
    await library.remove();
  }
}, 120_000);
