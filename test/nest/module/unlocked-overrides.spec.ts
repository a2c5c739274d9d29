import { transformSync as swc } from '@swc/core';
import { transformSync as esbuild } from 'esbuild';
import ts from 'typescript';
import { Injectable, type Type } from '@nestjs/common';
import { DistributedLock, LockService, OnlyLeader, RunAsLeader, RunOnce, Unlocked } from '../../../lib/index.js';
import { start } from '../apps.js';

async function warningsOf(...providers: Type[]): Promise<string[]> {
  const warnings: string[] = [];
  const ignore = () => undefined;
  const logger = { log: ignore, error: ignore, warn: (text: string) => warnings.push(text) };
  await start({ providers }, { logger });
  return warnings.filter((text) => text.includes('overrides the locked method'));
}

const about = (override: string, method: string) =>
  `${override} overrides the locked method ${method} and runs without its lock, since it has no decorator and no visible call to super.${method.split('.')[1]}(): decorate it, call super.${method.split('.')[1]}(), or mark it with @Unlocked() if that is intended.`;

const steps: string[] = [];

class Leader {
  @RunAsLeader('leader')
  async lead() {}
}

@Injectable()
class Orders {
  @DistributedLock('order:#{id}')
  async pay(id: number) {
    steps.push(`paid ${id}`);
  }
  @DistributedLock('order:#{id}')
  async *rows(id: number) {
    yield id;
  }
  @RunOnce('nightly', { minHold: 0 })
  async nightly() {}
  @OnlyLeader('billing')
  async report() {}
  async log() {}
}

/** Wraps the method, like many decorators, which hides its source. */
const Wrapped: MethodDecorator = (_target, _name, descriptor) => {
  const original = descriptor.value as unknown as (...args: unknown[]) => unknown;
  descriptor.value = ((...args: unknown[]) => original(...args)) as never;
};

it('warns of each unlocked override, once for all classes that inherit it', async () => {
  @Injectable()
  class Careless extends Orders {
    override async pay(id: number) {
      await this.log();
      await super.log();
      steps.push(`paid ${id}`);
    }
    override async *rows(id: number) {
      yield id;
    }
    override async nightly() {}
    override async report() {}
  }
  @Injectable()
  class AlsoCareless extends Careless {}
  expect(await warningsOf(Orders, Careless, AlsoCareless)).toEqual([
    about('Careless.pay', 'Orders.pay'),
    about('Careless.rows', 'Orders.rows'),
    about('Careless.nightly', 'Orders.nightly'),
    about('Careless.report', 'Orders.report'),
  ]);
});

it('finds an override behind a wrapper, in an intermediate class, and in a property', async () => {
  @Injectable()
  class Behind extends Orders {
    @Wrapped
    override async pay(id: number) {
      await Promise.resolve(id);
    }
  }
  @Injectable()
  class Between extends Behind {
    override async pay(id: number) {
      await super.pay(id);
    }
  }
  @Injectable()
  class Property extends Orders {
    override pay = async (id: number) => {
      await Promise.resolve(id);
    };
  }
  expect(await warningsOf(Between, Property)).toEqual([
    about('Behind.pay', 'Orders.pay'),
    about('Property.pay', 'Orders.pay'),
  ]);
});

it('does not warn of an override that calls super, has a decorator, or is marked with @Unlocked', async () => {
  const name = 'pay';
  @Injectable()
  class Calls extends Orders {
    override async pay(id: number) {
      await this.twice(() => super.pay(id));
    }
    override async *rows(id: number) {
      yield* super['rows'](id);
    }
    private async twice(task: () => Promise<void>) {
      await task();
      await task();
    }
  }
  @Injectable()
  class CallsElsewhere extends Orders {
    override async pay(id: number) {
      await this.again(id);
    }
    private again(id: number) {
      return super.pay(id);
    }
  }
  @Injectable()
  class CallsByName extends Orders {
    override async pay(id: number) {
      await super[name](id);
    }
  }
  @Injectable()
  class CallsPrototype extends Orders {
    override async pay(id: number) {
      await Orders.prototype.pay.call(this, id);
    }
  }
  @Injectable()
  class CallsBehindWrapper extends Orders {
    @Wrapped
    override async pay(id: number) {
      await super.pay(id);
    }
  }
  @Injectable()
  class Decorated extends Orders {
    @DistributedLock('own:#{id}')
    override async pay(id: number) {
      await Promise.resolve(id);
    }
    @OnlyLeader('billing')
    override async report() {}
  }
  @Injectable()
  class BelowDecorated extends Decorated {
    override async pay(id: number) {
      await super.pay(id);
    }
  }
  @Injectable()
  class Meant extends Orders {
    @Unlocked()
    @Wrapped
    override async pay(id: number) {
      await Promise.resolve(id);
    }
  }
  @Injectable()
  class MeantProperty extends Orders {
    @Unlocked()
    override pay = async (id: number) => {
      await Promise.resolve(id);
    };
  }
  @Injectable()
  class PropertyCalls extends Orders {
    override pay = async (id: number) => {
      await super.pay(id);
    };
  }
  @Injectable()
  class StillLeads extends Leader {
    override async lead() {}
  }
  @Injectable()
  class Binds extends Orders {
    constructor() {
      super();
      this.pay = this.pay.bind(this);
    }
  }
  class Traced extends Orders {}
  const original = Traced.prototype.pay;
  Traced.prototype.pay = function (this: Traced, ...args) {
    return original.apply(this, args);
  };
  Injectable()(Traced);
  const all = [Calls, CallsElsewhere, CallsByName, CallsPrototype, CallsBehindWrapper, Decorated, BelowDecorated];
  expect(await warningsOf(...all, Meant, MeantProperty, PropertyCalls, StillLeads, Binds, Traced)).toEqual([]);
});

it('an override with @Unlocked runs without the lock', async () => {
  @Injectable()
  class Meant extends Orders {
    @Unlocked()
    override async pay(id: number) {
      steps.push(`paid ${id} under ${app.get(LockService).current()?.key}`);
    }
  }
  const app = await start({ providers: [Meant] });
  await app.get(Meant).pay(7);
  expect(steps).toContain('paid 7 under undefined');
});

it('@Unlocked together with a lock on the same method fails the boot, in either order', async () => {
  @Injectable()
  class Both {
    @Unlocked()
    @DistributedLock('a')
    async above() {}
    @DistributedLock('a')
    @Unlocked()
    async below() {}
  }
  const boot = start({ providers: [Both] });
  await expect(boot).rejects.toThrow(
    /Both\.above: it has both a lock and @Unlocked, .*: remove one\n.*Both\.below: it has both a lock and @Unlocked/,
  );
});

const SOURCE = `function compiled() {
  class Orders {
    @DistributedLock('order:#{p0}')
    async pay(id: number) { return id; }
    @DistributedLock('order:#{p0}')
    ship(id: number): Promise<number> { return Promise.resolve(id); }
  }
  class Calls extends Orders {
    override async pay(id: number) { await null; return super.pay(id); }
    override ship(id: number) { return super.ship(id); }
  }
  class Forgets extends Orders {
    override async pay(id: number) { await null; return id; }
    override ship(id: number) { return Promise.resolve(id); }
  }
  return [Calls, Forgets];
}`;

const decorators = { experimentalDecorators: true, emitDecoratorMetadata: true };
const byTsc = (target: ts.ScriptTarget) =>
  ts.transpileModule(SOURCE, { compilerOptions: { ...decorators, target, module: ts.ModuleKind.ESNext } }).outputText;
const byEsbuild = (target: string, minify: boolean) =>
  esbuild(SOURCE, { loader: 'ts', target, minify, keepNames: true, tsconfigRaw: { compilerOptions: decorators } }).code;
const bySwc = (target: 'es2016' | 'es2022', minify: boolean) =>
  swc(SOURCE, {
    filename: 'compiled.ts',
    swcrc: false,
    isModule: false,
    minify,
    jsc: {
      target,
      parser: { syntax: 'typescript', decorators: true },
      transform: { legacyDecorator: true, decoratorMetadata: true },
      keepClassNames: true,
      minify: { compress: minify, mangle: minify && { keep_fnames: true, keep_classnames: true, toplevel: false } },
    },
  }).code;

it.each([
  ['tsc for ES2022', () => byTsc(ts.ScriptTarget.ES2022)],
  ['tsc for ES2017', () => byTsc(ts.ScriptTarget.ES2017)],
  ['tsc for ES2015', () => byTsc(ts.ScriptTarget.ES2015)],
  ['swc for ES2022', () => bySwc('es2022', false)],
  ['swc for ES2016', () => bySwc('es2016', false)],
  ['swc for ES2022, minified', () => bySwc('es2022', true)],
  ['esbuild for ES2022', () => byEsbuild('es2022', false)],
  ['esbuild for ES2016', () => byEsbuild('es2016', false)],
  ['esbuild for ES2022, minified', () => byEsbuild('es2022', true)],
  ['esbuild for ES2016, minified', () => byEsbuild('es2016', true)],
])('detects whether an override calls super in code compiled by %s', async (_compiler, compile) => {
  // eslint-disable-next-line @typescript-eslint/no-implied-eval -- the output of a compiler
  const make = new Function('DistributedLock', `${compile()}; return compiled();`) as (lock: unknown) => Type[];
  const types = make(DistributedLock);
  for (const type of types) Injectable()(type);
  expect(await warningsOf(...types)).toEqual([
    about('Forgets.pay', 'Orders.pay'),
    about('Forgets.ship', 'Orders.ship'),
  ]);
});
