import { applyDecorators, Controller, Get, Injectable, Scope, UseGuards } from '@nestjs/common';
import {
  CommandBus,
  CommandHandler,
  CqrsModule,
  type ICommandHandler,
  type IQueryHandler,
  QueryBus,
  QueryHandler,
} from '@nestjs/cqrs';
import { ApiOkResponse, DocumentBuilder, SwaggerModule } from '@nestjs/swagger';
import {
  currentLock,
  DistributedLock,
  type Duration,
  LockAdmin,
  LockDefaults,
  LockService,
  LockBusyError,
} from '../../../lib/index.js';
import { ApiLocked } from '../../../lib/integrations/swagger/index.js';
import { Gate, serve, start } from '../apps.js';

const keysHere = () => currentLock().keys.join();

describe('a decorator of the application that wraps @DistributedLock', () => {
  /** An alias for methods whose first argument is an order. */
  const OrderLock = (wait: Duration = '5s') =>
    DistributedLock((order: { id: number }) => `order:${order.id}`, { wait });
  /** Combines the lock with other decorators, for handlers. */
  const LockedGet = (path: string) =>
    applyDecorators(Get(path), DistributedLock('#{class}.#{method}'), UseGuards(Open));

  @Injectable()
  class Open {
    canActivate() {
      return true;
    }
  }

  it('locks like @DistributedLock, each method with its own key', async () => {
    @Injectable()
    class Orders {
      @OrderLock()
      async pay(order: { id: number }) {
        return `${keysHere()} ${order.id}`;
      }
      @OrderLock('0s')
      async ship(order: { id: number; to: string }) {
        return `${keysHere()} to ${order.to}`;
      }
    }
    const app = await start({ providers: [Orders] });
    await expect(app.get(Orders).pay({ id: 1 })).resolves.toBe('order:1 1');
    await expect(app.get(Orders).ship({ id: 2, to: 'Rome' })).resolves.toBe('order:2 to Rome');
    await app.get(LockService).acquire('order:3');
    await expect(app.get(Orders).ship({ id: 3, to: 'Rome' })).rejects.toThrow(LockBusyError);
  });

  it('may be shared by handlers, and reads the names of each', async () => {
    @Controller()
    class Items {
      @LockedGet('a')
      async one() {
        return keysHere();
      }
      @LockedGet('b')
      async other() {
        return keysHere();
      }
    }
    const { fetch } = await serve({ controllers: [Items] });
    expect(await (await fetch('/a')).text()).toBe('Items.one');
    expect(await (await fetch('/b')).text()).toBe('Items.other');
  });
});

describe('two locks on one method', () => {
  @Injectable()
  class Orders {
    readonly started = new Gate();
    readonly finish = new Gate();

    @DistributedLock('a:outer', { wait: 0 })
    @DistributedLock('b:inner', { wait: 0 })
    async both() {
      this.started.open();
      await this.finish.opened;
      return [keysHere(), currentLock('a:outer').key];
    }
  }

  it('acquire from top to bottom and release in reverse', async () => {
    const app = await start({ providers: [Orders] });
    const [orders, locks] = [app.get(Orders), app.get(LockService)];
    const steps: string[] = [];
    locks.events.on('acquired', ({ key }) => steps.push(`+${key}`));
    locks.events.on('released', ({ key }) => steps.push(`-${key}`));
    const call = orders.both();
    await orders.started.opened;
    expect(await locks.tryAcquire('a:outer')).toBeNull();
    expect(await locks.tryAcquire('b:inner')).toBeNull();
    orders.finish.open();
    await expect(call).resolves.toEqual(['b:inner', 'a:outer']);
    expect(steps).toEqual(['+a:outer', '+b:inner', '-b:inner', '-a:outer']);
  });

  it('leave neither lock held when the lower one is busy', async () => {
    const app = await start({ providers: [Orders] });
    await app.get(LockService).acquire('b:inner');
    await expect(app.get(Orders).both()).rejects.toThrow(/"b:inner"/);
    expect(
      app
        .get(LockAdmin)
        .held()
        .map(({ key }) => key),
    ).toEqual(['b:inner']);
  });
});

describe('generic classes', () => {
  abstract class Repository<T extends { id: number }> {
    @DistributedLock('#{this.table}:#{item.id}')
    async save(item: T): Promise<[key: string, saved: T]> {
      return [keysHere(), item];
    }
    protected abstract readonly table: string;
  }

  it.each([
    ['singletons', Scope.DEFAULT],
    ['request-scoped', Scope.REQUEST],
  ])('lock in each class that extends them (%s)', async (_, scope) => {
    @Injectable({ scope })
    class Cats extends Repository<{ id: number; name: string }> {
      protected readonly table = 'cat';
    }
    @LockDefaults({ wait: 0 })
    @Injectable({ scope })
    class Dogs extends Repository<{ id: number; age: number }> {
      protected readonly table = 'dog';
    }
    const app = await start({ providers: [Cats, Dogs] });
    await expect((await app.resolve(Cats)).save({ id: 1, name: 'Tom' })).resolves.toEqual([
      'cat:1',
      { id: 1, name: 'Tom' },
    ]);
    await expect((await app.resolve(Dogs)).save({ id: 1, age: 3 })).resolves.toEqual(['dog:1', { id: 1, age: 3 }]);
  });
});

it('CQRS handlers lock by their command, within the request that sent it', async () => {
  class Pay {
    constructor(readonly orderId: number) {}
  }
  class Find {
    constructor(readonly orderId: number) {}
  }
  @CommandHandler(Pay)
  class PayHandler implements ICommandHandler<Pay> {
    @DistributedLock('order:#{command.orderId}')
    async execute(command: Pay) {
      return `${keysHere()} ${command.orderId}`;
    }
  }
  @QueryHandler(Find)
  class FindHandler implements IQueryHandler<Find> {
    @DistributedLock('find:#{query.orderId}', { mode: 'shared' })
    async execute(query: Find) {
      return `${keysHere()} ${query.orderId}`;
    }
  }
  @Controller()
  class Orders {
    constructor(
      private readonly commands: CommandBus,
      private readonly queries: QueryBus,
    ) {}
    @Get()
    async find() {
      return [
        await this.commands.execute<Pay, string>(new Pay(7)),
        await this.queries.execute<Find, string>(new Find(7)),
      ];
    }
  }
  const { fetch } = await serve({
    imports: [CqrsModule.forRoot()],
    controllers: [Orders],
    providers: [PayHandler, FindHandler],
  });
  const response = await fetch('/');
  expect(await response.json()).toEqual(['order:7 7', 'find:7 7']);
});

describe('@ApiLocked', () => {
  it('documents the error responses of locked handlers, on a handler and on a controller', async () => {
    @Controller('handlers')
    class Handlers {
      @ApiLocked()
      @ApiOkResponse({ description: 'Done' })
      @Get('locked')
      @DistributedLock('item', { wait: 0 })
      async locked() {}
      @Get('plain')
      plain() {}
    }
    @ApiLocked({ busy: 409 })
    @Controller('controllers')
    class Controllers {
      @Get()
      @DistributedLock('item', { wait: 0 })
      async locked() {}
    }
    const { app, fetch } = await serve({ controllers: [Handlers, Controllers] });
    const { paths } = SwaggerModule.createDocument(app, new DocumentBuilder().build());
    expect(Object.keys(paths['/handlers/plain']!.get!.responses)).toEqual(['200']);
    expect(Object.keys(paths['/handlers/locked']!.get!.responses)).toEqual(['200', '423', '503']);
    expect(Object.keys(paths['/controllers']!.get!.responses)).toEqual(['200', '409', '503']);
    // The schema matches the response.
    await app.get(LockService).acquire('item');
    const busy = await fetch('/handlers/locked');
    const documented = paths['/handlers/locked']!.get!.responses['423'] as unknown as Documented;
    const { schema } = documented.content['application/problem+json'];
    expect(busy.headers.get('content-type')).toMatch(/^application\/problem\+json/);
    expect(Object.keys(documented.headers)).toEqual(['Retry-After']);
    const body = (await busy.json()) as Record<string, unknown>;
    expect(Object.keys(body).sort()).toEqual(Object.keys(schema.properties).sort());
    expect([schema.properties['status']?.enum, schema.properties['code']?.enum]).toEqual([
      [body['status']],
      // A deadlock gets the same status as a busy lock.
      [body['code'], 'LOCK_DEADLOCK'],
    ]);
  });

  interface Documented {
    headers: object;
    content: { 'application/problem+json': { schema: { properties: Record<string, { enum?: unknown[] }> } } };
  }
});
