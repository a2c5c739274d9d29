export * from './lock/errors.js';
export type { Duration } from './lock/duration.js';
export type { Lock, ReleaseResult } from './lock/lock.js';
export type { LockDefaults as LockDefaultOptions, LockMode, LockOptions, LossPolicy } from './lock/lock-options.js';
export type { LockEvent, LockEventListener, LockEventMap, LockEventName, LockEvents } from './lock/lock-events.js';
export type { AcquireTrace, HoldTrace } from './lock/lock-traces.js';
export type { HeldLock, LockInfo, WaitingLock } from './lock/lock-info.js';

export type { LockKey } from './key/lock-key.js';
export { LockFor, type KeyFunction } from './key/key-function.js';
export { lockKey } from './key/key-tag.js';
export type { KeyValue } from './key/key-value.js';

export { LockManager } from './engine/lock-manager.js';
export type { LockManagerOptions } from './engine/lock-manager-options.js';
export { systemClock } from './engine/clock.js';
export { validUntil } from './engine/lock-provider.js';
export type {
  AcquireRequest,
  Answer,
  Clock,
  CompositeProvider,
  Finding,
  Grant,
  Holder,
  LockCapabilities,
  LockLogger,
  LockProvider,
  Member,
  ProviderContext,
  ProviderEvent,
  Random,
  Records,
  ReleaseManner,
  ReleaseOutcome,
  Uncommitted,
  RenewOutcome,
  Timer,
} from './engine/lock-provider.js';

export { FailoverProvider } from './providers/failover/failover-provider.js';
export type { FailoverProviderOptions } from './providers/failover/failover-options.js';
export type { FailoverState } from './providers/failover/failover.js';
export type { EngineState } from './providers/failover/engine-health.js';
export type { EngineSwitch, SwitchReason } from './providers/failover/switch-record.js';

export { LockTable } from './providers/memory/lock-table.js';
export { MemoryLockProvider, type MemoryLockProviderOptions } from './providers/memory/memory-lock-provider.js';
export type { CombinedProviderOptions } from './providers/combined/combined-options.js';
export { CombinedProvider } from './providers/combined/combined-provider.js';

export { currentLock } from './nest/current-lock.js';
export type { BusyContext, DistributedLockOptions } from './nest/distributed-lock-options.js';
export {
  DistributedLock,
  RunOnce,
  type LockableResult,
  type LockDecorator,
  type RunOnceOptions,
  type SkippableLockDecorator,
} from './nest/distributed-lock.decorator.js';
export { DistributedLockModule } from './nest/distributed-lock.module.js';
export { getLockServiceToken, InjectLockService } from './nest/inject-lock-service.decorator.js';
export { LockAdmin } from './nest/lock-admin.js';
export { LockDefaults, type ClassLockDefaults } from './nest/lock-defaults.decorator.js';
export { LockErrorFilter } from './nest/lock-error.filter.js';
export { provideLockEventRelay, type LockEventTarget } from './nest/lock-event-relay.js';
export { LockInterceptor } from './nest/lock.interceptor.js';
export { LockService, type KeyContext } from './nest/lock.service.js';
export type {
  DistributedLockModuleExtras,
  DistributedLockModuleOptions,
  DistributedLockOptionsFactory,
} from './nest/module-options.js';
export { LockGraphqlError, type LockErrorExtensions } from './nest/transports/graphql/lock-graphql-error.js';
export {
  LockHttpException,
  type HttpLockStatuses,
  type LockProblem,
} from './nest/transports/http/lock-http-exception.js';
