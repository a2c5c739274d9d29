export { FakeClock } from './fake-clock.js';
export {
  DistributedLockTestingModule,
  type DistributedLockTestingModuleOptions,
} from './distributed-lock-testing.module.js';
export {
  LockServiceStub,
  type LockServiceStubOptions,
  provideLockServiceStub,
  type StubCall,
} from './lock-service-stub.js';
export { TestLocks, type TestLocksOptions } from './test-locks.js';
