export { FakeClock } from './fake-clock.js';
export type { Obstacle } from './conformance/case-definition.js';
export { conformanceCases, type ConformanceCase } from './conformance/conformance-cases.js';
export { describeLockProvider, type TestRunner } from './conformance/describe-lock-provider.js';
export type { ProviderBounds, ProviderFaults, ProviderHarness } from './conformance/provider-harness.js';
export { DistributedLockTestingModule } from './nest/distributed-lock-testing.module.js';
export { LockServiceStub, type LockServiceStubOptions, provideLockServiceStub } from './nest/lock-service-stub.js';
export { TestLocks } from './nest/test-locks.js';
