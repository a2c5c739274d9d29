export { CombinedLockProvider, type CombinedLockProviderOptions } from './providers/combined/combined-lock-provider.js';
export { FailoverLockProvider } from './providers/failover/failover-lock-provider.js';
export type { FailoverLockProviderOptions } from './providers/failover/failover-options.js';
export type { FailoverState, ProviderState, ProviderSwitch, SwitchReason } from './api/failover-state.js';
