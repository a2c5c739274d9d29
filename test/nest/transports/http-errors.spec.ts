import { Readable } from 'node:stream';
import { jest } from '@jest/globals';
import {
  type ArgumentsHost,
  type CanActivate,
  Catch,
  ConflictException,
  Controller,
  type ExceptionFilter,
  Get,
  HttpException,
  Injectable,
  Scope,
  type NestMiddleware,
  Sse,
  StreamableFile,
  type Type,
  UseGuards,
  UseInterceptors,
} from '@nestjs/common';
import { APP_FILTER } from '@nestjs/core';
import { Test } from '@nestjs/testing';
import { Observable } from 'rxjs';
import {
  currentLock,
  DistributedLock,
  DistributedLockModule,
  LockAdmin,
  LockError,
  LockRequestInterceptor,
  LockLostError,
  LockService,
  LockBusyError,
  LockCapacityError,
  LockUnavailableError,
  MemoryLockProvider,
} from '../../../lib/index.js';
import type { BackendContext } from '../../../lib/api/lock-provider.js';
import { VersionConflictError } from '../../../lib/providers/typeorm/index.js';
import {
  type AppOptions,
  type ExpressResponse,
  type HttpApp,
  isNest11,
  type Platform,
  serve,
  untilLost,
} from '../apps.js';

class FailingProvider extends MemoryLockProvider {
  constructor(private readonly failure: LockError) {
    super();
  }

  override createBackend(context: BackendContext) {
    return Object.assign(super.createBackend(context), { acquire: () => Promise.reject(this.failure) });
  }
}

const lockProviders = () => ({
  memory: new MemoryLockProvider(),
  broken: new FailingProvider(new LockUnavailableError('No answer from 10.0.0.1.', { key: 'item' })),
  full: new FailingProvider(new LockCapacityError('No connection to 10.0.0.1 is free.', { key: 'item' })),
});

@Injectable()
class BusyGuard implements CanActivate {
  @DistributedLock('item', { wait: 0 })
  async canActivate() {
    return true;
  }
}

@Injectable()
class RefusingGuard implements CanActivate {
  canActivate(): boolean {
    throw new ConflictException('refused');
  }
}

@Controller()
class Items {
  constructor(private readonly admin: LockAdmin) {}

  @Get('busy')
  @DistributedLock('item', { wait: 0 })
  async busy() {}

  @Get('guarded')
  @UseGuards(BusyGuard)
  guarded() {}

  @Get('refused')
  @UseGuards(RefusingGuard)
  @DistributedLock('refused')
  async refused() {}

  @Get('broken')
  @DistributedLock('item', { wait: 0, provider: 'broken' })
  async broken() {}

  @Get('full')
  @DistributedLock('item', { wait: 0, provider: 'full' })
  async full() {}

  @Get('lost')
  @DistributedLock('lost')
  async lost() {
    await this.admin.forceRelease('lost');
    return 'done';
  }

  @Get('fenced')
  @DistributedLock('fenced')
  async fenced() {
    throw new LockLostError('A later holder has written book.', { key: 'fenced', reason: 'expired' });
  }

  @Get('misused')
  @DistributedLock('item:#{request.query.id}')
  async misused() {}

  @Get('conflict')
  @DistributedLock('conflict')
  async conflict() {
    throw new ConflictException({ own: 'body' });
  }

  @Get('outdated')
  async outdated() {
    throw new VersionConflictError('The Order 42 was written since version 7.');
  }

  @Get('file')
  async file() {
    return new StreamableFile(Readable.from(this.generator()));
  }

  @Get('file/own')
  async fileWithHandler() {
    return new StreamableFile(Readable.from(this.generator())).setErrorHandler((error, response) => {
      response.statusCode = 418;
      response.send(error.name);
    });
  }

  @Get('generator')
  @DistributedLock('item', { wait: 0 })
  async *generator() {
    yield 'row';
  }

  @Sse('events')
  @DistributedLock('events')
  events(): Observable<{ data: string }> {
    return untilLost(currentLock().signal);
  }

  @Get('twice')
  @UseInterceptors(LockRequestInterceptor)
  @DistributedLock('item', { wait: 0 })
  async twice() {}
}

/** Serves the controller above, with `item` held. */
async function serveItems(
  options: AppOptions = {},
  prepare?: Parameters<typeof serve>[2],
  {
    platform,
    filters = [],
    perRequest,
  }: { platform?: Platform; filters?: ExceptionFilter[]; perRequest?: Type<ExceptionFilter> } = {},
): Promise<HttpApp> {
  const app = await serve(
    {
      controllers: [Items],
      providers: [
        ...filters.map((filter) => ({ provide: APP_FILTER, useValue: filter })),
        ...(perRequest ? [{ provide: APP_FILTER, useClass: perRequest }] : []),
      ],
    },
    { providers: lockProviders(), default: 'memory', ...options },
    prepare,
    platform,
  );
  await app.app.get(LockService).acquire('item');
  return app;
}

describe.each<Platform>(['Express', 'Fastify'])('lock errors over HTTP on %s', (platform) => {
  const serveHere: typeof serveItems = (options, prepare) => serveItems(options, prepare, { platform });

  it.each(['/busy', '/twice', '/guarded'])('%s responds to a busy lock with 423 and Retry-After', async (path) => {
    const { fetch } = await serveHere();
    const response = await fetch(path);
    expect(response.status).toBe(423);
    expect(response.headers.get('retry-after')).toBe('1');
    expect(response.headers.get('content-type')).toMatch(/^application\/problem\+json/);
    const body = await response.text();
    expect(JSON.parse(body)).toEqual({
      title: 'Locked',
      status: 423,
      detail: expect.any(String) as string,
      code: 'LOCK_BUSY',
    });
    expect(body).not.toMatch(/item/);
    // The error and its message name the holder.
    expect(body).not.toContain(`:${process.pid}`);
    expect(body).not.toMatch(/instance|held/);
  });

  it.each(['/broken', '/full'])(
    '%s responds with 503 and Retry-After, without internals of the backend',
    async (path) => {
      const { fetch } = await serveHere();
      const response = await fetch(path);
      expect(response.status).toBe(503);
      expect(response.headers.get('retry-after')).toBe('1');
      expect(await response.text()).not.toMatch(/10\.0\.0\.1/);
    },
  );

  it('responds to a lost lock with 500, even if the handler succeeded', async () => {
    const { fetch } = await serveHere();
    const response = await fetch('/lost');
    expect(response.status).toBe(500);
    expect(response.headers.get('retry-after')).toBeNull();
    expect(await response.json()).toMatchObject({ code: 'LOCK_LOST' });
  });

  it('logs each loss in one line, even if the handler threw the error itself', async () => {
    const warnings: string[] = [];
    const none = () => undefined;
    const logger = { log: none, error: none, warn: (text: string) => warnings.push(text) };
    const { fetch } = await serveHere({ logger });
    for (const path of ['/fenced', '/lost', '/fenced']) expect((await fetch(path)).status).toBe(500);
    expect(warnings).toEqual([
      'A later holder has written book.',
      expect.stringMatching(/^Lock "lost" of Items\.lost .*was lost/),
      'A later holder has written book.',
    ]);
  });

  it('responds to a version conflict with 409, without details of the row', async () => {
    const { fetch } = await serveHere();
    const response = await fetch('/outdated');
    expect(response.headers.get('retry-after')).toBeNull();
    expect(response.headers.get('content-type')).toMatch(/^application\/problem\+json/);
    expect(await response.json()).toEqual({
      title: 'Conflict',
      status: 409,
      detail: expect.not.stringMatching(/42|7/) as string,
      code: 'LOCK_VERSION_CONFLICT',
    });
  });

  // Nest 11 serializes a generator to JSON instead of streaming it.
  it.each(['/file', ...(isNest11 ? [] : ['/generator'])])(
    '%s gets the same response, although it is read after the filters ran',
    async (path) => {
      const { fetch } = await serveHere();
      const response = await fetch(path);
      expect([response.status, response.headers.get('retry-after')]).toEqual([423, '1']);
      expect(response.headers.get('content-type')).toMatch(/^application\/problem\+json/);
      const body = await response.text();
      expect(JSON.parse(body)).toMatchObject({ status: 423, code: 'LOCK_BUSY' });
      expect(body).not.toMatch(/item/);
    },
  );

  it('reveals nothing about the lock in the error event of a started event stream', async () => {
    const { app, fetch } = await serveHere();
    const response = await fetch('/events');
    await app.get(LockAdmin).forceRelease('events');
    const text = await response.text();
    expect(text).toMatch(/event: error\n.*lost its exclusive access/s);
    expect(text).not.toMatch(/"events"|memory/);
  });

  it('responds to misuse with 500 and no details', async () => {
    const { fetch } = await serveHere();
    const response = await fetch('/misused');
    expect(response.status).toBe(500);
    expect(response.headers.get('content-type')).toMatch('application/problem+json');
    const problem = { title: 'Internal Server Error', status: 500, detail: 'Internal server error', code: 'LOCK_KEY' };
    expect(await response.json()).toEqual(problem);
  });

  it('leaves an HttpException of the handler or of a guard unchanged, and nothing locked', async () => {
    const { app, fetch } = await serveHere();
    const response = await fetch('/conflict');
    expect([response.status, await response.json()]).toEqual([409, { own: 'body' }]);
    expect((await fetch('/refused')).status).toBe(409);
    expect(
      app
        .get(LockAdmin)
        .held()
        .map(({ key }) => key),
    ).toEqual(['item']);
  });

  it('uses the configured status for a busy lock', async () => {
    const { fetch } = await serveHere({ mapErrors: { http: { busy: 409 } } });
    const answers = await Promise.all(
      ['/busy', '/guarded', '/broken', '/lost', '/outdated'].map((path) => fetch(path)),
    );
    expect(answers.map(({ status }) => status)).toEqual([409, 409, 503, 500, 409]);
    // RFC 9457: the title of a problem without a type is the phrase of its status.
    expect(await answers[0]!.json()).toMatchObject({ title: 'Conflict', status: 409 });
  });

  it('handles lock errors of middleware, too', async () => {
    @Injectable()
    class Throttle implements NestMiddleware {
      constructor(private readonly locks: LockService) {}
      async use() {
        await this.locks.withLock('item', () => undefined, { wait: 0 });
      }
    }
    const { fetch } = await serveHere({}, (app) => {
      const throttle = new Throttle(app.get(LockService));
      app.use((_: unknown, __: unknown, next: (error?: unknown) => void) => {
        throttle.use().then(() => next(), next);
      });
    });
    expect((await fetch('/conflict')).status).toBe(423);
  });
});

it('leaves the errors of a file to its own error handler', async () => {
  const { fetch } = await serveItems();
  const response = await fetch('/file/own');
  expect([response.status, await response.text()]).toEqual([418, 'LockBusyError']);
});

it('handles an error from another copy of the package, thrown by a handler or a guard', async () => {
  let otherCopy = { LockBusyError };
  await jest.isolateModulesAsync(async () => {
    otherCopy = await import('../../../lib/api/errors.js');
  });
  expect(otherCopy.LockBusyError).not.toBe(LockBusyError);
  const fail = (): never => {
    throw new otherCopy.LockBusyError('busy');
  };
  @Injectable()
  class ForeignGuard implements CanActivate {
    canActivate(): boolean {
      return fail();
    }
  }
  @Controller()
  class Foreign {
    @Get('handler')
    async handler() {
      fail();
    }

    @Get('locked')
    @DistributedLock('locked')
    async locked() {
      fail();
    }

    @Get('guard')
    @UseGuards(ForeignGuard)
    guard() {}
  }
  const app = await serve({ controllers: [Foreign] });
  for (const path of ['/handler', '/locked', '/guard']) {
    const response = await app.fetch(path);
    expect([path, response.status, response.headers.get('retry-after')]).toEqual([path, 423, '1']);
  }
});

it('works in a testing module, whose server is created after its providers', async () => {
  const testing = await Test.createTestingModule({
    imports: [
      DistributedLockModule.forRoot({
        providers: lockProviders(),
        default: 'memory',
        shutdownGrace: 0,
      }),
    ],
    controllers: [Items],
  }).compile();
  const app = testing.createNestApplication();
  app.useLogger(false);
  try {
    await app.listen(0, '127.0.0.1');
    await app.get(LockService).acquire('item');
    const url = await app.getUrl();
    expect((await fetch(`${url}/guarded`)).status).toBe(423);
    expect((await fetch(`${url}/busy`)).status).toBe(423);
  } finally {
    await app.close();
  }
});

describe("an application's own filters", () => {
  @Catch()
  class CatchAll implements ExceptionFilter {
    readonly caught: unknown[] = [];
    catch(error: unknown, host: ArgumentsHost) {
      this.caught.push(error);
      const status = error instanceof HttpException ? error.getStatus() : 599;
      host.switchToHttp().getResponse<ExpressResponse>().status(status).json({ mine: true });
    }
  }

  @Catch(LockError)
  class CatchLocks implements ExceptionFilter {
    catch(error: LockError, host: ArgumentsHost) {
      host.switchToHttp().getResponse<ExpressResponse>().status(418).json({ key: error.key });
    }
  }

  @Catch(ConflictException)
  class CatchConflicts implements ExceptionFilter {
    catch(): never {
      throw new Error('caught what was not its own');
    }
  }

  it('see the HttpException, whose cause is the lock error', async () => {
    const filter = new CatchAll();
    const { fetch } = await serveItems({}, (app) => app.useGlobalFilters(filter));
    const response = await fetch('/busy');
    expect([response.status, await response.json()]).toEqual([423, { mine: true }]);
    expect(response.headers.get('content-type')).toMatch('application/json');
    expect(response.headers.get('retry-after')).toBe('1');
    const [caught] = filter.caught as [HttpException];
    expect(caught).toBeInstanceOf(HttpException);
    expect(caught.cause).toBeInstanceOf(LockBusyError);
    expect(caught.cause).toMatchObject({ key: 'item', provider: 'memory' });
  });

  it.each(['/busy', '/guarded'])('get the original lock errors with mapErrors: false (%s)', async (path) => {
    const { fetch } = await serveItems({ mapErrors: false }, (app) => app.useGlobalFilters(new CatchLocks()));
    const response = await fetch(path);
    expect([response.status, await response.json()]).toEqual([418, { key: 'item' }]);
    expect(response.headers.get('retry-after')).toBeNull();
  });

  it.each([
    ['/busy', 423, { status: 423, cause: { code: 'LOCK_BUSY' } }],
    // Thrown before the interceptor could convert it to an HttpException.
    ['/guarded', 599, { code: 'LOCK_BUSY', key: 'item' }],
  ])('take precedence even as APP_FILTER of the root module (%s)', async (path, status, caught) => {
    const filter = new CatchAll();
    const { fetch } = await serveItems({}, undefined, { filters: [filter] });
    const response = await fetch(path);
    expect([response.status, await response.json()]).toEqual([status, { mine: true }]);
    expect(response.headers.get('content-type')).toMatch('application/json');
    expect(filter.caught).toMatchObject([caught]);
  });

  it.each([
    ['/busy', 423],
    ['/guarded', 599],
  ])('take precedence even if they are request-scoped (%s)', async (path, status) => {
    @Catch()
    @Injectable({ scope: Scope.REQUEST })
    class PerRequest extends CatchAll {}
    const { fetch } = await serveItems({}, undefined, { perRequest: PerRequest });
    const response = await fetch(path);
    expect([response.status, await response.json()]).toEqual([status, { mine: true }]);
  });

  it('get the original lock error from a guard if they catch LockError', async () => {
    const { fetch } = await serveItems({}, undefined, { filters: [new CatchConflicts(), new CatchLocks()] });
    const response = await fetch('/guarded');
    expect([response.status, await response.json()]).toEqual([418, { key: 'item' }]);
    expect((await fetch('/busy')).status).toBe(423);
  });

  it('are not required with mapErrors: false: Nest responds with 500', async () => {
    const { fetch } = await serveItems({ mapErrors: false });
    expect((await fetch('/busy')).status).toBe(500);
    expect((await fetch('/guarded')).status).toBe(500);
  });
});
