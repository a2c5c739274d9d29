import { Readable } from 'node:stream';
import type { ServerResponse } from 'node:http';
import {
  type ArgumentsHost,
  type CanActivate,
  Catch,
  type ExceptionFilter,
  Injectable,
  ParseIntPipe,
  UseGuards,
} from '@nestjs/common';
import { APP_FILTER } from '@nestjs/core';
import { ApolloServer, HeaderMap } from '@apollo/server';
import { ApolloDriver, type ApolloDriverConfig } from '@nestjs/apollo';
import {
  Args,
  GraphQLModule,
  Int,
  Mutation,
  Query,
  Resolver,
  Subscription,
  AbstractGraphQLDriver,
  GraphQLSchemaHost,
} from '@nestjs/graphql';
import { createClient } from 'graphql-ws';
import { WebSocket } from 'ws';
import { parse, subscribe } from 'graphql';
import {
  currentLock,
  DistributedLock,
  type DistributedLockModuleOptions,
  LockAdmin,
  LockBusyError,
  LockDeadlockError,
  LockError,
  LockGraphqlError,
  LockLostError,
  LockService,
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

@Resolver()
class Items {
  @Query(() => String)
  @DistributedLock("item:#{request.args.id}:#{id}:#{request.context.req.headers['x-tenant']}")
  async key(@Args('id', { type: () => Int }, ParseIntPipe) id: number): Promise<string> {
    return `${currentLock().key} ${id}`;
  }
  @Mutation(() => String)
  @DistributedLock('around:#{request.args.id}', { around: 'request' })
  async around(@Args('id', { type: () => Int }) id: number): Promise<string> {
    return `${currentLock().key} ${id}`;
  }
  @Query(() => String, { nullable: true })
  @DistributedLock('item', { wait: 0 })
  async busy(): Promise<void> {}
  @Query(() => String, { nullable: true })
  @UseGuards(BusyGuard)
  guarded(): void {}
  @Query(() => String, { nullable: true })
  @DistributedLock('item', { around: 'request', onBusy: 'skip' })
  async skipped(): Promise<void> {}
  @Query(() => String, { nullable: true })
  async unavailable() {
    throw new LockUnavailableError('No answer from 10.0.0.1.', { key: 'item' });
  }
  @Query(() => String, { nullable: true })
  async lost() {
    throw new LockLostError('Gone.', { reason: 'revoked' });
  }
  @Query(() => String, { nullable: true })
  async deadlock() {
    const cycle = [
      { instance: 'shop:17', method: null, holds: 'item:1', waitsFor: 'item:2', mode: 'exclusive' },
    ] as const;
    throw new LockDeadlockError('instance "shop:17" holds "item:1"', { cycle });
  }
  @Query(() => String, { nullable: true })
  async outdated() {
    throw new VersionConflictError('The row at 10.0.0.1 was written since.');
  }
  @Query(() => String, { nullable: true })
  @DistributedLock('streamed', { around: 'request' })
  async streamed() {
    return (async function* () {})();
  }
  @Query(() => String, { nullable: true })
  async own() {
    throw new TypeError('own');
  }
}

let gate: Gate;
beforeEach(() => (gate = new Gate()));

@Resolver()
class Feeds {
  @Query(() => String)
  nothing() {
    return '';
  }
  @Subscription(() => String)
  @DistributedLock('feed:#{id}', { wait: 0 })
  async *feed(@Args('id', { type: () => Int }) id: number) {
    yield { feed: currentLock().key };
    await gate.opened;
    yield { feed: `again ${id}` };
  }
  @Subscription(() => String)
  @DistributedLock('feed:#{id}')
  async *early(@Args('id', { type: () => Int }) id: number) {
    yield { early: `first ${id}` };
    await gate.opened;
    yield { early: `again ${id}` };
  }
  @Subscription(() => String, { filter: () => true })
  @DistributedLock('feed:#{id}', { wait: 0 })
  async *filtered(@Args('id', { type: () => Int }) id: number) {
    yield { filtered: `of ${id}` };
  }
  @Subscription(() => String)
  @DistributedLock('feed:#{request.args.id}', { around: 'request', wait: 0 })
  async around(@Args('id', { type: () => Int }) id: number) {
    return this.feed(id);
  }
  // The lock is on a generator behind a stream, which is iterable but not an iterator.
  @Subscription(() => String)
  readable(@Args('id', { type: () => Int }) id: number) {
    return Readable.from(this.filtered(id));
  }
  @Subscription(() => String)
  async *unavailable() {
    yield { unavailable: 'first' };
    throw new LockUnavailableError('No answer from 10.0.0.1.', { key: 'feed:1' });
  }
  @Subscription(() => String)
  async *own() {
    yield { own: 'first' };
    throw new TypeError('own');
  }
}

interface HttpRequest {
  readonly method: string;
  readonly headers: Record<string, string>;
  readonly body: unknown;
}

/** Nest's driver with a manually mounted Apollo server. Its own integration needs a package that isn't installed. */
class MountedApolloDriver extends ApolloDriver {
  protected override async registerExpress(options: ApolloDriverConfig) {
    const { schema, formatError, plugins } = options;
    const server = new ApolloServer({
      schema: schema!,
      includeStacktraceInErrorResponses: false,
      ...(formatError && { formatError }),
      ...(plugins && { plugins }),
    });
    await server.start();
    const context = options.context as (contexts: { req: unknown; res: unknown }) => Promise<object>;
    const answer = async (req: HttpRequest, res: ServerResponse) => {
      const { status, headers, body } = await server.executeHTTPGraphQLRequest({
        httpGraphQLRequest: {
          method: req.method,
          headers: new HeaderMap(Object.entries(req.headers)),
          search: '',
          body: req.body,
        },
        context: () => context({ req, res }),
      });
      res.writeHead(status ?? 200, Object.fromEntries(headers)).end(body.kind === 'complete' ? body.string : '');
    };
    this.httpAdapterHost.httpAdapter.use(
      options.path,
      (req: HttpRequest, res: ServerResponse) => void answer(req, res),
    );
    Object.assign(this, { apolloServer: server });
  }
}

interface Answer {
  readonly data: Record<string, unknown> | null;
  readonly errors?: { message: string; path: string[]; extensions: Record<string, unknown> }[];
}

async function ask(options: DistributedLockModuleOptions = {}, ...filters: ExceptionFilter[]) {
  const graphql = GraphQLModule.forRoot<ApolloDriverConfig>({ driver: MountedApolloDriver, autoSchemaFile: true });
  const { app, fetch } = await serve(
    {
      imports: [graphql],
      providers: [Items, ...filters.map((filter) => ({ provide: APP_FILTER, useValue: filter }))],
    },
    options,
  );
  await app.get(LockService).acquire('item');
  return async (query: string): Promise<Answer> => {
    const headers = { 'content-type': 'application/json', 'x-tenant': 'acme' };
    const response = await fetch('/graphql', { method: 'POST', headers, body: JSON.stringify({ query }) });
    return (await response.json()) as Answer;
  };
}

describe('a resolver of Apollo', () => {
  it('reads arguments and the HTTP request in keys', async () => {
    const send = await ask();
    expect(await send('{ key(id: 7) }')).toEqual({ data: { key: 'item:7:7:acme 7' } });
    expect(await send('mutation { around(id: 7) }')).toEqual({ data: { around: 'around:7 7' } });
    expect(await send('{ skipped }')).toEqual({ data: { skipped: null } });
  });

  it('reports lock errors through extensions.code, without internals of the server', async () => {
    const send = await ask();
    const { data, errors } = await send('{ busy guarded deadlock unavailable lost outdated }');
    expect(Object.values(data ?? {})).toEqual([null, null, null, null, null, null]);
    expect(Object.fromEntries(errors!.map((error) => [error.path[0], error]))).toMatchObject({
      busy: { message: expect.stringMatching(/in use/) as string, extensions: { code: 'LOCK_BUSY', retryAfter: 1 } },
      guarded: { extensions: { code: 'LOCK_BUSY', retryAfter: 1 } },
      deadlock: {
        message: expect.stringMatching(/in use/) as string,
        extensions: { code: 'LOCK_DEADLOCK', retryAfter: 1 },
      },
      unavailable: { extensions: { code: 'LOCK_UNAVAILABLE', retryAfter: 1 } },
      lost: { extensions: { code: 'LOCK_LOST' } },
      outdated: { extensions: { code: 'LOCK_VERSION_CONFLICT' } },
    });
    expect(JSON.stringify(errors)).not.toMatch(/10\.0\.0\.1|item/);
    // The error and its message name the holder.
    expect(JSON.stringify(errors)).not.toContain(`:${process.pid}`);
    expect(JSON.stringify(errors)).not.toMatch(/heldBy|instance|has held|cycle|shop/);
  });

  it('leaves other errors unchanged, and refuses a stream because its end would not be known', async () => {
    const send = await ask();
    expect((await send('{ own }')).errors).toMatchObject([{ message: 'own' }]);
    expect((await send('{ streamed }')).errors).toMatchObject([
      {
        message: expect.stringMatching(/^Items\.streamed returns a stream/) as string,
        extensions: { code: 'INTERNAL_SERVER_ERROR' },
      },
    ]);
  });

  it("leaves lock errors to the application's own filters", async () => {
    const caught: unknown[] = [];
    @Catch(LockError)
    class Own implements ExceptionFilter {
      catch(error: LockError, host: ArgumentsHost) {
        caught.push(error);
        return new Error(`mine over ${host.getType()}`);
      }
    }
    const send = await ask({}, new Own());
    const { errors } = await send('{ busy guarded }');
    expect(errors).toMatchObject([{ message: 'mine over graphql' }, { message: 'mine over graphql' }]);
    expect(caught).toEqual([expect.any(LockError), expect.any(LockError)]);
    expect(caught).not.toContainEqual(expect.any(LockGraphqlError));
    const bare = await ask({ mapErrors: false });
    expect((await bare('{ busy }')).errors).toMatchObject([{ message: expect.stringMatching(/"item"/) as string }]);
  });
});

interface Received {
  readonly values: unknown[];
  /** The error that the client got instead of the end. */
  readonly error: { message: string; extensions?: Record<string, unknown> } | undefined;
}

/** Serves subscriptions, and returns a function that reads one to its end through graphql-ws. */
async function serveFeeds(options: DistributedLockModuleOptions = {}) {
  const graphql = GraphQLModule.forRoot<ApolloDriverConfig>({
    driver: MountedApolloDriver,
    autoSchemaFile: true,
    subscriptions: { 'graphql-ws': true },
  });
  const { app } = await serve({ imports: [graphql], providers: [Feeds] }, options);
  const url = `${(await app.getUrl()).replace('http', 'ws')}/graphql`;
  const read = async (subscription: string, onValue: () => unknown = () => undefined): Promise<Received> => {
    const client = createClient({ url, webSocketImpl: WebSocket, retryAttempts: 0 });
    const values: unknown[] = [];
    try {
      for await (const { data, errors } of client.iterate({ query: `subscription { ${subscription} }` })) {
        // Errors before the first value.
        if (errors) throw errors;
        values.push(Object.values(data ?? {})[0]);
        await onValue();
      }
      return { values, error: undefined };
    } catch (errors) {
      return { values, error: (errors as [Received['error']])[0] };
    } finally {
      await client.dispose();
    }
  };
  return { app, read };
}

// What no client may see: keys, classes, providers, addresses.
const INTERNAL = /feed:|Feeds|memory|10\.0\.0\.1/;

describe('a subscription of Apollo', () => {
  it('reaches its graphql-ws client under a lock', async () => {
    const { read } = await serveFeeds();
    gate.open();
    expect(await read('feed(id: 7)')).toEqual({ values: ['feed:7', 'again 7'], error: undefined });
  });

  it.each(['feed', 'filtered', 'around', 'readable'])('reports a busy lock by its code (%s)', async (field) => {
    const { app, read } = await serveFeeds();
    await app.get(LockService).acquire('feed:1');
    const { values, error } = await read(`${field}(id: 1)`);
    expect({ values, error }).toMatchObject({
      values: [],
      error: {
        message: 'The resource is in use by another request. Try again later.',
        extensions: { code: 'LOCK_BUSY', retryAfter: 1 },
      },
    });
    expect(JSON.stringify(error)).not.toMatch(INTERNAL);
  });

  it('reports a lock error in the middle, and leaves other errors unchanged', async () => {
    const { read } = await serveFeeds();
    const { values, error } = await read('unavailable');
    expect(values).toEqual(['first']);
    expect(error).toMatchObject({ extensions: { code: 'LOCK_UNAVAILABLE', retryAfter: 1 } });
    expect(JSON.stringify(error)).not.toMatch(INTERNAL);
    expect(await read('own')).toMatchObject({ values: ['first'], error: { message: 'own' } });
  });

  it.each([
    ['feed', ['feed:1', 'again 1']],
    ['early', ['first 1', 'again 1']],
  ])('reports that its lock was lost while it ran (%s)', async (field, expected) => {
    const { app, read } = await serveFeeds();
    const lose = async () => {
      await app.get(LockAdmin).forceRelease('feed:1');
      gate.open();
    };
    const { values, error } = await read(`${field}(id: 1)`, lose);
    expect(values).toEqual(expected);
    expect(error).toMatchObject({ extensions: { code: 'LOCK_LOST' } });
    expect(JSON.stringify(error)).not.toMatch(INTERNAL);
  });

  it('gives the original lock errors to callers inside the application, and to all with mapErrors: false', async () => {
    const { app } = await serveFeeds();
    await app.get(LockService).acquire('feed:1');
    const failed = app.get(Feeds).filtered(1).next();
    await expect(failed).rejects.toBeInstanceOf(LockBusyError);
    await expect(failed).rejects.toMatchObject({ key: 'feed:1', provider: 'memory', code: 'LOCK_BUSY' });
    const bare = await serveFeeds({ mapErrors: false });
    await bare.app.get(LockService).acquire('feed:1');
    expect((await bare.read('feed(id: 1)')).error?.message).toMatch(/"feed:1"/);
  });
});

/** Only builds the schema, which the test executes. */
class SchemaDriver extends AbstractGraphQLDriver {
  override async start() {}
  override async stop() {}
}

@Resolver()
class Feed {
  @Query(() => String)
  name() {
    return 'feed';
  }
  @Subscription(() => String)
  @DistributedLock('device:#{id}')
  async *generated(@Args('id') id: string): AsyncGenerator<object> {
    yield { generated: `${currentLock().key} ${id}` };
    await aborted();
  }
  @Subscription(() => String)
  @DistributedLock('device:#{request.args.id}')
  async *requested(@Args('id') id: string): AsyncGenerator<object> {
    yield { requested: `${currentLock().key} ${id}` };
    await aborted();
  }
  // Like an async generator compiled for ES2017.
  @Subscription(() => String)
  @DistributedLock('device:#{id}')
  returned(@Args('id') id: string): AsyncGenerator<object> {
    return (async function* () {
      yield { returned: `${currentLock().key} ${id}` };
      await aborted();
    })();
  }
}

function aborted(): Promise<never> {
  const { signal } = currentLock();
  return new Promise((_resolve, reject) => {
    signal.addEventListener('abort', () => {
      reject(signal.reason as Error);
    });
  });
}

it.each(['generated', 'requested', 'returned'])(
  'a GraphQL subscription that ends releases the lock of its generator (%s)',
  async (name) => {
    const graphql = GraphQLModule.forRoot({ driver: SchemaDriver, autoSchemaFile: true });
    const { app } = await serve({ imports: [graphql], providers: [Feed] });
    const held = () =>
      app
        .get(LockAdmin)
        .held()
        .map(({ key }) => key);
    const results = (await subscribe({
      schema: app.get(GraphQLSchemaHost).schema,
      document: parse(`subscription { ${name}(id: "7") }`),
      contextValue: {},
    })) as AsyncGenerator<object>;
    expect(await results.next()).toMatchObject({ value: { data: { [name]: 'device:7 7' } } });
    const next = results.next();
    expect(held()).toEqual(['device:7']);
    await results.return(undefined);
    expect(await next).toMatchObject({ done: true });
    await until(() => held().length === 0);
  },
);
