// Compiled by `npm run typecheck`, never executed.
/* eslint-disable @typescript-eslint/no-unused-vars, @typescript-eslint/no-explicit-any
   -- methods of all shapes, only for their types. */
import { applyDecorators, Get } from '@nestjs/common';
import { Cron } from '@nestjs/schedule';
import { expectTypeOf } from 'expect-type';
import type { Observable } from 'rxjs';
import {
  type BusyContext,
  DistributedLock,
  type LockDecorator,
  LockDefaults,
  lockKey,
  type LossContext,
  RunOnce,
  type SkippableLockDecorator,
  Unlocked,
} from '../../lib/index.js';

interface Order {
  id: string;
  amount: number;
}
interface HasId {
  id: string;
}
declare const never: never;
const secret = Symbol('secret');

/** Methods that can be locked. */
abstract class Locked<T extends HasId> {
  @DistributedLock('order:#{order.id}')
  async async(order: Order) {}

  @DistributedLock(['order:#{order.id}', 'orders'], { wait: '2s' })
  promise(order: Order): Promise<number> {
    return never;
  }
  @DistributedLock('a')
  promiseLike(): PromiseLike<number> {
    return never;
  }
  @DistributedLock('a')
  observable(): Observable<number> {
    return never;
  }
  @DistributedLock('a')
  async *generator(): AsyncGenerator<number> {
    yield 1;
  }
  @DistributedLock('a')
  async *inferredGenerator() {
    yield 1;
    return 'end';
  }
  @DistributedLock('a')
  any(): any {
    return never;
  }

  @DistributedLock((order: Order) => `order:${order.id}`)
  async function(order: Order) {}

  @DistributedLock((from: HasId, to: HasId) => [from.id, to.id])
  async widerParameters(from: Order, to: Order, amount: number) {}

  @DistributedLock((order: HasId) => lockKey`order:${order.id}`)
  async fewerParameters(order: Order, amount: number) {}

  @DistributedLock<[Order]>((order) => order.id)
  async writtenParameters(order: Order) {}

  @DistributedLock((order: Order, amount?: number) => `${order.id}:${amount ?? 0}`)
  async optional(order: Order, amount?: number) {}

  @DistributedLock((order: Order, amount: number | undefined) => `${order.id}:${amount ?? 0}`)
  async defaulted(order: Order, amount = 1) {}

  @DistributedLock((first: string, ...others: string[]) => [first, ...others])
  async rest(first: string, ...others: string[]) {}

  async overloaded(id: string): Promise<string>;
  async overloaded(id: number): Promise<number>;
  @DistributedLock((id: string | number) => `${id}`)
  async overloaded(id: string | number): Promise<string | number> {
    return id;
  }

  @DistributedLock((item: HasId) => item.id)
  async generic<G extends HasId>(item: G): Promise<G> {
    return item;
  }
  @DistributedLock((item: HasId) => item.id)
  async classTypeParameter(item: T): Promise<T> {
    return item;
  }
  @DistributedLock((item: HasId) => item.id)
  async withThis(this: Locked<T>, item: Order) {}

  @DistributedLock((id: string) => id)
  async [secret](id: string) {}

  @DistributedLock((id: string) => id)
  protected async protected(id: string) {}

  @DistributedLock((id: string) => id)
  private async private(id: string) {}

  @DistributedLock('a', { wait: 0, onBusy: ({ keys, args }) => `${keys.join()} ${args.length}` })
  async handled() {
    return 'ran';
  }

  @DistributedLock('a', {
    wait: 0,
    onBusy(this: Locked<HasId>, { args }: BusyContext) {
      return [this.answer, ...args];
    },
  })
  async handledWithThis() {}

  @DistributedLock('a', {
    onBusy: 'skip',
    onLost(this: Locked<HasId>, { error }: LossContext) {
      return this.answer(error);
    },
  })
  async skippedAndHandled(): Promise<number | undefined> {
    return 1;
  }
  @DistributedLock('a', { onLost: ({ error }) => error.reason })
  async lost() {}

  answer(error: unknown): unknown {
    return error;
  }

  @DistributedLock('#{request.params.id}', { around: 'request' })
  async request() {}

  @DistributedLock('order:#{order.id}', { signal: (order: Order, signal: AbortSignal) => signal })
  async cancelable(order: Order, signal: AbortSignal) {}

  @DistributedLock('order:#{order.id}', { signal: (order: HasId, signal?: AbortSignal) => signal })
  async maybeCancelable(order: Order, signal?: AbortSignal, amount = 1) {}

  @DistributedLock((order: HasId) => order.id, {
    signal: (order: Order, options: { signal: AbortSignal }) => options.signal,
  })
  async cancelableByOptions(order: Order, options: { signal: AbortSignal; amount: number }) {}

  @DistributedLock('a', { signal: (signal: AbortSignal) => signal })
  cancelableObservable(signal: AbortSignal): Observable<number> {
    return never;
  }
  @DistributedLock('a', { signal: () => AbortSignal.timeout(5_000) })
  async cancelableByTime() {}
}

/** Methods that cannot be locked. */
class Refused {
  // @ts-expect-error: synchronous
  @DistributedLock('a')
  sync(): number {
    return 1;
  }
  // @ts-expect-error: synchronous
  @DistributedLock('a')
  void(): void {}

  // @ts-expect-error: a synchronous generator
  @DistributedLock('a')
  *generator() {
    yield 1;
  }
  // @ts-expect-error: sometimes synchronous
  @DistributedLock('a')
  maybe(): number | Promise<number> {
    return 1;
  }
  // @ts-expect-error: a static method
  @DistributedLock('a')
  static async static() {}

  // @ts-expect-error: a static method
  @DistributedLock((id: string) => id, { onBusy: 'skip' })
  static async staticSkipping(id: string) {}

  // @ts-expect-error: a property
  @DistributedLock('a')
  property = async () => {};

  // @ts-expect-error: an accessor
  @DistributedLock('a')
  get accessor(): number {
    return 1;
  }
  // @ts-expect-error: an order has no number
  @DistributedLock((order: Order) => order.number)
  async missingProperty(order: Order) {}

  // @ts-expect-error: an amount is not a string
  @DistributedLock((order: Order) => order.amount)
  async wrongProperty(order: Order) {}

  // @ts-expect-error: a key cannot be undefined
  @DistributedLock((order?: Order) => order?.id)
  async undefinedKey(order?: Order) {}

  // @ts-expect-error: a key function must not return a promise
  @DistributedLock(async (order: Order) => order.id)
  async asyncKey(order: Order) {}

  // @ts-expect-error: the key function takes an order, but the method a string
  @DistributedLock((order: Order) => order.id)
  async otherParameter(id: string) {}

  // @ts-expect-error: there is no second parameter
  @DistributedLock((order: Order, amount: number) => `${order.id}:${amount}`)
  async tooFewParameters(order: Order) {}

  // @ts-expect-error: a call may omit it
  @DistributedLock((order: Order, amount: number) => `${order.id}:${amount}`)
  async optionalParameter(order: Order, amount?: number) {}

  // @ts-expect-error: the second parameter is a number
  @DistributedLock((order: Order, name: string) => name)
  async otherSecondParameter(order: Order, amount: number) {}

  // @ts-expect-error: a duration is a number or a string
  @DistributedLock('a', { wait: true })
  async wrongOption() {}

  // @ts-expect-error: the signal must come from the caller
  @DistributedLock('a', { signal: new AbortController().signal })
  async signal() {}

  // @ts-expect-error: an outer lock belongs to one call
  @DistributedLock('a', { within: null as unknown as import('../../lib/index.js').Lock })
  async within() {}

  // @ts-expect-error: an order is not a signal
  @DistributedLock('a', { signal: (order: Order) => order })
  async noSignal(order: Order) {}

  // @ts-expect-error: the first parameter is an order
  @DistributedLock('a', { signal: (signal: AbortSignal) => signal })
  async otherSignal(order: Order, signal: AbortSignal) {}

  // @ts-expect-error: the method has no second parameter
  @DistributedLock((order: Order) => order.id, { signal: (order: Order, signal: AbortSignal) => signal })
  async absentSignal(order: Order) {}

  // @ts-expect-error: a call may omit it
  @DistributedLock('a', { signal: (order: Order, options: { signal: AbortSignal }) => options.signal })
  async optionalSignal(order: Order, options?: { signal: AbortSignal }) {}

  // @ts-expect-error: unknown unit of a duration
  @DistributedLock('a', { wait: '5 parsecs' })
  async wrongUnit() {}

  // @ts-expect-error: a method cannot run without the lock
  @DistributedLock('a', { onBusy: 'run' })
  async unlocked() {}

  // @ts-expect-error: a key is a string
  @DistributedLock(42)
  async number() {}

  // @ts-expect-error: the key is missing
  @DistributedLock()
  async nothing() {}
}

// @ts-expect-error: a class is not a method
@DistributedLock('a')
class NoMethod {}

/** Methods whose skipped calls resolve to undefined. */
class Skipping {
  @DistributedLock('a', { onBusy: 'skip' })
  async void() {}

  @DistributedLock('#{order.id}', { onBusy: 'skip' })
  async undefined(order: Order): Promise<string | undefined> {
    return order.id;
  }
  @DistributedLock((order: Order) => order.id, { onBusy: 'skip', wait: '1s' })
  async unknown(order: Order): Promise<unknown> {
    return order;
  }
  @DistributedLock('a', { onBusy: 'skip' })
  any(): any {
    return never;
  }
  @DistributedLock('a', { onBusy: 'skip' })
  promiseLike(): PromiseLike<number | undefined> {
    return never;
  }
  @DistributedLock('a', { onBusy: 'skip' })
  observable(): Observable<number> {
    return never;
  }
  @DistributedLock('a', { onBusy: 'skip' })
  async *generator(): AsyncGenerator<number> {
    yield 1;
  }

  @Cron('0 3 * * *')
  @RunOnce('nightly', { minHold: '1m', maxHold: 60_000, provider: 'redis' })
  async job() {}
  @Cron('0 3 * * *')
  @RunOnce('nightly')
  async ticks() {}
  @Cron('0 3 * * *')
  @RunOnce('nightly', { catchUp: '6h', afterCrash: 2, maxHold: '1h', provider: 'redis' })
  async allOfTicks() {}
  @RunOnce('nightly', (config: { maxHold: string }) => ({ catchUp: '6h', maxHold: config.maxHold }))
  async configured() {}
  @RunOnce('nightly', (config: { minHold: string }) => ({ minHold: config.minHold }))
  async configuredToo() {}

  // @ts-expect-error: with minHold, no ticks are missed
  @RunOnce('nightly', { minHold: '1m', catchUp: '6h' })
  async missed() {}
  // @ts-expect-error: with minHold, no run is restarted
  @RunOnce('nightly', { minHold: '1m', afterCrash: 1 })
  async crashed() {}
  // @ts-expect-error: nor from the configuration
  @RunOnce('nightly', (_: object) => ({ minHold: '1m', catchUp: '6h' }))
  async configuredWrong() {}
  // @ts-expect-error: only runOnce() has this option
  @RunOnce('nightly', { due: new Date() })
  async due() {}

  // @ts-expect-error: a skipped call does not return a number
  @DistributedLock('a', { onBusy: 'skip' })
  async number(): Promise<number> {
    return 1;
  }
  // @ts-expect-error: a skipped call does not return a number
  @RunOnce('nightly', { minHold: 0 })
  async count() {
    return 1;
  }
  // @ts-expect-error: a skipped call does not return null either
  @DistributedLock((order: Order) => order.id, { onBusy: 'skip' })
  async null(order: Order): Promise<Order | null> {
    return order;
  }
  // @ts-expect-error: an order is not a string
  @DistributedLock((order: Order) => order.id, { onBusy: 'skip' })
  async otherParameter(id: string) {}

  @DistributedLock('a', { onBusy: 'skip', signal: (signal: AbortSignal) => signal })
  async cancelable(signal: AbortSignal) {}

  // @ts-expect-error: a string is not a signal
  @DistributedLock('a', { onBusy: 'skip', signal: (signal: AbortSignal) => signal })
  async otherSignal(id: string) {}

  // @ts-expect-error: synchronous
  @RunOnce('nightly', { minHold: 0 })
  sync() {}
}

@LockDefaults({ wait: '1s', provider: 'redis', maxHold: '1m' })
class WithDefaults {}

// @ts-expect-error: the mode is set per method
@LockDefaults({ mode: 'shared' })
class WithMode {}

/** Composed decorators. The compiler no longer checks what they decorate, only the decorator does at run time. */
const Composed = () =>
  applyDecorators(
    Get(),
    DistributedLock('a'),
    DistributedLock((order: Order) => order.id, { wait: 0 }),
    DistributedLock('a', { onBusy: 'skip' }),
    RunOnce('a', { minHold: 0 }),
    RunOnce('a'),
  );
class WithComposed {
  @Composed()
  async run() {}
}

/** Overrides that intentionally run without the inherited lock. */
class Unbound extends WithComposed {
  @Unlocked()
  override async run() {}

  @Unlocked()
  property = async (order: Order) => {};

  // @ts-expect-error: @Unlocked() takes no options
  @Unlocked('order')
  async withKey() {}

  // @ts-expect-error: static methods have no lock
  @Unlocked()
  static async static() {}
}

// @ts-expect-error: each override must be decorated
@Unlocked()
class WithUnlocked {}

/** Mistakes that the types don't catch, although they should. */
class Holes {
  // A key function may require a subtype of the method's parameter, although not every HasId is an Order.
  @DistributedLock((order: Order) => `${order.amount}`)
  async wider(order: HasId) {}

  // An accessor that returns a function looks like a method. The decorator rejects it at run time.
  @DistributedLock('a')
  get accessorOfFunction(): () => Promise<void> {
    return never;
  }
}

export { Holes, Locked, NoMethod, Refused, Skipping, Unbound, WithComposed, WithDefaults, WithMode, WithUnlocked };

/** A template requires no parameters, and a key function requires its own. */
expectTypeOf(DistributedLock('order')).toEqualTypeOf<LockDecorator>();

expectTypeOf(DistributedLock(['a', 'b'])).toEqualTypeOf<LockDecorator>();

expectTypeOf(DistributedLock((order: Order) => order.id)).toEqualTypeOf<LockDecorator<[order: Order]>>();

expectTypeOf(DistributedLock('order', { onBusy: 'skip' })).toEqualTypeOf<SkippableLockDecorator>();

expectTypeOf(DistributedLock((order: Order) => order.id, { onBusy: 'skip' })).toEqualTypeOf<
  SkippableLockDecorator<[order: Order]>
>();

expectTypeOf(RunOnce('job', { minHold: 0 })).toEqualTypeOf<SkippableLockDecorator>();

expectTypeOf(RunOnce('job')).toEqualTypeOf<SkippableLockDecorator>();

/** Usable wherever Nest expects a method decorator. */
expectTypeOf(DistributedLock('order')).toExtend<MethodDecorator>();
