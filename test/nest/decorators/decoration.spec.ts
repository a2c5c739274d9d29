import { Observable } from 'rxjs';
import { DistributedLock, LockConfigError, OnlyLeader, RunAsLeader, RunOnce } from '../../../lib/index.js';
import type { KeySource } from '../../../lib/nest/methods/method-key.js';

// The types reject all of this at compile time. These errors are for JavaScript and for casts.
type Untyped = (target: unknown, name?: unknown, descriptor?: unknown) => void;
const Locked = (key: KeySource = 'key') =>
  DistributedLock(key as string) as Untyped as MethodDecorator & PropertyDecorator;

function decoration(of: () => unknown) {
  return expect(of);
}

describe('a mistake in decorating a method', () => {
  it('throws for a static method', () => {
    decoration(() => {
      class Orders {
        @Locked()
        static async pay() {}
      }
      return Orders;
    }).toThrow(/^Orders\.pay is static.*make it an instance method/);
  });

  it('throws for an accessor, a property and an arrow function', () => {
    const message = /^Orders\.pay is a property or an accessor, but @DistributedLock needs a method/;
    decoration(() => {
      class Orders {
        @Locked()
        get pay() {
          return 1;
        }
      }
      return Orders;
    }).toThrow(message);
    decoration(() => {
      class Orders {
        @Locked()
        pay = async () => undefined;
      }
      return Orders;
    }).toThrow(message);
  });

  it('throws for a class', () => {
    decoration(() => {
      class Orders {}
      (Locked() as Untyped)(Orders);
    }).toThrow(/is on the class Orders: put it on a method/);
  });

  it('throws for a synchronous generator', () => {
    decoration(() => {
      class Orders {
        @Locked()
        *rows() {
          yield 1;
        }
      }
      return Orders;
    }).toThrow(/^Orders\.rows is synchronous, but @DistributedLock has to wait: make it async/);
  });

  it.each([
    ['string', String],
    ['number', Number],
    ['boolean', Boolean],
    ['array', Array],
    ['Date', Date],
  ])('throws for a method annotated to return a %s', (_, type) => {
    decoration(() => {
      class Orders {
        count() {
          return 1;
        }
      }
      Reflect.defineMetadata('design:returntype', type, Orders.prototype, 'count');
      const descriptor = Object.getOwnPropertyDescriptor(Orders.prototype, 'count');
      (Locked() as Untyped)(Orders.prototype, 'count', descriptor);
    }).toThrow(/^Orders\.count is synchronous/);
  });

  it('throws for a method that returns a class instance, even if a cast hides it from the compiler', () => {
    class Receipt {}
    decoration(() => {
      class Orders {
        @Locked()
        receipt(): Receipt {
          return new Receipt();
        }
      }
      return Orders;
    }).toThrow(/^Orders\.receipt is synchronous, but @DistributedLock has to wait: make it async/);
  });

  it('names the compiler option to set if the compiler emits standard decorators', () => {
    decoration(() => {
      (Locked() as Untyped)(async () => undefined, { kind: 'method', name: 'pay', static: false });
    }).toThrow(/legacy decorators: set "experimentalDecorators": true/);
  });

  it('throws for a decorator without parentheses, and for options that are not an object', () => {
    const example = "write @DistributedLock('order:#{order.id}', { wait: '2s' }).";
    const Bare = DistributedLock as unknown as MethodDecorator;
    decoration(() => {
      class Orders {
        @Bare
        async pay() {}
      }
      return Orders;
    }).toThrow(`Orders.pay: @DistributedLock is missing its parentheses and key: ${example}`);
    for (const options of [5000, null]) {
      decoration(() => {
        class Orders {
          @((DistributedLock as (...args: unknown[]) => MethodDecorator)('a', options))
          async pay() {}
        }
        return Orders;
      }).toThrow(`Orders.pay: the options of @DistributedLock must be an object: ${example}`);
    }
  });

  it('throws for a job without a key, and for options that do not exist or are mutually exclusive', () => {
    const withOptions = (options: unknown) =>
      decoration(() => {
        class Jobs {
          @((RunOnce as (...args: unknown[]) => MethodDecorator)('job', options))
          async run() {}
        }
        return Jobs;
      });
    withOptions({ minhold: '1m' }).toThrow(/^Jobs\.run: @RunOnce: there is no option "minhold": write "minHold"/);
    withOptions({ minHold: '1m', wait: 5 }).toThrow(/^Jobs\.run: @RunOnce: there is no option "wait"/);
    withOptions({ minHold: '1m', catchUp: '6h' }).toThrow(
      /^Jobs\.run: Options "minHold" and "catchUp" of @RunOnce are mutually exclusive: .* Remove one of them/,
    );
    withOptions({ minHold: '1m', afterCrash: 1 }).toThrow(/^Jobs\.run: Options "minHold" and "afterCrash"/);
    withOptions(5000).toThrow(/^Jobs\.run: the options of @RunOnce must be an object/);
    decoration(() => {
      class Jobs {
        @(RunOnce as unknown as MethodDecorator)
        async run() {}
      }
      return Jobs;
    }).toThrow(/^Jobs\.run: @RunOnce is missing its parentheses and key: write @RunOnce\('nightly-report'/);
    for (const Leader of [RunAsLeader, OnlyLeader]) {
      decoration(() => {
        class Jobs {
          @(Leader as unknown as MethodDecorator)
          async run() {}
        }
        return Jobs;
      }).toThrow(`Jobs.run: @${Leader.name} is missing its parentheses and key: write @${Leader.name}('billing').`);
    }
  });

  it('throws a LockConfigError', () => {
    decoration(() => {
      (Locked() as Untyped)(class Orders {});
    }).toThrow(LockConfigError);
  });
});

describe('a decorated method, as other decorators see it', () => {
  it('keeps its name, its length and its metadata', () => {
    const own = Symbol('own');
    const Mark: MethodDecorator = (target, name, descriptor) => {
      Reflect.defineMetadata(own, 'function', descriptor.value as object);
      Reflect.defineMetadata(own, 'property', target, name);
    };
    class Orders {
      @Locked('#{a}')
      @Mark
      async pay(a: number, b: number, ...rest: number[]) {
        return [a, b, rest];
      }
    }
    const { pay } = Orders.prototype;
    expect([pay.name, pay.length]).toEqual(['pay', 2]);
    expect(Reflect.getOwnMetadata(own, pay)).toBe('function');
    expect(Reflect.getOwnMetadata(own, Orders.prototype, 'pay')).toBe('property');
    expect(Object.getOwnPropertyDescriptor(Orders.prototype, 'pay')).toMatchObject({
      enumerable: false,
      configurable: true,
      writable: true,
    });
  });

  it('has the parameter names of a method that another decorator wraps', async () => {
    const Wrap: MethodDecorator = (_target, _name, descriptor) => {
      const inner = descriptor.value as (...args: unknown[]) => unknown;
      descriptor.value = function (this: unknown, ...args: unknown[]) {
        return inner.apply(this, args);
      } as never;
    };
    class Orders {
      @Locked('#{order.id}')
      @Wrap
      async pay(order: { id: string }) {
        return order;
      }
    }
    // There is no application, but the key template was accepted.
    await expect(new Orders().pay({ id: '1' })).rejects.toThrow(/outside Nest/);
  });

  it('returns an Observable or an async generator synchronously', () => {
    class Orders {
      @DistributedLock('watch')
      watch(): Observable<number> {
        return new Observable();
      }
      @DistributedLock('rows')
      async *rows(): AsyncGenerator<number> {
        yield 1;
      }
    }
    const orders = new Orders();
    expect(orders.watch()).toBeInstanceOf(Observable);
    expect(typeof orders.rows().next).toBe('function');
  });
});
