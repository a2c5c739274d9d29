import {
  applyDecorators,
  type ArgumentsHost,
  type CanActivate,
  Catch,
  type ExceptionFilter,
  Injectable,
  ParseIntPipe,
  type Provider,
  type Type,
  UseFilters,
  UseGuards,
  UseInterceptors,
} from '@nestjs/common';
import { APP_FILTER } from '@nestjs/core';
import { WsAdapter } from '@nestjs/platform-ws';
import { IoAdapter } from '@nestjs/platform-socket.io';
import { MessageBody, SubscribeMessage, WebSocketGateway } from '@nestjs/websockets';
import { once } from 'node:events';
import { Observable } from 'rxjs';
import { io } from 'socket.io-client';
import { WebSocket } from 'ws';
import {
  currentLock,
  DistributedLock,
  LockAdmin,
  LockErrorFilter,
  LockRequestInterceptor,
  LockService,
  LockBusyError,
} from '../../../lib/index.js';
import { isNest11, serve, until } from '../apps.js';
import { itUnless } from '../../unless.js';

@Injectable()
class BusyGuard implements CanActivate {
  @DistributedLock('item', { wait: 0 })
  async canActivate() {
    return true;
  }
}

class Handlers {
  @SubscribeMessage('key')
  @DistributedLock('item:#{request.data.id}:#{id}')
  async key(@MessageBody('id', ParseIntPipe) id: number) {
    return { event: 'done', data: `${currentLock().key} ${id}` };
  }
  @SubscribeMessage('around')
  @DistributedLock('around:#{request.data.id}', { around: 'request' })
  async around(@MessageBody('id', ParseIntPipe) id: number) {
    return { event: 'done', data: `${currentLock().key} ${id}` };
  }
  @SubscribeMessage('busy')
  @DistributedLock('item', { wait: 0 })
  async busy() {}
  @SubscribeMessage('acknowledged')
  acknowledged() {
    return 'done';
  }
  @SubscribeMessage('guarded')
  @UseGuards(BusyGuard)
  guarded() {}
  @SubscribeMessage('misused')
  @DistributedLock('item:#{request.data.nothing}')
  async misused() {}
  @SubscribeMessage('stream')
  @DistributedLock('stream', { around: 'request' })
  stream(): Observable<{ event: string; data: string }> {
    return new Observable((subscriber) => {
      subscriber.next({ event: 'done', data: currentLock().key });
    });
  }
}

// Nest 11 runs no global interceptors for gateways.
const LockedGateway = applyDecorators(
  WebSocketGateway(),
  ...(isNest11 ? [UseInterceptors(LockRequestInterceptor)] : []),
);

/** A connected client of either library. */
interface Client {
  /** Sends a message and waits for the next event. */
  ask(event: string, data?: unknown): Promise<[event: string, data: unknown]>;
  close(): void;
}

const BUSY = {
  status: 'error',
  message: expect.stringMatching(/in use/) as string,
  code: 'LOCK_BUSY',
  retryAfter: 1,
};

const clients = new Set<Pick<Client, 'close'>>();
afterEach(() => {
  for (const client of clients) client.close();
  clients.clear();
});

async function nativeClient(url: string): Promise<Client> {
  const socket = new WebSocket(url.replace('http', 'ws'));
  await once(socket, 'open');
  return {
    ask: async (event, data = {}) => {
      socket.send(JSON.stringify({ event, data }));
      const [message] = (await once(socket, 'message')) as [Buffer];
      const answer = JSON.parse(message.toString()) as { event: string; data: unknown };
      return [answer.event, answer.data];
    },
    close: () => socket.terminate(),
  };
}

async function ioClient(url: string): Promise<Client> {
  const socket = io(url, { transports: ['websocket'], reconnection: false });
  await new Promise<void>((resolve) => socket.on('connect', resolve));
  return {
    ask: (event, data = {}) =>
      new Promise((resolve) => {
        socket.onAny((name: string, answer: unknown) => {
          socket.offAny();
          resolve([name, answer]);
        });
        socket.emit(event, data);
      }),
    close: () => socket.disconnect(),
  };
}

describe.each([
  ['ws', WsAdapter, nativeClient],
  ['socket.io', IoAdapter, ioClient],
] as const)('a gateway on %s', (_, Adapter, connectTo) => {
  async function connect(gateway: Type, mapErrors?: false, ...providers: Provider[]) {
    const { app } = await serve({ providers: [gateway, ...providers] }, { mapErrors }, (it) =>
      it.useWebSocketAdapter(new Adapter(it)),
    );
    await app.get(LockService).acquire('item');
    const client = await connectTo(await app.getUrl());
    clients.add(client);
    const held = () =>
      app
        .get(LockAdmin)
        .held()
        .map(({ key }) => key);
    return { client, held };
  }

  it('reads the message in keys, raw and as the pipes return it', async () => {
    @LockedGateway
    class Gateway extends Handlers {}
    const { client } = await connect(Gateway);
    expect(await client.ask('key', { id: '7' })).toEqual(['done', 'item:7:7 7']);
    expect(await client.ask('around', { id: '7' })).toEqual(['done', 'around:7 7']);
  });

  it('reports a busy lock to the client, but no details of misuse', async () => {
    @LockedGateway
    class Gateway extends Handlers {}
    const { client } = await connect(Gateway);
    expect(await client.ask('busy')).toEqual(['exception', BUSY]);
    expect(await client.ask('misused')).toEqual(['exception', { status: 'error', message: 'Internal server error' }]);
  });

  it('handles errors of guards with LockErrorFilter, because Nest has no global filters for gateways', async () => {
    @LockedGateway
    @UseFilters(LockErrorFilter)
    class Gateway extends Handlers {}
    // An HTTP filter: neither Nest nor our filter calls it here.
    @Catch()
    class ForHttp implements ExceptionFilter {
      catch(_: unknown, host: ArgumentsHost) {
        host.switchToHttp().getResponse<{ status(code: number): void }>().status(500);
      }
    }
    const { client } = await connect(Gateway, undefined, { provide: APP_FILTER, useClass: ForHttp });
    expect(await client.ask('guarded')).toEqual(['exception', BUSY]);
    expect(await client.ask('busy')).toEqual(['exception', BUSY]);
  });

  it("leaves a lock error to the gateway's own filter if it catches it", async () => {
    const caught: unknown[] = [];
    @Catch(LockBusyError)
    class Own implements ExceptionFilter {
      catch(error: unknown, host: ArgumentsHost) {
        caught.push(error);
        const client = host
          .switchToWs()
          .getClient<{ send?: (text: string) => void; emit: (...args: string[]) => void }>();
        if (Adapter === WsAdapter) client.send?.('{"event":"mine"}');
        else client.emit('mine');
      }
    }
    @Catch(TypeError)
    class Other implements ExceptionFilter {
      catch() {}
    }
    @LockedGateway
    @UseFilters(Own)
    class Mine extends Handlers {}
    @LockedGateway
    @UseFilters(new Other())
    class NotMine extends Handlers {}
    const mine = await connect(Mine);
    expect((await mine.client.ask('busy'))[0]).toBe('mine');
    expect(caught).toEqual([expect.any(LockBusyError)]);
    const notMine = await connect(NotMine);
    expect(await notMine.client.ask('busy')).toEqual(['exception', BUSY]);
  });

  // The `emit()` of ws only notifies its own process.
  const reason = isNest11 && Adapter === WsAdapter ? 'Nest 11 sends the error to no ws client' : undefined;
  itUnless(reason)('leaves lock errors to Nest with mapErrors: false', async () => {
    @LockedGateway
    class Gateway extends Handlers {}
    const { client } = await connect(Gateway, false);
    const [event, data] = await client.ask('busy');
    expect([event, data]).toEqual(['exception', expect.objectContaining({ message: 'Internal server error' })]);
  });

  it('holds the lock of a stream until the client disconnects', async () => {
    @LockedGateway
    class Gateway extends Handlers {}
    const { client, held } = await connect(Gateway);
    expect(await client.ask('stream')).toEqual(['done', 'stream']);
    expect(held()).toContain('stream');
    client.close();
    await until(() => !held().includes('stream'));
  });
});

it('never acknowledges a busy call', async () => {
  @LockedGateway
  class Gateway extends Handlers {}
  const { app } = await serve({ providers: [Gateway] }, {}, (it) => it.useWebSocketAdapter(new IoAdapter(it)));
  await app.get(LockService).acquire('item');
  const socket = io(await app.getUrl(), { transports: ['websocket'], reconnection: false });
  clients.add({ close: () => socket.disconnect() });
  const answers: unknown[] = [];
  const failed = new Promise((resolve) => socket.once('exception', resolve));
  socket.emit('busy', {}, (answer: unknown) => answers.push(answer));
  expect(await failed).toEqual(BUSY);
  // An acknowledgement of the busy call would arrive before this one.
  await new Promise((resolve) => socket.emit('acknowledged', {}, resolve));
  expect(answers).toEqual([]);
});
