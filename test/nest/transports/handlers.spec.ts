import {
  applyDecorators,
  Body,
  type CallHandler,
  type CanActivate,
  Catch,
  Controller,
  type ExceptionFilter,
  type ExecutionContext,
  Get,
  Header,
  HttpCode,
  Injectable,
  type NestInterceptor,
  Param,
  ParseIntPipe,
  Post,
  Req,
  Scope,
  SetMetadata,
  Sse,
  type MessageEvent,
  UseFilters,
  UseGuards,
  UseInterceptors,
} from '@nestjs/common';
import { Reflector } from '@nestjs/core';
import type { IncomingMessage, ServerResponse } from 'node:http';
import { defer, map, Observable, of, timeout } from 'rxjs';
import { currentLock, DistributedLock, LockService, LockAdmin } from '../../../lib/index.js';
import { serve, type HttpApp, type Platform, until } from '../apps.js';

const keyHere = () => currentLock().key;

@Injectable()
class Roles implements CanActivate {
  constructor(private readonly reflector: Reflector) {}
  canActivate(context: ExecutionContext) {
    return this.reflector.get<string>('role', context.getHandler()) !== 'nobody';
  }
}

@Injectable()
class Wrap implements NestInterceptor {
  intercept(_: ExecutionContext, next: CallHandler): Observable<unknown> {
    return next.handle().pipe(map((value: unknown) => ({ wrapped: value })));
  }
}

describe.each(['above', 'below'])('a handler with its lock %s the other decorators', (place) => {
  const lock = (key: string, ...others: MethodDecorator[]): MethodDecorator => {
    const locking: MethodDecorator = DistributedLock(key);
    // Decorators are applied from bottom to top.
    const all = place === 'above' ? [...others, locking] : [locking, ...others];
    return (target, name, descriptor) => {
      for (const decorate of all) decorate(target, name, descriptor);
    };
  };

  @Controller()
  class Items {
    @lock('item:#{id}', Get('items/:id'), Header('x-kind', 'item'))
    async find(@Param('id', ParseIntPipe) id: number) {
      return { id, key: keyHere() };
    }

    @lock('item:#{item.name}', Post('items'), HttpCode(202), UseInterceptors(Wrap))
    async create(@Body() item: { name: string }) {
      return `${item.name} under ${keyHere()}`;
    }

    @lock('item:secret', Get('secret'), SetMetadata('role', 'nobody'), UseGuards(Roles))
    async secret() {
      return 'secret';
    }

    @lock('item:all', Get('items'))
    list(): Observable<string> {
      return of(keyHere());
    }
  }

  it('keeps its route, pipes, headers, status, interceptors, guards and Observables', async () => {
    const { fetch } = await serve({ controllers: [Items] });
    const found = await fetch('/items/42');
    expect(await found.json()).toEqual({ id: 42, key: 'item:42' });
    expect(found.headers.get('x-kind')).toBe('item');
    expect((await fetch('/items/x')).status).toBe(400);
    const headers = { 'content-type': 'application/json' };
    const created = await fetch('/items', { method: 'POST', body: '{"name":"pen"}', headers });
    expect(created.status).toBe(202);
    expect(await created.json()).toEqual({ wrapped: 'pen under item:pen' });
    expect((await fetch('/secret')).status).toBe(403);
    expect(await (await fetch('/items')).text()).toBe('item:all');
  });
});

it('composes through applyDecorators()', async () => {
  const Locked = (path: string) => applyDecorators(Get(path), DistributedLock('locked'));
  @Controller()
  class Items {
    @Locked('items')
    async find() {
      return keyHere();
    }
  }
  const { fetch } = await serve({ controllers: [Items] });
  expect(await (await fetch('/items')).text()).toBe('locked');
});

it('locks handlers of request-scoped controllers and inherited handlers', async () => {
  abstract class Crud {
    @Get(':id')
    @DistributedLock('#{this.kind}:#{id}')
    async find(@Param('id') id: string) {
      return keyHere() + id;
    }
    abstract readonly kind: string;
  }
  @Controller('cats')
  class Cats extends Crud {
    readonly kind = 'cat';
  }
  @Controller({ path: 'dogs', scope: Scope.REQUEST })
  class Dogs extends Crud {
    readonly kind = 'dog';
  }
  const { fetch } = await serve({ controllers: [Cats, Dogs] });
  expect(await (await fetch('/cats/1')).text()).toBe('cat:11');
  expect(await (await fetch('/dogs/2')).text()).toBe('dog:22');
});

it('locks a method of a guard class that only a controller refers to', async () => {
  const seen: string[] = [];
  @Injectable()
  class Quota implements CanActivate {
    @DistributedLock('quota')
    async canActivate() {
      seen.push(keyHere());
      return true;
    }
  }
  @Controller()
  @UseGuards(Quota)
  class Items {
    @Get()
    find() {
      return 'found';
    }
  }
  const { fetch } = await serve({ controllers: [Items] });
  expect(await (await fetch('/')).text()).toBe('found');
  expect(seen).toEqual(['quota']);
});

describe('#{request…}', () => {
  @Injectable()
  class Login implements CanActivate {
    canActivate(context: ExecutionContext) {
      context.switchToHttp().getRequest<IncomingMessage & { user: unknown }>().user = { id: 7 };
      return true;
    }
  }

  @Controller()
  @UseGuards(Login)
  class Carts {
    @Post('carts/:id')
    @DistributedLock('cart:#{request.user.id}:#{request.params.id}')
    async add() {
      return keyHere();
    }

    @Get('tenant/:id')
    @DistributedLock("#{request.headers['x-tenant']}:#{request.query.q ?? 'none'}:#{request.url}")
    async tenant() {
      return keyHere();
    }

    @Get('observable/:id')
    @DistributedLock('observable:#{request.params.id}')
    observable(): Observable<string> {
      return of(keyHere());
    }

    @Get('around/:id')
    @DistributedLock('around:#{request.params.id}:#{request.user.id}', { around: 'request' })
    around(): Observable<string> {
      return defer(async () => keyHere());
    }

    @Sse('events/:id')
    @DistributedLock('events:#{request.params.id}')
    events(): Observable<MessageEvent> {
      return defer(async () => ({ data: keyHere() }));
    }

    @Get('other/:id')
    other() {
      return this.add();
    }
  }

  const metadata = { controllers: [Carts] };

  it("is the call's own request", async () => {
    const { fetch } = await serve(metadata);
    const texts = await Promise.all(['1', '2', '3'].map(async (id) => (await post(`/carts/${id}`)).text()));
    expect(texts).toEqual(['cart:7:1', 'cart:7:2', 'cart:7:3']);
    const tenant = await fetch('/tenant/9?q=a', { headers: { 'x-tenant': 'acme' } });
    expect(await tenant.text()).toBe('acme:a:%2Ftenant%2F9?q=a');

    function post(path: string) {
      return fetch(path, { method: 'POST' });
    }
  });

  it('works if Nest subscribes to an Observable later', async () => {
    const { fetch } = await serve(metadata);
    const textOf = async (path: string) => (await fetch(path)).text();
    expect(await textOf('/observable/1')).toBe('observable:1');
    expect(await textOf('/events/3')).toContain('data: events:3');
    expect(await textOf('/around/4')).toBe('around:4:7');
  });

  it("is an error outside a request and in another handler's request, because a queue may mix up contexts", async () => {
    const { app, fetch } = await serve(metadata);
    await expect(app.get(Carts).add()).rejects.toMatchObject({
      name: 'LockKeyError',
      message: expect.stringMatching(/Carts\.add reads the request.*LockRequestInterceptor/) as string,
    });
    expect((await fetch('/other/1')).status).toBe(500);
    expect(await app.get(LockService).tryAcquire('cart:7:1')).not.toBeNull();
  });
});

it("#{ctx…} calls the module's resolvers", async () => {
  let tenant: string | undefined = 'acme';
  @Injectable()
  class Reports {
    @DistributedLock('#{ctx.tenant}:report')
    async build() {
      return keyHere();
    }
  }
  const { app } = await serve({ providers: [Reports] }, { context: { tenant: () => tenant as string } });
  await expect(app.get(Reports).build()).resolves.toBe('acme:report');
  tenant = undefined;
  await expect(app.get(Reports).build()).rejects.toThrow(/ctx\.tenant.*Reports\.build.*undefined/);
});

it('#{request…} reads what the client sent, and a parameter what the pipes returned', async () => {
  @Controller()
  class Both {
    @Post(':id')
    @DistributedLock(['#{request.params.id}:raw', '#{id}:piped'])
    async post(@Param('id', ParseIntPipe) id: number, @Req() _request: unknown) {
      return { id, keys: currentLock().keys };
    }
  }
  const { fetch } = await serve({ controllers: [Both] });
  const answer = await fetch('/042', { method: 'POST' });
  expect(await answer.json()).toEqual({ id: 42, keys: ['042:raw', '42:piped'] });
});

const waiting = ({ app }: HttpApp) => app.get(LockAdmin).waiting().length;

/** Responds with an error while its handler waits. */
const timeoutInterceptor: NestInterceptor = { intercept: (_, next) => next.handle().pipe(timeout(100)) };

describe.each<Platform>(['Express', 'Fastify', 'Fastify over HTTP/2'])(
  'a handler that waits for its lock on %s',
  (platform) => {
    let runs = 0;
    beforeEach(() => (runs = 0));

    @Controller()
    class Orders {
      @Get('method')
      @UseInterceptors(timeoutInterceptor)
      @DistributedLock('order', { wait: '1m' })
      async method() {
        runs += 1;
      }

      @Get('patient')
      @DistributedLock('order', { wait: '1m' })
      async patient() {
        runs += 1;
      }

      @Get('request')
      @DistributedLock('order', { wait: '1m', around: 'request' })
      async request() {
        runs += 1;
      }
    }

    it('does not run if the response was sent before, for example while a guard ran', async () => {
      const seen: string[] = [];
      @Injectable()
      class Answering implements CanActivate {
        canActivate(context: ExecutionContext) {
          const response = context.switchToHttp().getResponse<ServerResponse & { raw?: ServerResponse }>();
          (response.raw ?? response).end('too late');
          return true;
        }
      }
      @Catch()
      class Failed implements ExceptionFilter {
        catch(error: Error) {
          seen.push(error.name);
        }
      }
      @Controller()
      @UseGuards(Answering)
      @UseFilters(Failed)
      class Answered {
        @Get('method')
        @DistributedLock('order')
        async method() {
          seen.push('ran');
        }
        @Get('request')
        @DistributedLock('order', { around: 'request' })
        async request() {
          seen.push('ran');
        }
      }
      const { fetch } = await serve({ controllers: [Answered] }, {}, undefined, platform);
      for (const path of ['/method', '/request']) {
        const count = seen.length;
        expect(await fetch(path).then((response) => response.text())).toBe('too late');
        await until(() => seen.length > count);
      }
      expect(seen).toEqual(['AbortError', 'AbortError']);
    });

    const answersEarly = async () =>
      await serve(
        { controllers: [Orders] },
        {},
        // Runs before the module's interceptors: it responds while `around: 'request'` waits.
        (app) =>
          app.use((request: { url: string }, response: { end(text: string): void }, next: () => void) => {
            if (request.url === '/request?early') setTimeout(() => response.end('too late'), 100);
            next();
          }),
        platform,
      );

    it.each(['/method', '/request?early'])('%s: stops waiting when the response is sent', async (path) => {
      const app = await answersEarly();
      const lock = await app.app.get(LockService).acquire('order');
      await app.fetch(path).then((response) => response.text());
      await until(() => waiting(app) === 0);
      await lock.release();
      await app.app.get(LockService).withLock('order', () => undefined);
      expect(runs).toBe(0);
    });

    it.each(['/patient', '/request'])('%s: keeps waiting when the client disconnects', async (path) => {
      const app = await answersEarly();
      const lock = await app.app.get(LockService).acquire('order');
      const leaving = new AbortController();
      const left = app.fetch(path, { signal: leaving.signal }).catch(() => undefined);
      await until(() => waiting(app) === 1);
      leaving.abort();
      await left;
      await new Promise((resolve) => setTimeout(resolve, 50));
      expect(waiting(app)).toBe(1);
      await lock.release();
      await until(() => runs === 1);
    });
  },
);
