import { EventEmitter, on } from 'node:events';
import { PassThrough } from 'node:stream';
import { Injectable, type Type } from '@nestjs/common';
import { Test } from '@nestjs/testing';
import {
  concat,
  defer,
  EMPTY,
  firstValueFrom,
  lastValueFrom,
  Observable,
  of,
  range,
  tap,
  throwError,
  toArray,
} from 'rxjs';
import {
  currentLock,
  DistributedLock,
  LockAdmin,
  type Lock,
  LockService,
  LockBusyError,
  LockLostError,
} from '../../../lib/index.js';
import { DistributedLockTestingModule, TestLocks } from '../../../lib/testing/index.js';
import { ScriptedProvider } from '../../core/scripted-provider.js';
import { type AppOptions, collect, Gate, start, until } from '../apps.js';

async function run<T extends object>(type: Type<T>, options: AppOptions = {}) {
  const app = await start({ providers: [type] }, options);
  const admin = app.get(LockAdmin);
  return {
    it: app.get(type),
    locks: app.get(LockService),
    admin,
    held: () => admin.held().map(({ key }) => key),
    waiting: () => admin.waiting().map(({ key }) => key),
  };
}

describe('a method that returns an Observable', () => {
  it('stops a source that emits synchronously as soon as its consumer leaves', async () => {
    const emitted: number[] = [];
    @Injectable()
    class Numbers {
      @DistributedLock('numbers')
      all(): Observable<number> {
        return range(1, 5).pipe(tap((value) => emitted.push(value)));
      }
    }
    const numbers = await run(Numbers);
    await expect(firstValueFrom(numbers.it.all())).resolves.toBe(1);
    expect(emitted).toEqual([1]);
    await until(() => numbers.held().length === 0);
  });

  @Injectable()
  class Feed {
    subscriptions = 0;

    @DistributedLock('feed:#{id}')
    watch(id: string): Observable<string> {
      return new Observable((subscriber) => {
        this.subscriptions += 1;
        subscriber.next(`${currentLock().key} ${id}`);
        return () => (this.subscriptions -= 1);
      });
    }

    @DistributedLock('list')
    list(): Observable<number> {
      return of(1, 2, 3);
    }

    @DistributedLock('list')
    fails(): Observable<number> {
      return concat(
        of(1),
        throwError(() => new RangeError('own')),
      );
    }

    @DistributedLock('list')
    throws(): Observable<number> {
      throw new RangeError('thrown');
    }

    @DistributedLock('list', { onBusy: 'skip' })
    skips(): Observable<number> {
      return of(1);
    }

    @DistributedLock('list', { wait: 0, onBusy: ({ args }) => of('instead', ...args) })
    replaced(_argument: string): Observable<unknown> {
      return EMPTY;
    }
  }

  it('still returns an Observable, and locks only on subscription', async () => {
    const feed = await run(Feed);
    const watching = feed.it.watch('1');
    expect(watching).toBeInstanceOf(Observable);
    await Promise.resolve();
    expect(feed.held()).toEqual([]);
    await expect(firstValueFrom(watching)).resolves.toBe('feed:1 1');
  });

  it('is subscribed under the lock even if another decorator turns the Observable into a promise', async () => {
    const Promised: MethodDecorator = (_target, _name, descriptor) => {
      const original = descriptor.value as unknown as (...args: unknown[]) => unknown;
      descriptor.value = async function (this: unknown, ...args: unknown[]) {
        return original.apply(this, args);
      } as never;
    };
    @Injectable()
    class Wrapped {
      @DistributedLock('wrapped')
      @Promised
      watch(): Observable<string> {
        return defer(() => of(currentLock().key));
      }
    }
    const { it: wrapped, held } = await run(Wrapped);
    await expect(firstValueFrom(wrapped.watch())).resolves.toBe('wrapped');
    await until(() => held().length === 0);
  });

  it('holds the lock until the subscription is torn down', async () => {
    const feed = await run(Feed);
    const values: string[] = [];
    const subscription = feed.it.watch('1').subscribe((value) => values.push(value));
    await until(() => values.length === 1);
    expect(feed.held()).toEqual(['feed:1']);
    subscription.unsubscribe();
    expect(feed.it.subscriptions).toBe(0);
    await until(() => feed.held().length === 0);
  });

  it('locks once for each subscription, so that two subscriptions run one after the other', async () => {
    const feed = await run(Feed);
    const watching = feed.it.watch('1');
    const seen: string[] = [];
    const first = watching.subscribe(() => seen.push('first'));
    const second = watching.subscribe(() => seen.push('second'));
    await until(() => seen.length === 1);
    expect(feed.waiting()).toEqual(['feed:1']);
    first.unsubscribe();
    await until(() => seen.length === 2);
    second.unsubscribe();
    expect(seen).toEqual(['first', 'second']);
  });

  it('stops waiting when it is unsubscribed', async () => {
    const feed = await run(Feed);
    const lock = await feed.locks.acquire('feed:1');
    const subscription = feed.it.watch('1').subscribe();
    await until(() => feed.waiting().length === 1);
    subscription.unsubscribe();
    await until(() => feed.waiting().length === 0);
    await lock.release();
    expect(feed.held()).toEqual([]);
    expect(feed.it.subscriptions).toBe(0);
  });

  it('releases a lock granted to a subscriber that has just unsubscribed', async () => {
    const feed = await run(Feed);
    feed.it.watch('1').subscribe().unsubscribe();
    await until(() => feed.held().length === 0);
    await expect(feed.locks.acquire('feed:1')).resolves.toBeDefined();
  });

  it('releases before it completes, and before it fails with its own error', async () => {
    const feed = await run(Feed);
    await expect(lastValueFrom(feed.it.list().pipe(toArray()))).resolves.toEqual([1, 2, 3]);
    expect(feed.held()).toEqual([]);
    await expect(lastValueFrom(feed.it.fails())).rejects.toThrow(new RangeError('own'));
    await expect(lastValueFrom(feed.it.throws())).rejects.toThrow(new RangeError('thrown'));
    expect(feed.held()).toEqual([]);
  });

  it('fails when it cannot be locked', async () => {
    const feed = await run(Feed);
    await expect(lastValueFrom(feed.it.watch(''))).rejects.toThrow(/#{id}.*Feed\.watch/);
  });

  it('completes empty when it is skipped, or emits what onBusy returns', async () => {
    const feed = await run(Feed);
    await feed.locks.acquire('list');
    await expect(lastValueFrom(feed.it.skips(), { defaultValue: 'nothing' })).resolves.toBe('nothing');
    await expect(lastValueFrom(feed.it.replaced('x').pipe(toArray()))).resolves.toEqual(['instead', 'x']);
  });
});

describe('an async generator', () => {
  @Injectable()
  class Export {
    readonly steps: string[] = [];

    @DistributedLock('export:#{name}')
    async *rows(name: string): AsyncGenerator<string, number, unknown> {
      try {
        const answer = yield `${name} under ${currentLock().key}`;
        this.steps.push(`got ${String(answer)}`);
        // Each step runs in the context of its consumer, but still under the lock.
        yield `again under ${currentLock().key}`;
        return 2;
      } finally {
        this.steps.push(`closed under ${currentLock().key}`);
      }
    }

    @DistributedLock('failing')
    async *fails(): AsyncGenerator<number> {
      yield 1;
      throw new RangeError('own');
    }

    @DistributedLock('busy', { wait: 0, onBusy: 'skip' })
    async *skips(): AsyncGenerator<number> {
      yield 1;
    }

    @DistributedLock('busy', { wait: 0 })
    async *throws(): AsyncGenerator<number> {
      yield 1;
    }

    @DistributedLock('busy', { wait: 0, onBusy: () => instead() })
    async *replaced(): AsyncGenerator<string> {
      yield 'own';
    }
  }

  async function* instead() {
    yield 'instead';
  }

  it('is locked from its first step to its last, in every step', async () => {
    const { it: exporting, held } = await run(Export);
    const rows = exporting.rows('a');
    expect(rows[Symbol.asyncIterator]()).toBe(rows);
    expect(held()).toEqual([]);
    expect(await rows.next('ignored')).toEqual({ done: false, value: 'a under export:a' });
    expect(held()).toEqual(['export:a']);
    expect(await rows.next('b')).toEqual({ done: false, value: 'again under export:a' });
    expect(await rows.next('c')).toEqual({ done: true, value: 2 });
    expect(held()).toEqual([]);
    expect(exporting.steps).toEqual(['got b', 'closed under export:a']);
  });

  it('does not put its consumer in the context of the lock', async () => {
    const { it: exporting } = await run(Export);
    for await (const row of exporting.rows('a')) {
      expect(row).toMatch(/under/);
      expect(() => currentLock()).toThrow(/outside any lock/);
    }
  });

  it('releases when its consumer leaves early', async () => {
    const { it: exporting, held } = await run(Export);
    for await (const row of exporting.rows('a')) {
      expect(row).toBe('a under export:a');
      break;
    }
    expect(exporting.steps).toEqual(['closed under export:a']);
    expect(held()).toEqual([]);
  });

  it('releases after throw() and return()', async () => {
    const { it: exporting, held } = await run(Export);
    const thrown = exporting.rows('a');
    await thrown.next('');
    await expect(thrown.throw(new RangeError('in'))).rejects.toThrow(new RangeError('in'));
    const returned = exporting.rows('a');
    await returned.next('');
    expect(await returned.return(9)).toEqual({ done: true, value: 9 });
    expect(exporting.steps).toEqual(['closed under export:a', 'closed under export:a']);
    expect(held()).toEqual([]);
  });

  it('locks nothing when it is left before its first step', async () => {
    const { it: exporting, held, locks } = await run(Export);
    const acquired: string[] = [];
    locks.events.on('acquired', ({ key }) => acquired.push(key));
    expect(await exporting.rows('a').return(1)).toEqual({ done: true, value: 1 });
    expect([held(), acquired, exporting.steps]).toEqual([[], [], []]);
  });

  it('passes on its own error, and a LockBusyError', async () => {
    const { it: exporting, held, locks } = await run(Export);
    await expect(collect(exporting.fails())).rejects.toThrow(new RangeError('own'));
    expect(held()).toEqual([]);
    await locks.acquire('busy');
    await expect(collect(exporting.throws())).rejects.toBeInstanceOf(LockBusyError);
  });

  it('yields nothing when it is skipped, or yields what onBusy returns', async () => {
    const { it: exporting, locks } = await run(Export);
    await locks.acquire('busy');
    await expect(collect(exporting.skips())).resolves.toEqual([]);
    await expect(collect(exporting.replaced())).resolves.toEqual(['instead']);
  });

  it('reports the loss of its lock at its end', async () => {
    const { it: exporting, admin } = await run(Export);
    const rows = exporting.rows('a');
    await rows.next('');
    await admin.forceRelease('export:a');
    await rows.next('');
    await expect(rows.next('')).rejects.toMatchObject({
      name: 'LockLostError',
      outcome: { status: 'fulfilled', value: 2 },
    });
  });
});

describe('a consumer that leaves an async generator during a step', () => {
  @Injectable()
  class Events {
    readonly gate = new Gate();
    readonly reasons: unknown[] = [];
    readonly steps: string[] = [];

    @DistributedLock('events')
    async *listening(): AsyncGenerator<string> {
      const { signal } = currentLock();
      try {
        yield 'first';
        await aborted(signal);
        yield 'never';
      } finally {
        this.reasons.push(signal.reason);
        this.steps.push(`closed, ${currentLock().isHeld() ? 'held' : 'not held'}`);
      }
    }
    @DistributedLock('outer')
    @DistributedLock('events')
    async *twice(): AsyncGenerator<string> {
      await aborted(currentLock().signal);
      yield 'never';
    }
    @DistributedLock('events')
    async *returning(): AsyncGenerator<string, string> {
      yield 'first';
      await aborted(currentLock().signal).catch(() => undefined);
      return 'ended';
    }
    @DistributedLock('events')
    async *failing(): AsyncGenerator<string> {
      yield 'first';
      await aborted(currentLock().signal).catch(() => undefined);
      throw new RangeError('own');
    }
    @DistributedLock('events')
    async *deaf(): AsyncGenerator<string> {
      yield 'first';
      await this.gate.opened;
      yield 'second';
      this.steps.push('went on');
    }
    // Like the PubSub of GraphQL.
    @DistributedLock('events')
    published(): AsyncGenerator<string> {
      return on(new EventEmitter(), 'published') as AsyncGenerator<string>;
    }
  }

  function aborted(signal: AbortSignal): Promise<never> {
    return new Promise((_resolve, reject) => {
      signal.addEventListener('abort', () => {
        reject(signal.reason as Error);
      });
    });
  }

  it("ends a body that listens to its lock's signal, then releases the lock", async () => {
    const { it: events, held } = await run(Events);
    const rows = events.listening();
    await rows.next();
    const next = rows.next();
    await Promise.resolve();
    expect(held()).toEqual(['events']);
    await expect(rows.return('bye')).resolves.toEqual({ done: true, value: 'bye' });
    await expect(next).resolves.toEqual({ done: true, value: undefined });
    expect(events.steps).toEqual(['closed, held']);
    // The reason is not a lost lock.
    expect(events.reasons).toEqual([
      expect.objectContaining({ name: 'AbortError', message: 'The consumer of Events.listening stopped iterating.' }),
    ]);
    expect(held()).toEqual([]);
  });

  it('counts as failed only if the step did not end, so that a row lock rolls back half a step', async () => {
    const provider = ScriptedProvider.obliging();
    const failed: boolean[] = [];
    provider.onRelease = (_request, options) => {
      failed.push(options.failed);
      return 'released';
    };
    const { it: events } = await run(Events, { provider });
    const halfway = events.listening();
    await halfway.next();
    const next = halfway.next();
    await halfway.return(undefined);
    await next;
    const between = events.listening();
    await between.next();
    await between.return(undefined);
    const ended = events.returning();
    await ended.next();
    const last = ended.next();
    await ended.return('');
    await last;
    expect(failed).toEqual([true, false, false]);
  });

  it('gets the return value or the error of the body', async () => {
    const { it: events, held } = await run(Events);
    const rows = events.returning();
    await rows.next();
    const next = rows.next();
    await rows.return(undefined as never);
    await expect(next).resolves.toEqual({ done: true, value: 'ended' });
    const failing = events.failing();
    await failing.next();
    const failed = expect(failing.next()).rejects.toThrow(new RangeError('own'));
    await failing.return(undefined);
    await failed;
    expect(held()).toEqual([]);
  });

  it('keeps the lock up to the next value of a body that does not listen to the signal', async () => {
    const { it: events, held } = await run(Events);
    const rows = events.deaf();
    await rows.next();
    const next = rows.next();
    const left = rows.return(undefined);
    await new Promise(setImmediate);
    expect(held()).toEqual(['events']);
    events.gate.open();
    await expect(next).resolves.toEqual({ done: false, value: 'second' });
    await left;
    expect(events.steps).toEqual([]);
    expect(held()).toEqual([]);
  });

  it('ends another iterator or an inner locked generator through its return()', async () => {
    const { it: events, held } = await run(Events);
    for (const rows of [events.published(), events.twice()]) {
      const next = rows.next();
      await until(() => held().includes('events'));
      await rows.return(undefined);
      await expect(next).resolves.toEqual({ done: true, value: undefined });
      expect(held()).toEqual([]);
    }
  });

  it('ends the wait for the lock', async () => {
    const { it: events, locks, held, waiting } = await run(Events);
    const lock = await locks.acquire('events');
    const rows = events.listening();
    const next = rows.next();
    await until(() => waiting().length === 1);
    await rows.return(undefined);
    await expect(next).resolves.toEqual({ done: true, value: undefined });
    expect(waiting()).toEqual([]);
    await lock.release();
    expect(events.reasons).toEqual([]);
    expect(held()).toEqual([]);
  });

  it('does not abort the signal between two steps, so that the body can still use it', async () => {
    const { it: events } = await run(Events);
    for await (const row of events.listening()) {
      expect(row).toBe('first');
      break;
    }
    expect(events.reasons).toEqual([undefined]);
  });
});

it.each(['rows', 'values'] as const)(
  'a stream whose lock is lost before it starts does not start (%s)',
  async (name) => {
    const started: string[] = [];
    @Injectable()
    class Reports {
      @DistributedLock('report', { mode: 'shared' })
      async block() {
        locks.clock.block(3_600_000);
      }
      @DistributedLock('report', { mode: 'shared' })
      async *rows(): AsyncGenerator<number> {
        started.push('rows');
        yield 1;
      }
      @DistributedLock('report', { mode: 'shared' })
      values(): Observable<number> {
        return defer(() => of(started.push('values')));
      }
    }
    const module = await Test.createTestingModule({
      imports: [DistributedLockTestingModule.forRoot()],
      providers: [Reports],
    }).compile();
    const [reports, locks] = [module.get(Reports), module.get(TestLocks)];
    const writer = await module.get(LockService).acquire('report');
    const blocking = reports.block();
    const stream = name === 'rows' ? collect(reports.rows()) : lastValueFrom(reports.values());
    await until(() => module.get(LockAdmin).waiting().length === 2);
    await writer.release();
    await expect(stream).rejects.toBeInstanceOf(LockLostError);
    await expect(blocking).rejects.toBeInstanceOf(LockLostError);
    expect(started).toEqual([]);
    await module.close();
  },
);

it('does not read the accessors of its arguments', async () => {
  class Part {
    readonly #pipe = 'steel';
    get pipe() {
      return this.#pipe;
    }
  }
  @Injectable()
  class Parts {
    @DistributedLock('part')
    async use(part: Part) {
      return part.pipe;
    }
  }
  const { it: parts } = await run(Parts);
  await expect(parts.use(new Part())).resolves.toBe('steel');
});

describe('a stream returned by a method not known to return one', () => {
  const seen: Lock[] = [];
  @Injectable()
  class Streams {
    @DistributedLock('stream')
    // If the return type isn't annotated, or is imported with "type", decorators don't see the Observable.
    unannotated(): Promise<unknown> {
      seen.push(currentLock());
      return of(1) as never;
    }
    @DistributedLock('stream')
    async readable() {
      return new PassThrough();
    }
    @DistributedLock('stream')
    async response() {
      return new Response('text');
    }
  }

  it.each(['unannotated', 'readable', 'response'] as const)('is refused with the alternatives (%s)', async (name) => {
    const streams = await run(Streams);
    await expect(streams.it[name]()).rejects.toMatchObject({
      name: 'LockConfigError',
      message: expect.stringMatching(
        /^Streams\.\w+ returns a stream that would be read after the lock is released: .*Observable.*async generator.*request/,
      ) as string,
    });
    expect(streams.held()).toEqual([]);
  });
});
