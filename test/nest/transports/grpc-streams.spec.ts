import { once } from 'node:events';
import {
  applyDecorators,
  type CallHandler,
  Controller,
  type ExecutionContext,
  Injectable,
  type NestInterceptor,
  type Provider,
  type Type,
  UseInterceptors,
} from '@nestjs/common';
import { GrpcMethod, GrpcStreamCall, GrpcStreamMethod, Transport } from '@nestjs/microservices';
import {
  type ClientDuplexStream,
  type ClientUnaryCall,
  type ClientWritableStream,
  credentials,
  type GrpcObject,
  loadPackageDefinition,
  type ServiceClientConstructor,
  type ServerDuplexStream,
  status,
} from '@grpc/grpc-js';
import { fromJSON } from '@grpc/proto-loader';
import { defer, lastValueFrom, map, Observable, of, retry, tap, throwError, timer, toArray } from 'rxjs';
import { currentLock, DistributedLock, LockAdmin, LockBusyError, LockService } from '../../../lib/index.js';
import { freePort } from '../../servers/server-process.mjs';
import { serve, start, until } from '../apps.js';

interface Text {
  readonly text: string;
}

const stream = (requestStream: boolean, responseStream: boolean) => ({
  requestType: 'Text',
  responseType: 'Text',
  requestStream,
  responseStream,
  comment: '',
});
const DEFINITION = fromJSON({
  nested: {
    notes: {
      nested: {
        Text: { fields: { text: { type: 'string', id: 1 } } },
        Notes: {
          methods: {
            Ping: stream(false, false),
            Store: stream(true, false),
            Again: stream(true, false),
            Chat: stream(true, true),
            Talk: stream(true, true),
          },
        },
      },
    },
  },
});

interface NotesClient {
  ping(request: Text, done: (error: Error | null) => void): ClientUnaryCall;
  store(done: (error: Error | null, answer?: Text) => void): ClientWritableStream<Text>;
  again: NotesClient['store'];
  chat(): ClientDuplexStream<Text, Text>;
  talk: NotesClient['chat'];
  close(): void;
}

const clients = new Set<NotesClient>();
afterEach(() => {
  for (const client of clients) client.close();
  clients.clear();
});

/** Starts a gRPC server alongside an HTTP server, and a client. */
async function connect(controller: Type, providers: Provider[] = []) {
  const url = `127.0.0.1:${await freePort()}`;
  const { app } = await serve({ controllers: [controller], providers }, {}, async (hybrid) => {
    hybrid.connectMicroservice(
      { transport: Transport.GRPC, options: { package: 'notes', packageDefinition: DEFINITION, url } },
      { inheritAppConfig: true },
    );
    await hybrid.startAllMicroservices();
  });
  const { Notes } = loadPackageDefinition(DEFINITION)['notes'] as GrpcObject;
  const client = new (Notes as ServiceClientConstructor)(url, credentials.createInsecure()) as unknown as NotesClient;
  clients.add(client);
  const admin = app.get(LockAdmin);
  return {
    app,
    client,
    locks: app.get(LockService),
    held: () => admin.held().map(({ key }) => key),
    waiting: () => admin.waiting().map(({ key }) => key),
    /** Once it resolves, the server has received everything sent earlier on the same connection. */
    ping: () =>
      new Promise<void>((resolve, reject) => {
        client.ping({ text: '' }, (error) => {
          if (error) reject(error);
          else resolve();
        });
      }),
  };
}

/** Sends the texts, ends the stream, and returns the server's response. */
function store(client: NotesClient, texts: readonly string[], method: 'store' | 'again' = 'store'): Promise<string> {
  return new Promise((resolve, reject) => {
    const call = client[method]((error, answer) => {
      if (answer) resolve(answer.text);
      else reject(error ?? new Error('no answer'));
    });
    for (const text of texts) call.write({ text });
    call.end();
  });
}

/** Starts a bidirectional call, and collects what it receives. */
function chat(client: NotesClient, method: 'chat' | 'talk' = 'chat') {
  const call = client[method]();
  const seen = { call, texts: [] as string[], end: undefined as unknown };
  call.on('data', ({ text }: Text) => seen.texts.push(text));
  call.on('end', () => (seen.end ??= 'ended'));
  call.on('error', (error) => (seen.end ??= error));
  return seen;
}

const TEXTS = ['1', '2', '3', '4', '5'];

class Handlers {
  @GrpcMethod('Notes')
  ping(): Text {
    return { text: '' };
  }
}
const collect = (notes: Observable<Text>) =>
  notes.pipe(
    map(({ text }) => `${text} under ${currentLock('notes').key}`),
    toArray(),
    map((all) => ({ text: all.join() })),
  );
const answerEach = (notes: Observable<Text>) =>
  notes.pipe(map(({ text }) => ({ text: `${text} ${currentLock('notes').key}` })));

const onStream = () => GrpcStreamMethod('Notes');

/** Creates a controller with two streams under these decorators. The first one is nearest to the method. */
function streaming(...decorators: readonly MethodDecorator[]): Type {
  @Controller()
  class Streaming extends Handlers {
    @applyDecorators(...decorators)
    store(notes: Observable<Text>): Observable<Text> {
      return collect(notes);
    }
    @applyDecorators(...decorators)
    chat(notes: Observable<Text>): Observable<Text> {
      return answerEach(notes);
    }
  }
  return Streaming;
}

const locked = (key: string, options: object = {}): MethodDecorator =>
  DistributedLock(key, { wait: '20s', ...options });
/** The async method reads all messages before it responds. */
@Controller()
class Async extends Handlers {
  @GrpcStreamMethod('Notes')
  @DistributedLock('notes', { wait: '20s' })
  async store(notes: Observable<Text>): Promise<Text> {
    return lastValueFrom(collect(notes));
  }
  @GrpcStreamMethod('Notes')
  @DistributedLock('notes', { wait: '20s' })
  chat(notes: Observable<Text>): Observable<Text> {
    return answerEach(notes);
  }
}
/** A service holds the lock, and gets the stream through the controller's operators. */
@Injectable()
class Storage {
  @DistributedLock('notes', { wait: '20s' })
  store(notes: Observable<Text>): Observable<Text> {
    return collect(notes);
  }
  @DistributedLock('notes', { wait: '20s' })
  chat(notes: Observable<Text>): Observable<Text> {
    return answerEach(notes);
  }
}
@Controller()
class ByService extends Handlers {
  constructor(private readonly storage: Storage) {
    super();
  }
  @GrpcStreamMethod('Notes')
  store(notes: Observable<Text>): Observable<Text> {
    return this.storage.store(notes.pipe(map(({ text }) => ({ text }))));
  }
  @GrpcStreamMethod('Notes')
  chat(notes: Observable<Text>): Observable<Text> {
    return this.storage.chat(notes);
  }
}

describe.each([
  ['below @GrpcStreamMethod', streaming(locked('notes'), onStream())],
  ['above @GrpcStreamMethod', streaming(onStream(), locked('notes'))],
  ["around: 'request'", streaming(locked('notes', { around: 'request' }), onStream())],
  ['above and below @GrpcStreamMethod', streaming(locked('inner'), onStream(), locked('notes'))],
  ['below @GrpcStreamMethod, on an async method', Async],
  ['on a service that the handler calls', ByService],
])('a lock %s', (_, controller) => {
  const all = TEXTS.map((text) => `${text} under notes`).join();

  it('lets a client stream arrive completely if it is free', async () => {
    const { client, held } = await connect(controller, [Storage]);
    expect(await store(client, TEXTS)).toBe(all);
    await until(() => held().length === 0);
  });

  it('lets a client stream arrive completely even if it ends while the lock is busy', async () => {
    const { client, locks, ping, waiting } = await connect(controller, [Storage]);
    const lock = await locks.acquire('notes');
    const answer = store(client, TEXTS);
    await until(() => waiting().length === 1);
    await ping();
    await lock.release();
    expect(await answer).toBe(all);
  });

  it('passes messages of a bidirectional stream from before and after the grant, in order, under the lock', async () => {
    const { client, locks, ping, waiting, held } = await connect(controller, [Storage]);
    const lock = await locks.acquire('notes');
    const seen = chat(client);
    for (const text of TEXTS) seen.call.write({ text });
    await until(() => waiting().length === 1);
    await ping();
    expect(seen.texts).toEqual([]);
    await lock.release();
    await until(() => seen.texts.length === TEXTS.length);
    seen.call.write({ text: '6' });
    await until(() => seen.texts.length === TEXTS.length + 1);
    expect(seen.texts).toEqual([...TEXTS, '6'].map((text) => `${text} notes`));
    expect(held()).toContain('notes');
    seen.call.end();
    await until(() => seen.end !== undefined);
    expect(seen.end).toBe('ended');
    await until(() => held().length === 0);
  });

  it('stops waiting when the client cancels', async () => {
    const { client, locks, held, waiting } = await connect(controller, [Storage]);
    const lock = await locks.acquire('notes');
    const { call } = chat(client);
    call.write({ text: '1' });
    await until(() => waiting().length === 1);
    call.cancel();
    await until(() => waiting().length === 0);
    await lock.release();
    expect(held()).toEqual([]);
  });
});

it('fails the call if the lock stays busy, and an interceptor that retries loses no messages', async () => {
  let tries = 0;
  class TryAgain implements NestInterceptor {
    intercept(_context: ExecutionContext, next: CallHandler) {
      return next
        .handle()
        .pipe(
          tap({ subscribe: () => (tries += 1) }),
          retry({ delay: (error: unknown) => (error instanceof LockBusyError ? timer(1) : throwError(() => error)) }),
        );
    }
  }
  @Controller()
  class Impatient extends Handlers {
    @GrpcStreamMethod('Notes')
    @DistributedLock('notes', { wait: '20ms' })
    store(notes: Observable<Text>): Observable<Text> {
      return collect(notes);
    }
    @GrpcStreamMethod('Notes')
    @DistributedLock('notes', { wait: '20ms' })
    chat(notes: Observable<Text>): Observable<Text> {
      return answerEach(notes);
    }
    @UseInterceptors(TryAgain)
    @GrpcStreamMethod('Notes', 'Again')
    @DistributedLock('notes', { wait: '20ms' })
    again(notes: Observable<Text>): Observable<Text> {
      return collect(notes);
    }
  }
  const { client, locks, held } = await connect(Impatient);
  const lock = await locks.acquire('notes');
  await expect(store(client, TEXTS)).rejects.toMatchObject({ code: expect.any(Number) as number });
  const seen = chat(client);
  seen.call.write({ text: '1' });
  await until(() => seen.end !== undefined);
  expect(seen.end).toMatchObject({ code: expect.any(Number) as number });
  expect(seen.texts).toEqual([]);
  const answer = store(client, TEXTS, 'again');
  await until(() => tries >= 3);
  await lock.release();
  expect(await answer).toBe(TEXTS.map((text) => `${text} under notes`).join());
  await until(() => held().length === 0);
});

it('does not subscribe to any other Observable argument before the method does', async () => {
  @Injectable()
  class Imports {
    @DistributedLock('import')
    load(rows: Observable<number>): Observable<string> {
      return rows.pipe(map((row) => `${row} under ${currentLock().key}`));
    }
  }
  const app = await start({ providers: [Imports] });
  let subscriptions = 0;
  const rows = defer(() => of((subscriptions += 1)));
  const lock = await app.get(LockService).acquire('import');
  const loaded = lastValueFrom(app.get(Imports).load(rows));
  await until(() => app.get(LockAdmin).waiting().length === 1);
  expect(subscriptions).toBe(0);
  await lock.release();
  expect(await loaded).toBe('1 under import');
});

it('loses no messages of a @GrpcStreamCall, which is paused until the method reads it, and rejects through onBusy', async () => {
  type Refusable = { emit(event: 'error', status: object): unknown };
  @Controller()
  class Calls extends Handlers {
    @GrpcStreamCall('Notes')
    @DistributedLock('notes', { wait: '20s' })
    async chat(call: ServerDuplexStream<Text, Text>): Promise<void> {
      const { key } = currentLock();
      call.on('data', ({ text }: Text) => call.write({ text: `${text} ${key}` }));
      await once(call, 'end');
      call.end();
    }
    // Nest lets an error of such a handler end the process, and sends no response.
    @GrpcStreamCall('Notes')
    @DistributedLock('notes', {
      wait: 0,
      onBusy: ({ args: [call] }) => (call as Refusable).emit('error', { code: status.ABORTED, details: 'in use' }),
    })
    async talk(_call: ServerDuplexStream<Text, Text>): Promise<void> {}
  }
  const { client, locks, held, ping, waiting } = await connect(Calls);
  const lock = await locks.acquire('notes');
  const seen = chat(client);
  for (const text of TEXTS) seen.call.write({ text });
  seen.call.end();
  await until(() => waiting().length === 1);
  await ping();
  await lock.release();
  await until(() => seen.end !== undefined);
  expect(seen.texts).toEqual(TEXTS.map((text) => `${text} notes`));
  await until(() => held().length === 0);
  await locks.acquire('notes');
  const refused = chat(client, 'talk');
  await until(() => refused.end !== undefined);
  expect(refused.end).toMatchObject({ code: status.ABORTED, details: 'in use' });
});
