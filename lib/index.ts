export * from './api/errors.js';
export type { DeadlockMember } from './api/deadlock.js';
export { type ConfiguredDuration, type Duration, duration } from './api/duration.js';
export type { Lock, LockJson, ReleaseResult, ReleaseSettings } from './api/lock.js';
export type { LockHolder } from './api/lock-holder.js';
export type { LimitShare, LockMode } from './api/lock-mode.js';
export type { LockDefaults as LockDefaultOptions, LockOptions, LossPolicy, ReleasePolicy } from './api/lock-options.js';
export type {
  LockEvent,
  LockEventListener,
  LockEventMap,
  LockEventName,
  LockEvents,
  ResignReason,
  SkipReason,
  TickEvent,
} from './api/lock-events.js';
export type { AcquireTrace, ContentionTrace, HolderLabel, HoldTrace, JobTrace } from './api/lock-traces.js';
export type {
  HeldLock,
  JobState,
  Leader,
  ListedJob,
  ListedLock,
  ListOptions,
  LockContention,
  LockInfo,
  WaitingLock,
  WaitSum,
} from './api/lock-info.js';

export type { LockKey } from './key/lock-key.js';
export { LockFor, type KeyFunction } from './key/key-function.js';
export { lockKey } from './key/key-tag.js';
export type { KeyValue } from './key/key-value.js';

export { LockManager } from './core/lock-manager.js';
export type { LockManagerOptions } from './core/lock-manager-options.js';
export type { LockBackend, LockProvider } from './api/lock-provider.js';
export type { LockLogger } from './api/logger.js';

export type { LeaderTask, LeaderTerm } from './recipes/leader-term.js';
export type { CampaignOptions, RunAsLeaderOptions } from './recipes/leadership.js';
export type { RunDueOptions, RunOnceOptions, RunOnceResult, RunTicksOptions } from './recipes/run-once.js';

export { FailoverLockProvider } from './providers/failover/failover-lock-provider.js';
export type { FailoverLockProviderOptions } from './providers/failover/failover-options.js';
export { FailoverBackend, type FailoverState } from './providers/failover/failover-backend.js';
export type { ProviderState } from './providers/failover/member-health.js';
export type { ProviderSwitch, SwitchReason } from './providers/failover/epoch-record.js';

export { MemoryStore } from './providers/memory/memory-store.js';
export { MemoryLockProvider, type MemoryLockProviderOptions } from './providers/memory/memory-lock-provider.js';
export { CombinedLockProvider, type CombinedLockProviderOptions } from './providers/combined/combined-lock-provider.js';

export { currentLock } from './nest/service/current-lock.js';
export type {
  BusyContext,
  BusyHandler,
  DistributedLockOptions,
  LossContext,
  LossHandler,
} from './nest/methods/distributed-lock-options.js';
export { DistributedLock } from './nest/decorators/distributed-lock.decorator.js';
export { RunOnce } from './nest/decorators/run-once.decorator.js';
export type { LockableResult, LockDecorator, SkippableLockDecorator } from './nest/decorators/decorator-types.js';
export { DistributedLockModule } from './nest/module/distributed-lock.module.js';
export {
  OnlyLeader,
  type OnlyLeaderDecorator,
  type OnlyLeaderOptions,
} from './nest/decorators/only-leader.decorator.js';
export { RunAsLeader, type RunAsLeaderDecorator } from './nest/decorators/run-as-leader.decorator.js';
export { LockAdmin, type BackendClass } from './core/lock-admin.js';
export { Unlocked, type UnlockedDecorator } from './nest/decorators/unlocked.decorator.js';
export type { Configurable, FromConfig } from './nest/methods/decorator-options.js';
export { LockDefaults } from './nest/decorators/lock-defaults.decorator.js';
export type { ClassLockDefaults } from './nest/methods/class-defaults.js';
export { LockErrorFilter } from './nest/transports/lock-error.filter.js';
export { provideLockEventRelay, type LockEventTarget } from './integrations/event-emitter/lock-event-relay.js';
export { LockInterceptor } from './nest/transports/lock.interceptor.js';
export { LockService, type KeyContext } from './nest/service/lock.service.js';
export type { DistributedLockModuleOptions, DistributedLockOptionsFactory } from './nest/options/module-options.js';
export { LockGraphqlError, type LockErrorExtensions } from './nest/transports/graphql/lock-graphql-error.js';
export { LockHttpException, type LockProblem } from './nest/transports/http/lock-http-exception.js';
