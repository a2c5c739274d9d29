export { FakeClock } from './fake-clock.js';
export { DistributedLockTestingModule } from './distributed-lock-testing.module.js';
export {
  LockServiceStub,
  type LockServiceStubOptions,
  provideLockServiceStub,
  type StubCall,
} from './lock-service-stub.js';
export { TestLocks } from './test-locks.js';
