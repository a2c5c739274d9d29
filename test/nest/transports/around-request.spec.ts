import { once } from 'node:events';
import { IncomingMessage, type Server, ServerResponse } from 'node:http';
import { type AddressInfo, connect, Socket } from 'node:net';
import { PassThrough, Readable } from 'node:stream';
import {
  type CallHandler,
  Controller,
  Delete,
  type ExecutionContext,
  Get,
  type INestApplication,
  Injectable,
  type NestInterceptor,
  Param,
  type PipeTransform,
  Res,
  Sse,
  StreamableFile,
  UseInterceptors,
} from '@nestjs/common';
import { HttpAdapterHost } from '@nestjs/core';
import { map, Observable, tap, timeout } from 'rxjs';
import {
  currentLock,
  DistributedLock,
  type DistributedLockOptions,
  LockAdmin,
  LockRequestInterceptor,
  LockService,
  MemoryLockProvider,
} from '../../../lib/index.js';
import { type ExpressResponse, Gate, type HttpApp, isNest11, type Platform, serve, until } from '../apps.js';

const held = ({ app }: HttpApp) =>
  app
    .get(LockAdmin)
    .held()
    .map(({ key }) => key);

/** Locks a handler around its whole request. */
const Around = (key: string, options: Omit<DistributedLockOptions, 'onBusy'> = {}) =>
  DistributedLock(key, { ...options, around: 'request' });

/** A typical decorator: it copies the method's metadata, but not its name. */
const Traced = ((_: object, __: string, descriptor: TypedPropertyDescriptor<(...args: never[]) => unknown>) => {
  const original = descriptor.value!;
  descriptor.value = function (this: unknown, ...args: never[]) {
    return original.apply(this, args);
  };
  for (const key of Reflect.getOwnMetadataKeys(original) as unknown[]) {
    Reflect.defineMetadata(key, Reflect.getOwnMetadata(key, original), descriptor.value);
  }
}) as MethodDecorator;

/** Makes a request without a network, like a batch endpoint, so that it runs in the handler's async context. */
async function requestWithin({ httpAdapter }: HttpAdapterHost, url: string): Promise<void> {
  const request = Object.assign(new IncomingMessage(new Socket()), { method: 'GET', url });
  const response = new ServerResponse(request);
  response.assignSocket(new PassThrough() as never);
  const finished = once(response, 'finish');
  (httpAdapter.getHttpServer() as Server).emit('request', request, response);
  await finished;
}

describe("around: 'request'", () => {
  it('covers pipes, inner interceptors and the handler, and is released before a plain response is sent', async () => {
    const seen: string[] = [];
    const note = (where: string) => seen.push(`${where} under ${currentLock().key}`);
    @Injectable()
    class NotingPipe implements PipeTransform {
      transform(value: unknown) {
        note('pipe');
        return value;
      }
    }
    @Injectable()
    class NotingInterceptor implements NestInterceptor {
      intercept(_: ExecutionContext, next: CallHandler) {
        note('before');
        return next.handle().pipe(tap(() => note('after')));
      }
    }
    @Controller()
    @UseInterceptors(NotingInterceptor)
    class Items {
      @Get('items/:id')
      @Around('item:#{request.params.id}')
      async find(@Param('id', NotingPipe) id: string) {
        note('handler');
        return id;
      }
    }
    const app = await serve({ controllers: [Items] });
    expect(await (await app.fetch('/items/7')).text()).toBe('7');
    expect(seen).toEqual(['before', 'pipe', 'handler', 'after'].map((where) => `${where} under item:7`));
    expect(held(app)).toEqual([]);
  });

  it('covers one call: calling another handler fails, and a request made by the handler has its own lock', async () => {
    const seen: string[] = [];
    @Controller()
    class Items {
      constructor(private readonly host: HttpAdapterHost) {}
      @Get('items/:id')
      @Around('item:#{request.params.id}')
      async find(@Param('id') id: string): Promise<string> {
        seen.push(currentLock().key);
        if (id === '1') {
          expect(() => this.find('2')).toThrow('LockRequestInterceptor did not run here');
          await requestWithin(this.host, '/items/3');
        }
        return id;
      }
    }
    const { fetch } = await serve({ controllers: [Items] });
    expect(await (await fetch('/items/1')).text()).toBe('1');
    expect(seen).toEqual(['item:1', 'item:3']);
  });

  it('runs requests one at a time, and lets a service of the handler re-enter the lock', async () => {
    const inside: string[] = [];
    @Injectable()
    class Stock {
      @DistributedLock('stock', { wait: 0, reentrant: true })
      async take() {
        inside.push('in');
        await new Promise((resolve) => setImmediate(resolve));
        inside.push('out');
      }
    }
    @Controller()
    class Items {
      constructor(private readonly stock: Stock) {}
      @Get()
      @Around('stock')
      take() {
        return this.stock.take();
      }
    }
    const { fetch } = await serve({ controllers: [Items], providers: [Stock] });
    const statuses = await Promise.all([1, 2, 3].map(async () => (await fetch('/')).status));
    expect(statuses).toEqual([200, 200, 200]);
    expect(inside).toEqual(['in', 'out', 'in', 'out', 'in', 'out']);
  });

  it('uses the locks of its own application if there are several', async () => {
    @Controller()
    class Items {
      @Get()
      @Around('item')
      async find() {
        return currentLock().key;
      }
    }
    const [one, other] = [await serve({ controllers: [Items] }), await serve({ controllers: [Items] })];
    await one.app.get(LockService).acquire('item');
    expect(await (await other.fetch('/')).text()).toBe('item');
  });

  it('acquires the lock once if the interceptor is registered twice', async () => {
    @Controller()
    @UseInterceptors(LockRequestInterceptor)
    class Items {
      @Get()
      @Around('item', { wait: 0 })
      async find() {
        return 'found';
      }
    }
    const { fetch } = await serve({ controllers: [Items] });
    expect(await (await fetch('/')).text()).toBe('found');
  });

  it('responds with 423 or what onBusy returns when busy, and with 500 when lost', async () => {
    @Controller()
    class Items {
      constructor(private readonly admin: LockAdmin) {}
      @Get('throw')
      @Around('item', { wait: 0 })
      async throw() {}
      @Get('skip')
      @DistributedLock('item', { around: 'request', onBusy: 'skip' })
      async skip() {}
      @Get('skip-observable')
      @DistributedLock('item', { onBusy: 'skip' })
      skipObservable(): Observable<string> {
        return new Observable();
      }
      @Get('else')
      @DistributedLock('item', { around: 'request', wait: 0, onBusy: ({ method, keys }) => ({ method, keys }) })
      async else() {}
      @Get('nothing')
      @DistributedLock('item', { around: 'request', wait: 0, onBusy: () => undefined })
      async nothing() {}
      @Get('nothing-observable')
      @DistributedLock('item', { wait: 0, onBusy: () => undefined })
      nothingObservable(): Observable<string> {
        return new Observable();
      }
      @Get('skip-beneath')
      @DistributedLock('other')
      @DistributedLock('item', { onBusy: 'skip' })
      skipBeneath(): Observable<string> {
        return new Observable();
      }
      @Get('lost')
      @Around('lost')
      async lost() {
        await this.admin.forceRelease('lost');
      }
    }
    const { app, fetch } = await serve({ controllers: [Items] });
    await app.get(LockService).acquire('item');
    expect((await fetch('/throw')).status).toBe(423);
    for (const path of ['/skip', '/skip-observable', '/nothing', '/nothing-observable', '/skip-beneath']) {
      const skipped = await fetch(path);
      expect([skipped.status, await skipped.text()]).toEqual([200, '']);
    }
    expect(await (await fetch('/else')).json()).toEqual({ method: 'Items.else', keys: ['item'] });
    expect((await fetch('/lost')).status).toBe(500);
  });

  // Only Nest 12 sends a stream that is wrapped in `{ data: stream }`.
  it.each(['/file', ...(isNest11 ? [] : ['/wrapped']), '/by-itself', '/traced'])(
    'covers a streamed response until its last byte (%s)',
    async (path) => {
      const file = new PassThrough();
      @Injectable()
      class Wrap implements NestInterceptor {
        intercept(_: ExecutionContext, next: CallHandler) {
          return next.handle().pipe(map((data: unknown) => ({ data })));
        }
      }
      @Controller()
      class Files {
        @Get('file')
        @Around('file')
        async file() {
          return new StreamableFile(file);
        }
        @Get('wrapped')
        @Around('file')
        @UseInterceptors(Wrap)
        async wrapped() {
          return file;
        }
        @Get('traced')
        @Traced
        @Around('file')
        async traced(@Res() response: ExpressResponse) {
          file.pipe(response);
        }
        @Get('by-itself')
        @Around('file')
        async byItself(@Res() response: ExpressResponse) {
          file.pipe(response);
        }
      }
      const app = await serve({ controllers: [Files] });
      const answered = app.fetch(path);
      await until(() => held(app).length === 1);
      // The handler ends long before the first byte.
      for (let turn = 0; turn < 20; turn++) await new Promise((resolve) => setImmediate(resolve));
      expect(held(app)).toEqual(['file']);
      file.write('first ');
      const response = await answered;
      expect(held(app)).toEqual(['file']);
      file.end('last');
      expect(await response.text()).toBe('first last');
      await until(() => held(app).length === 0);
    },
  );

  it('releases the lock after an error of the response that the handler listens to', async () => {
    const failed: unknown[] = [];
    @Controller()
    class Files {
      @Get('file')
      @Around('file')
      async file(@Res() response: ExpressResponse) {
        response.on('error', (error) => failed.push(error));
        response.write('first');
        setImmediate(() => {
          response.emit('error', new Error('of the response'));
          setImmediate(() => response.end());
        });
      }
    }
    const app = await serve({ controllers: [Files] });
    expect(await (await app.fetch('/file')).text()).toBe('first');
    await until(() => held(app).length === 0);
    expect(failed).toHaveLength(1);
  });

  it('releases the lock before the response if the handler uses @Res({ passthrough: true })', async () => {
    @Controller()
    class Items {
      @Get()
      @Around('item')
      async find(@Res({ passthrough: true }) response: ExpressResponse) {
        response.setHeader('x-kind', 'item');
      }
    }
    const app = await serve({ controllers: [Items] });
    const releases: string[] = [];
    app.app.get(LockService).events.on('released', ({ key }) => releases.push(key));
    expect((await app.fetch('/')).headers.get('x-kind')).toBe('item');
    expect(releases).toEqual(['item']);
  });

  it('keeps the lock until the handler is done if an interceptor times out earlier', async () => {
    const gate = new Gate();
    @Injectable()
    class Impatient implements NestInterceptor {
      intercept(_: ExecutionContext, next: CallHandler) {
        return next.handle().pipe(timeout(5));
      }
    }
    @Controller()
    @UseInterceptors(Impatient)
    class Items {
      @Get()
      @Around('slow')
      async slow() {
        await gate.opened;
      }
    }
    const app = await serve({ controllers: [Items] });
    expect((await app.fetch('/')).status).toBe(500);
    expect(held(app)).toEqual(['slow']);
    gate.open();
    await until(() => held(app).length === 0);
  });

  it('releases the lock before an empty response is sent', async () => {
    @Controller()
    class Items {
      @Delete()
      @Around('item')
      async remove() {}
    }
    const app = await serve({ controllers: [Items] });
    const releases: string[] = [];
    app.app.get(LockService).events.on('released', ({ key }) => releases.push(key));
    await app.fetch('/', { method: 'DELETE' });
    expect(releases).toEqual(['item']);
  });

  it('throws if the interceptor did not run, instead of running the handler unlocked', async () => {
    const ran: string[] = [];
    let late: Promise<unknown> | undefined;
    const requestOver = new Gate();
    @Controller()
    class Items {
      @Get('items/:id')
      @Around('item:#{request.params.id}')
      async find(@Param('id') id: string) {
        ran.push(id);
        late ??= requestOver.opened.then(() => this.find('late'));
        return id;
      }
    }
    const app = await serve({ controllers: [Items] });
    const message = /^Items\.find has around: 'request', but LockRequestInterceptor did not run.*inheritAppConfig/;
    const call = () => app.app.get(Items).find('direct');
    expect(call).toThrow(message);
    await app.fetch('/items/1');
    requestOver.open();
    await expect(late).rejects.toThrow(message);
    expect(ran).toEqual(['1']);
  });

  it('does not change the values that other interceptors see', async () => {
    @Injectable()
    class Wrap implements NestInterceptor {
      intercept(_: ExecutionContext, next: CallHandler) {
        return next.handle().pipe(map((value: unknown) => ({ value })));
      }
    }
    @Controller()
    @UseInterceptors(Wrap)
    class Items {
      @Get()
      @Around('item')
      find(): Observable<number> {
        return new Observable((subscriber) => {
          subscriber.next(1);
          subscriber.next(2);
          subscriber.complete();
        });
      }
    }
    const { fetch } = await serve({ controllers: [Items] });
    expect(await (await fetch('/')).json()).toEqual({ value: 2 });
  });
});

describe.each<Platform>(['Express', 'Fastify'])("around: 'request' with a streamed response on %s", (platform) => {
  it('covers a file until its last byte', async () => {
    const file = new PassThrough();
    @Controller()
    class Files {
      @Get()
      @Around('file:#{request.query.name}')
      async file() {
        return new StreamableFile(file);
      }
    }
    const app = await serve({ controllers: [Files] }, {}, undefined, platform);
    file.write('first ');
    const response = await app.fetch('/?name=a');
    expect(held(app)).toEqual(['file:a']);
    file.end('last');
    expect(await response.text()).toBe('first last');
    await until(() => held(app).length === 0);
  });

  it('releases the lock when the client of a stream disconnects', async () => {
    @Controller()
    class Files {
      @Get()
      @Around('file')
      async file() {
        const endless = new PassThrough();
        endless.write('first');
        return new StreamableFile(endless);
      }
    }
    const app = await serve({ controllers: [Files] }, {}, undefined, platform);
    const client = new AbortController();
    await app.fetch('/', { signal: client.signal });
    expect(held(app)).toEqual(['file']);
    client.abort();
    await until(() => held(app).length === 0);
  });

  it('covers server-sent events until the client disconnects', async () => {
    @Controller()
    class Events {
      @Sse('events')
      @Around('events')
      events(): Observable<{ data: string }> {
        return new Observable((subscriber) => {
          subscriber.next({ data: currentLock().key });
        });
      }
    }
    const app = await serve({ controllers: [Events] }, {}, undefined, platform);
    const client = new AbortController();
    const response = await app.fetch('/events', { signal: client.signal });
    const chunk = await response.body!.getReader().read();
    expect(Buffer.from(chunk.value as Uint8Array).toString()).toContain('data: events');
    expect(held(app)).toEqual(['events']);
    client.abort();
    await until(() => held(app).length === 0);
  });
});

describe.each<Platform>(['Express', 'Fastify'])('a client that does not read a streamed response on %s', (platform) => {
  let warnings: string[] = [];
  const readers = new Set<Socket>();
  afterEach(() => {
    for (const reader of readers) reader.destroy();
    readers.clear();
  });

  // More than two socket buffers hold.
  function* chunks() {
    for (let chunk = 0; chunk < 1_000; chunk++) yield Buffer.alloc(64 * 1024);
  }

  @Controller()
  class Files {
    @Get('file')
    @Around('file', { wait: 0 })
    async file() {
      return new StreamableFile(Readable.from(chunks()));
    }
    @Get('bounded')
    @Around('bounded', { wait: 0, maxHold: '1s' })
    async bounded() {
      return new StreamableFile(Readable.from(chunks()));
    }
    @Get('generator')
    @DistributedLock('generator', { wait: 0 })
    async *generator() {
      yield* chunks();
    }
    @Get('plain')
    @Around('plain')
    async plain() {
      return 'plain';
    }
  }

  function serveFiles(prepare?: (app: INestApplication) => unknown) {
    // Each application has its own list, because a stopping application may log a loss during the next test.
    const logged: string[] = [];
    warnings = logged;
    const logger = { log: () => undefined, error: () => undefined, warn: (text: string) => logged.push(text) };
    return serve({ controllers: [Files] }, { provider: new MemoryLockProvider(), logger }, prepare, platform);
  }

  /** Connects a client that sends a request and never reads, and waits until the response acquires the lock. */
  async function ask(path: string, served: HttpApp): Promise<void> {
    let acquired = 0;
    served.app.get(LockService).events.on('acquired', () => (acquired += 1));
    const { port } = (served.app.getHttpServer() as Server).address() as AddressInfo;
    const reader = connect(port, '127.0.0.1').pause();
    readers.add(reader);
    reader.on('error', () => undefined);
    reader.write(`GET /${path} HTTP/1.1\r\nHost: localhost\r\n\r\n`);
    await until(() => acquired === 1);
  }

  /** Only Nest 12 sends what a generator yields. */
  const streaming = ['file', ...(isNest11 ? [] : ['generator'])];

  it.each(streaming)('keeps the lock, with one warning in the log (%s)', async (path) => {
    const served = await serveFiles();
    await ask(path, served);
    await until(() => warnings.length > 0);
    for (let turn = 0; turn < 5; turn++) expect((await served.fetch(`/${path}`)).status).toBe(423);
    for (const reader of readers) reader.destroy();
    await until(() => held(served).length === 0);
    await ask(path, served);
    expect(warnings).toEqual([
      expect.stringMatching(new RegExp(`^Files\\.${path} streams its response under its lock.*maxHold.*setTimeout`)),
    ]);
  });

  it('loses the lock at its maxHold', async () => {
    const served = await serveFiles();
    await ask('bounded', served);
    const next = await served.app.get(LockService).acquire('bounded', { wait: '1m' });
    await until(() => warnings.length > 0);
    expect(warnings).toEqual([expect.stringMatching(/its maxHold of \d+ ms has passed/)]);
    await next.release();
  });

  it.each(streaming)("loses its connection at the server's timeout, and its lock with it (%s)", async (path) => {
    const connections = new Set<Socket>();
    const served = await serveFiles((app) => {
      const server = app.getHttpServer() as Server;
      // If the timeout expired before a busy machine read the request, the connection would end without a lock.
      server.setTimeout(3_600_000);
      server.on('connection', (connection) => connections.add(connection));
    });
    await ask(path, served);
    for (const connection of connections) connection.setTimeout(1);
    await until(() => held(served).length === 0);
    expect(warnings).toEqual([]);
  });

  it('causes no warning for a response that is not streamed', async () => {
    const { fetch } = await serveFiles();
    expect(await (await fetch('/plain')).text()).toBe('plain');
    expect(warnings).toEqual([]);
  });
});
