import type { AddressInfo, Server } from 'node:net';
import {
  type ArgumentsHost,
  type CanActivate,
  Catch,
  Controller,
  type ExceptionFilter,
  Get,
  Injectable,
  ParseIntPipe,
  type Provider,
  type Type,
  UseFilters,
  UseGuards,
  UseInterceptors,
} from '@nestjs/common';
import { APP_FILTER } from '@nestjs/core';
import { type ClientProxy, ClientProxyFactory, MessagePattern, Payload, Transport } from '@nestjs/microservices';
import { firstValueFrom, Observable, throwError, toArray } from 'rxjs';
import {
  currentLock,
  DistributedLock,
  type DistributedLockModuleOptions,
  LockAdmin,
  LockDeadlockError,
  LockErrorFilter,
  LockRequestInterceptor,
  LockLostError,
  LockService,
  LockBusyError,
  LockUnavailableError,
} from '../../../lib/index.js';
import { VersionConflictError } from '../../../lib/providers/typeorm/index.js';
import { Gate, serve, until } from '../apps.js';

@Injectable()
class BusyGuard implements CanActivate {
  @DistributedLock('item', { wait: 0 })
  async canActivate() {
    return true;
  }
}

let gate: Gate;
beforeEach(() => (gate = new Gate()));

class Handlers {
  @MessagePattern('key')
  @DistributedLock('item:#{request.data.id}:#{payload.id}')
  async key(@Payload() payload: { id: number }) {
    return `${currentLock().key} ${payload.id}`;
  }
  @MessagePattern('around')
  @DistributedLock('around:#{request.data.id}', { around: 'request' })
  async around(@Payload('id', ParseIntPipe) id: number) {
    return `${currentLock().key} ${id}`;
  }
  @MessagePattern('busy')
  @DistributedLock('item', { wait: 0 })
  async busy() {}
  @MessagePattern('guarded')
  @UseGuards(BusyGuard)
  guarded() {}
  @MessagePattern('skipped')
  @DistributedLock('item', { around: 'request', onBusy: 'skip' })
  async skipped() {}
  @MessagePattern('stream')
  @DistributedLock('stream', { around: 'request' })
  stream(): Observable<string> {
    return new Observable((subscriber) => {
      subscriber.next(currentLock().key);
      void gate.opened.then(() => {
        subscriber.next(currentLock().isHeld() ? 'still held' : 'lost');
        subscriber.complete();
      });
    });
  }
  @MessagePattern('unavailable')
  async unavailable() {
    throw new LockUnavailableError('No answer from 10.0.0.1.', { key: 'item' });
  }
  @MessagePattern('lost')
  async lost() {
    throw new LockLostError('Gone.', { reason: 'revoked' });
  }
  @MessagePattern('deadlock')
  async deadlock() {
    const cycle = [
      { instance: 'shop:17', method: null, holds: 'item:1', waitsFor: 'item:2', mode: 'exclusive' },
    ] as const;
    throw new LockDeadlockError('instance "shop:17" holds "item:1"', { cycle });
  }
  @MessagePattern('own deadlock')
  async ownDeadlock() {
    throw new LockDeadlockError('It would deadlock.');
  }
  @MessagePattern('outdated')
  async outdated() {
    throw new VersionConflictError('The Order 42 was written since.');
  }
  @MessagePattern('misused')
  @DistributedLock('item:#{request.data.nothing}')
  async misused() {}
  @MessagePattern('own')
  @DistributedLock('own')
  async own() {
    throw new TypeError('own');
  }
}

@Controller()
class Inheriting extends Handlers {}

@Controller()
@UseFilters(LockErrorFilter)
@UseInterceptors(LockRequestInterceptor)
class Explicit extends Handlers {}

const clients = new Set<ClientProxy>();
afterEach(() => {
  for (const client of clients) client.close();
  clients.clear();
});

interface Settings extends Pick<DistributedLockModuleOptions, 'mapErrors'> {
  inheritAppConfig?: boolean;
  filters?: ExceptionFilter[];
  providers?: Provider[];
}

/** Starts an application with a TCP microservice alongside its HTTP server, and holds `item`. */
async function connect(
  controller: Type,
  { inheritAppConfig = true, filters = [], providers = [], mapErrors }: Settings = {},
) {
  let port = 0;
  const { app, fetch } = await serve(
    {
      controllers: [controller],
      providers: [...providers, ...filters.map((filter) => ({ provide: APP_FILTER, useValue: filter }))],
    },
    { mapErrors },
    async (hybrid) => {
      const service = hybrid.connectMicroservice(
        { transport: Transport.TCP, options: { port: 0, host: '127.0.0.1' } },
        { inheritAppConfig },
      );
      await hybrid.startAllMicroservices();
      port = (service.unwrap<Server>().address() as AddressInfo).port;
    },
  );
  await app.get(LockService).acquire('item');
  const client = ClientProxyFactory.create({ transport: Transport.TCP, options: { port, host: '127.0.0.1' } });
  clients.add(client);
  const send = (pattern: string, data: unknown = {}) => firstValueFrom(client.send<unknown>(pattern, data));
  return { app, client, send, fetch };
}

const BUSY = {
  status: 'error',
  message: expect.stringMatching(/in use/) as string,
  code: 'LOCK_BUSY',
  retryAfter: 1,
};

describe.each([
  ['with inheritAppConfig', Inheriting, true],
  ['without it, whose controller declares the interceptor and the filter', Explicit, false],
])('a hybrid application %s', (_, controller, inheritAppConfig) => {
  it('reads the payload in keys, raw and as the pipes return it', async () => {
    const { send } = await connect(controller, { inheritAppConfig });
    expect(await send('key', { id: 7 })).toBe('item:7:7 7');
    expect(await send('around', { id: '7' })).toBe('around:7 7');
  });

  it.each(['busy', 'guarded'])('reports a busy lock to the client (%s)', async (pattern) => {
    const { send } = await connect(controller, { inheritAppConfig });
    await expect(send(pattern)).rejects.toEqual(BUSY);
  });

  it('reports a deadlock as a busy lock without its holder, and misuse as a server error', async () => {
    const { send } = await connect(controller, { inheritAppConfig });
    await expect(send('deadlock')).rejects.toEqual({ ...BUSY, code: 'LOCK_DEADLOCK' });
    await expect(send('own deadlock')).rejects.toEqual({ status: 'error', message: 'Internal server error' });
  });

  it('distinguishes unavailable, lost and outdated, without internals of the server', async () => {
    const { send } = await connect(controller, { inheritAppConfig });
    await expect(send('unavailable')).rejects.toEqual({
      status: 'error',
      message: expect.not.stringMatching(/10\.0\.0\.1/) as string,
      code: 'LOCK_UNAVAILABLE',
      retryAfter: 1,
    });
    await expect(send('lost')).rejects.toEqual({
      status: 'error',
      message: expect.any(String) as string,
      code: 'LOCK_LOST',
    });
    await expect(send('outdated')).rejects.toEqual({
      status: 'error',
      message: expect.not.stringMatching(/42/) as string,
      code: 'LOCK_VERSION_CONFLICT',
    });
    const anyBug = { status: 'error', message: 'Internal server error' };
    await expect(send('misused')).rejects.toEqual(anyBug);
    await expect(send('own')).rejects.toEqual(anyBug);
  });

  it('completes a skipped call, and holds the lock of a stream until its end', async () => {
    const { app, client } = await connect(controller, { inheritAppConfig });
    // Like every handler that returns nothing.
    const skipped = firstValueFrom(client.send<unknown>('skipped', {}), { defaultValue: 'nothing' });
    expect(await skipped).toBe('nothing');
    const values = firstValueFrom(client.send<string>('stream', {}).pipe(toArray()));
    const keys = () =>
      app
        .get(LockAdmin)
        .held()
        .map(({ key }) => key);
    await until(() => keys().includes('stream'));
    gate.open();
    expect(await values).toEqual(['stream', 'still held']);
    await until(() => !keys().includes('stream'));
  });
});

it("a hybrid application without inheritAppConfig does not run a handler with around: 'request' unlocked", async () => {
  const { send } = await connect(Inheriting, { inheritAppConfig: false });
  const anyBug = { status: 'error', message: 'Internal server error' };
  await expect(send('around', { id: '7' })).rejects.toEqual(anyBug);
  await expect(send('busy')).rejects.toEqual(anyBug);
});

describe("an application's own filter", () => {
  @Catch()
  class CatchAll implements ExceptionFilter {
    readonly caught: unknown[] = [];
    catch(error: unknown, host: ArgumentsHost) {
      this.caught.push(error);
      return throwError(() => ({ mine: host.getType() }));
    }
  }

  it.each(['busy', 'guarded'])('takes precedence and gets the lock error (%s)', async (pattern) => {
    const filter = new CatchAll();
    const { send } = await connect(Inheriting, { filters: [filter] });
    await expect(send(pattern)).rejects.toEqual({ mine: 'rpc' });
    expect(filter.caught).toEqual([expect.any(LockBusyError)]);
  });

  it('gets all lock errors with mapErrors: false', async () => {
    const filter = new CatchAll();
    const { send } = await connect(Inheriting, { filters: [filter], mapErrors: false });
    await expect(send('busy')).rejects.toEqual({ mine: 'rpc' });
    const { send: bare } = await connect(Inheriting, { mapErrors: false });
    await expect(bare('busy')).rejects.toEqual({ status: 'error', message: 'Internal server error' });
  });
});

it('gives a handler of two transports the request of the calling transport', async () => {
  @Controller()
  class Both {
    @Get('carts/:id')
    @MessagePattern('add')
    @DistributedLock("cart:#{request.params?.id ?? 'none'}:#{request.data?.id ?? 'none'}")
    async add() {
      return currentLock().key;
    }
  }
  const { fetch, send } = await connect(Both);
  const answers = await Promise.all([fetch('/carts/1').then((response) => response.text()), send('add', { id: 2 })]);
  expect(answers).toEqual(['cart:1:none', 'cart:none:2']);
});
