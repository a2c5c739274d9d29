// Compiled by `npm run typecheck`, never run.
import { expectTypeOf } from 'expect-type';
import {
  DistributedLockTestingModule,
  type DistributedLockTestingModuleOptions,
  TestLocks,
  type TestLocksOptions,
} from '../../lib/testing/index.js';

// The testing module takes the options of the module, and those of TestLocks.
DistributedLockTestingModule.forRoot({ namespace: 'test', detectDeadlocks: true });
DistributedLockTestingModule.forRoot({ detectDeadlocks: undefined });
// @ts-expect-error: no text is true or false
DistributedLockTestingModule.forRoot({ detectDeadlocks: 'true' });
// @ts-expect-error: no such option
DistributedLockTestingModule.forRoot({ detectDeadlock: true });

new TestLocks();
new TestLocks({ detectDeadlocks: false });
// @ts-expect-error: an option of the module
new TestLocks({ namespace: 'test' });

expectTypeOf<DistributedLockTestingModuleOptions>().toExtend<TestLocksOptions>();
expectTypeOf<TestLocksOptions['detectDeadlocks']>().toEqualTypeOf<boolean | undefined>();
