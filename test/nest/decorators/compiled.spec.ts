// Methods whose function doesn't show what it returns: compiled for older JavaScript, or wrapped by other decorators.
import { setTimeout as pause } from 'node:timers/promises';
import { transformSync as swc } from '@swc/core';
import { transformSync as esbuild } from 'esbuild';
import ts from 'typescript';
import { Injectable, type Type } from '@nestjs/common';
import { currentLock, DistributedLock, LockAdmin, LockBusyError, LockService } from '../../../lib/index.js';
import { collect, start, until } from '../apps.js';

/** A class that each compiler turns into JavaScript. Its imports are passed in as parameters. */
const SOURCE = `function compiled() {
const Through: MethodDecorator = (_target, _name, descriptor) => {
  const original = descriptor.value as unknown as (...args: unknown[]) => unknown;
  descriptor.value = function (this: unknown, ...args: unknown[]) { return original.apply(this, args); } as never;
};
class Compiled {
  readonly steps: string[] = [];

  @DistributedLock('list:#{first}')
  async *annotated(first: number): AsyncGenerator<string, number, unknown> { return yield* this.body(first); }

  @DistributedLock('list:#{first}')
  async *bare(first: number) { return yield* this.body(first); }

  @DistributedLock('list:#{first}')
  plain(first: number): AsyncGenerator<string, number, unknown> { return this.body(first); }

  @DistributedLock('list:#{first}')
  barePlain(first: number) { return this.body(first); }

  @DistributedLock('list:#{p0}')
  @Through
  async *above(first: number): AsyncGenerator<string, number, unknown> { return yield* this.body(first); }

  @Through
  @DistributedLock('list:#{first}')
  async *below(first: number): AsyncGenerator<string, number, unknown> { return yield* this.body(first); }

  @DistributedLock('outer')
  @DistributedLock('list:#{first}')
  async *twice(first: number): AsyncGenerator<string, number, unknown> { return yield* this.body(first); }

  @DistributedLock('item:#{id}')
  async item(id: number): Promise<string> { await null; return currentLock().key; }

  @DistributedLock('item:#{id}')
  plainItem(id: number): Promise<string> { return this.read(); }

  @DistributedLock('item:#{id}')
  barePlainItem(id: number) { return this.read(); }

  @DistributedLock('events')
  async *events(): AsyncGenerator<string> {
    try {
      await new Promise((_resolve, reject) => {
        const { signal } = currentLock();
        signal.addEventListener('abort', () => { reject(signal.reason); });
      });
      yield 'never';
    } finally {
      this.steps.push('closing');
      await null;
      this.steps.push('closed under ' + currentLock().key);
    }
  }

  private async read() { await null; return currentLock().key; }

  private async *body(first: number): AsyncGenerator<string, number, unknown> {
    try {
      const answer = yield 'item ' + first + ' under ' + currentLock().key;
      this.steps.push('got ' + String(answer));
      await null;
      yield 'again under ' + currentLock().key;
      return 2;
    } finally {
      this.steps.push('closed under ' + currentLock().key);
    }
  }
}
return Compiled;
}`;

const decorators = { experimentalDecorators: true, emitDecoratorMetadata: true };

function byTsc(target: ts.ScriptTarget): string {
  const compilerOptions = { ...decorators, target, module: ts.ModuleKind.ESNext };
  return ts.transpileModule(SOURCE, { compilerOptions }).outputText;
}

function bySwc(target: 'es5' | 'es2017'): string {
  const { code } = swc(SOURCE, {
    filename: 'compiled.ts',
    swcrc: false,
    isModule: false,
    jsc: {
      target,
      parser: { syntax: 'typescript', decorators: true },
      transform: { legacyDecorator: true, decoratorMetadata: true },
      keepClassNames: true,
    },
  });
  return code;
}

function byEsbuild(target: string): string {
  const { code } = esbuild(SOURCE, {
    loader: 'ts',
    target,
    tsconfigRaw: { compilerOptions: decorators },
  });
  return code;
}

const COMPILERS = {
  'tsc for ES2022': () => byTsc(ts.ScriptTarget.ES2022),
  'tsc for ES2017': () => byTsc(ts.ScriptTarget.ES2017),
  'tsc for ES2015': () => byTsc(ts.ScriptTarget.ES2015),
  // eslint-disable-next-line @typescript-eslint/no-deprecated -- some applications still compile for it
  'tsc for ES5': () => byTsc(ts.ScriptTarget.ES5),
  'swc for ES2017': () => bySwc('es2017'),
  'swc for ES5': () => bySwc('es5'),
  'esbuild for ES2017': () => byEsbuild('es2017'),
  'esbuild for ES2016': () => byEsbuild('es2016'),
};

type List = (first: number) => AsyncGenerator<string, number, unknown>;
const LISTS = ['annotated', 'bare', 'plain', 'barePlain', 'above', 'below', 'twice'] as const;
const ITEMS = ['item', 'plainItem', 'barePlainItem'] as const;
type Compiled = Record<(typeof LISTS)[number], List> &
  Record<(typeof ITEMS)[number], (id: number) => Promise<string>> & {
    readonly steps: string[];
    events(): AsyncGenerator;
  };

async function run<T extends object>(type: Type<T>) {
  const app = await start({ providers: [type] });
  const admin = app.get(LockAdmin);
  return {
    it: app.get(type),
    locks: app.get(LockService),
    admin,
    held: () => admin.held().map(({ key }) => key),
    waiting: () => admin.waiting().map(({ key }) => key),
  };
}

describe.each(Object.keys(COMPILERS) as (keyof typeof COMPILERS)[])('compiled by %s', (name) => {
  function compiled(): Type<Compiled> {
    const code = `${COMPILERS[name]()}; return compiled();`;
    // eslint-disable-next-line @typescript-eslint/no-implied-eval -- the output of a compiler
    const make = new Function('DistributedLock', 'currentLock', code) as (...imports: unknown[]) => Type<Compiled>;
    const type = make(DistributedLock, currentLock);
    Injectable()(type);
    return type;
  }

  it.each(LISTS)('locks an async generator from its first step to its end (%s)', async (list) => {
    const { it: lists, held, locks } = await run(compiled());
    const rows = lists[list](7);
    expect(held()).toEqual([]);
    expect(await rows.next()).toEqual({ done: false, value: 'item 7 under list:7' });
    expect(held()).toContain('list:7');
    expect(await rows.next('b')).toEqual({ done: false, value: 'again under list:7' });
    await expect(locks.tryAcquire('list:7')).resolves.toBeNull();
    expect(await rows.next()).toEqual({ done: true, value: 2 });
    expect(held()).toEqual([]);
    expect(lists.steps).toEqual(['got b', 'closed under list:7']);
  });

  it.each(LISTS)(
    'gives a for-await loop every value of a locked generator, and releases if the loop ends early (%s)',
    async (list) => {
      const { it: lists, held } = await run(compiled());
      const got: string[] = [];
      for await (const row of lists[list](7)) got.push(row);
      expect(got).toEqual(['item 7 under list:7', 'again under list:7']);
      expect(held()).toEqual([]);
      for await (const row of lists[list](8)) {
        expect(row).toBe('item 8 under list:8');
        break;
      }
      expect(lists.steps.at(-1)).toBe('closed under list:8');
      expect(held()).toEqual([]);
    },
  );

  it.each(LISTS)('lets a caller await a locked generator first, or iterate it later (%s)', async (list) => {
    const { it: lists, held } = await run(compiled());
    const awaited = await (lists[list](7) as unknown as Promise<AsyncGenerator>);
    const kept = lists[list](7);
    await pause(10);
    for (const rows of [awaited, kept]) {
      expect(held()).toEqual([]);
      expect(await rows.next()).toEqual({ done: false, value: 'item 7 under list:7' });
      expect(held()).toContain('list:7');
      expect(await rows.return(9)).toEqual({ done: true, value: 9 });
      expect(held()).toEqual([]);
    }
  });

  it("aborts the lock's signal when a consumer leaves a generator during a step", async () => {
    const { it: lists, held } = await run(compiled());
    const rows = lists.events();
    const next = rows.next();
    await until(() => held().length === 1);
    await rows.return(undefined);
    expect(await next).toEqual({ done: true, value: undefined });
    expect(lists.steps).toEqual(['closing', 'closed under events']);
    expect(held()).toEqual([]);
  });

  it.each(ITEMS)('locks a method until the promise it returns settles (%s)', async (item) => {
    const { it: items, locks, held, waiting } = await run(compiled());
    const lock = await locks.acquire('item:7');
    const result = items[item](7);
    await until(() => waiting().length === 1);
    await lock.release();
    expect(await result).toBe('item:7');
    expect(held()).toEqual([]);
  });
});

describe('a plain function', () => {
  @Injectable()
  class Plain {
    readonly steps: string[] = [];
    runs = 0;

    @DistributedLock('key')
    rows(): AsyncGenerator<string> {
      return this.body();
    }
    @DistributedLock('key', { wait: 0 })
    impatient(): AsyncGenerator<string> {
      return this.body();
    }
    @DistributedLock('key', { wait: '100ms' })
    hurried(): AsyncGenerator<string> {
      return this.body();
    }
    @DistributedLock('key', { wait: 0, onBusy: 'skip' })
    skipped(): AsyncGenerator<string> {
      return this.body();
    }
    @DistributedLock('key', { minHold: '1m' })
    held(): AsyncGenerator<string> {
      return this.body();
    }
    @DistributedLock('key')
    either(asRows: boolean): AsyncGenerator<string> | Promise<string> {
      return asRows ? this.body() : this.one();
    }
    // A plausible mistake: only the promise for the generator settles under the lock, not the iteration.
    @DistributedLock('key')
    promised(): Promise<AsyncGenerator<string>> {
      return Promise.resolve(this.body());
    }
    @DistributedLock('key')
    fails(): Promise<void> {
      return Promise.reject(new RangeError('own'));
    }
    private async one(): Promise<string> {
      this.runs += 1;
      await Promise.resolve();
      return `one under ${currentLock().key}`;
    }
    private async *body(): AsyncGenerator<string> {
      this.steps.push('begun');
      yield currentLock().key;
    }
  }

  it('runs even if no caller awaits or iterates its result, and rejects its promise with its error', async () => {
    const { it: plain, held } = await run(Plain);
    void plain.either(false);
    await until(() => plain.runs === 1 && held().length === 0);
    await expect(plain.fails()).rejects.toThrow(new RangeError('own'));
  });

  it('may return a generator in one call and a promise in another', async () => {
    const { it: plain } = await run(Plain);
    expect(await collect(plain.either(true) as AsyncGenerator<string>)).toEqual(['key']);
    expect(await plain.either(false)).toBe('one under key');
    const loop = collect(plain.either(false) as unknown as AsyncGenerator<string>);
    await expect(loop).rejects.toThrow(
      /^Plain\.either was iterated, but does not return an async generator: await its result/,
    );
  });

  it('rejects only the iteration when the lock is busy, not the unused promise', async () => {
    const { it: plain, locks, held, waiting } = await run(Plain);
    const lock = await locks.acquire('key');
    await expect(collect(plain.impatient())).rejects.toBeInstanceOf(LockBusyError);
    expect(await collect(plain.skipped())).toEqual([]);
    // An unhandled rejection would make Jest fail the test.
    const kept = plain.impatient()[Symbol.asyncIterator]();
    const late = plain.hurried();
    await until(() => waiting().length === 1);
    const iterator = late[Symbol.asyncIterator]();
    await until(() => waiting().length === 0);
    await pause(10);
    await expect(kept.next()).rejects.toBeInstanceOf(LockBusyError);
    await expect(iterator.next()).rejects.toBeInstanceOf(LockBusyError);
    await expect(plain.impatient() as unknown as Promise<unknown>).rejects.toBeInstanceOf(LockBusyError);
    await lock.release();
    expect(plain.steps).toEqual([]);
    expect(held()).toEqual([]);
  });

  it('waits for the lock before the returned generator starts', async () => {
    const { it: plain, locks, waiting } = await run(Plain);
    const rows = plain.rows();
    const lock = await locks.acquire('key');
    const first = rows.next();
    await until(() => waiting().length === 1);
    expect(plain.steps).toEqual([]);
    await lock.release();
    expect(await first).toEqual({ done: false, value: 'key' });
    await rows.return(undefined);
  });

  it('resolves to its generator when an async function returns it', async () => {
    const { it: plain } = await run(Plain);
    const through = async () => {
      const rows = plain.rows();
      await rows.next();
      return rows;
    };
    const rows = await through();
    expect(await rows.next()).toEqual({ done: true, value: undefined });
  });

  it('is refused if its lock cannot cover its generator', async () => {
    const { it: plain, held, admin } = await run(Plain);
    await expect(plain.promised()).rejects.toThrow(/^Plain\.promised returns a stream/);
    await expect(plain.held() as unknown as Promise<unknown>).rejects.toThrow(
      /^Plain\.held returns an async generator that was awaited .*"minHold".*iterate the result without await/,
    );
    await admin.forceRelease('key');
    expect(await collect(plain.held())).toEqual(['key']);
    expect(held()).toEqual([]);
  });
});
