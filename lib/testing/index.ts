export { FakeClock } from './fake-clock.js';
export type { Obstacle } from '../provider-kit/case-definition.js';
export { conformanceCases, type ConformanceCase } from '../provider-kit/conformance-cases.js';
export { describeLockProvider, type TestRunner } from '../provider-kit/describe-lock-provider.js';
export type { ProviderBounds, ProviderFaults, ProviderHarness } from '../provider-kit/provider-harness.js';
export { DistributedLockTestingModule } from './distributed-lock-testing.module.js';
export { LockServiceStub, type LockServiceStubOptions, provideLockServiceStub } from './lock-service-stub.js';
export { TestLocks } from './test-locks.js';
