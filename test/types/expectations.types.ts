// Compiled by `npm run typecheck`, never run.
import { expectTypeOf } from 'expect-type';
import type { Observable } from 'rxjs';
import {
  DistributedLock,
  type KeyFunction,
  LockFor,
  type LockDecorator,
  type LockKey,
  RunOnce,
  type SkippableLockDecorator,
} from '../../lib/index.js';

interface Order {
  id: string;
}
interface Orders {
  pay(order: Order, amount?: number): Promise<void>;
  watch(id: number): Observable<Order>;
  generic<T extends Order>(order: T): Promise<T>;
}

/** A template asks for no parameters, a function for its own. */
expectTypeOf(DistributedLock('order')).toEqualTypeOf<LockDecorator>();
expectTypeOf(DistributedLock(['a', 'b'])).toEqualTypeOf<LockDecorator>();
expectTypeOf(DistributedLock((order: Order) => order.id)).toEqualTypeOf<LockDecorator<[order: Order]>>();
expectTypeOf(DistributedLock('order', { onBusy: 'skip' })).toEqualTypeOf<SkippableLockDecorator>();
expectTypeOf(DistributedLock((order: Order) => order.id, { onBusy: 'skip' })).toEqualTypeOf<
  SkippableLockDecorator<[order: Order]>
>();
expectTypeOf(RunOnce('job', { minHold: 0 })).toEqualTypeOf<SkippableLockDecorator>();
expectTypeOf(RunOnce('job')).toEqualTypeOf<SkippableLockDecorator>();

/** It is a decorator of methods wherever Nest asks for one. */
expectTypeOf(DistributedLock('order')).toExtend<MethodDecorator>();

/** `LockFor` takes the parameters of the method, the optional ones as optional. */
const forPay = LockFor<Orders['pay']>((order, amount) => {
  expectTypeOf(order).toEqualTypeOf<Order>();
  expectTypeOf(amount).toEqualTypeOf<number | undefined>();
  return order.id;
});
expectTypeOf(forPay).toEqualTypeOf<KeyFunction<[order: Order, amount?: number]>>();
expectTypeOf(forPay).returns.toEqualTypeOf<LockKey>();
LockFor<Orders['watch']>((id) => {
  expectTypeOf(id).toEqualTypeOf<number>();
  return `${id}`;
});
LockFor<Orders['generic']>((order) => {
  expectTypeOf(order).toExtend<Order>();
  return order.id;
});
