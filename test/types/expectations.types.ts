// Compiled by `npm run typecheck`, never run.
import { expectTypeOf } from 'expect-type';
import { DistributedLock, type LockDecorator, RunOnce, type SkippableLockDecorator } from '../../lib/index.js';

interface Order {
  id: string;
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
