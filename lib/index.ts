export {
  LockBusyError,
  LockCapacityError,
  LockConfigError,
  LockDeadlockError,
  LockError,
  type LockErrorDetails,
  LockKeyError,
  LockLostError,
  LockUnavailableError,
  type LossReason,
  type TaskOutcome,
} from './api/errors.js';
export type { DeadlockMember } from './api/deadlock.js';
export { type ConfiguredDuration, type Duration, duration } from './api/duration.js';
export type { Lock, LockJson, ReleaseResult, ReleaseSettings } from './api/lock.js';
export type { LockHolder } from './api/lock-holder.js';
export type { LockMode } from './api/lock-mode.js';
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
export type {
  HeldLock,
  JobState,
  Leader,
  ListedJob,
  ListOptions,
  LockContention,
  LockInfo,
  WaitingLock,
  WaitSum,
} from './api/lock-info.js';

export type { PurgeOptions } from './api/purge-options.js';
export type { LockKey } from './key/lock-key.js';
export type { KeyFunction } from './key/key-function.js';
export { lockKey } from './key/key-tag.js';
export type { KeyValue } from './key/key-value.js';

export { LockManager } from './core/lock-manager.js';
export type { LockManagerOptions } from './core/lock-manager-options.js';

export { type CurrentRun, currentRun } from './recipes/jobs/job.js';
export type { LeaderTerm } from './recipes/campaign.js';
export type { CampaignOptions, RunAsLeaderOptions } from './recipes/leadership.js';
export type { RunDueOptions, RunOnceOptions, RunOnceResult, RunTicksOptions } from './recipes/run-once.js';

export { MemoryStore } from './providers/memory/memory-store.js';
export { MemoryLockProvider, type MemoryLockProviderOptions } from './providers/memory/memory-lock-provider.js';

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
export type { LockDecorator, SkippableLockDecorator } from './nest/decorators/decorator-types.js';
export { DistributedLockModule } from './nest/module/distributed-lock.module.js';
export { OnlyLeader, type OnlyLeaderDecorator } from './nest/decorators/only-leader.decorator.js';
export { RunAsLeader, type RunAsLeaderDecorator } from './nest/decorators/run-as-leader.decorator.js';
export { LockAdmin } from './core/lock-admin.js';
export { Unlocked } from './nest/decorators/unlocked.decorator.js';
export type { Configurable } from './nest/methods/decorator-options.js';
export type { ClassLockDefaults } from './nest/methods/method-plan.js';
export { LockDefaults } from './nest/decorators/lock-defaults.decorator.js';
export { LockErrorFilter } from './nest/transports/lock-error.filter.js';
export { provideLockEventRelay } from './integrations/event-emitter/lock-event-relay.js';
export { LockRequestInterceptor } from './nest/transports/lock-request.interceptor.js';
export { LockService, type KeyContext } from './nest/service/lock.service.js';
export type { DistributedLockModuleOptions } from './nest/options/module-options.js';
export { LockGraphqlError } from './nest/transports/lock-graphql-error.js';
export { LockHttpException, type LockProblem } from './nest/transports/http-errors.js';
