export {
  type LeaderCheckOptions,
  type LeaderHealth,
  LeaderHealthIndicator,
  type LeaderHealthOptions,
} from './leader-health.indicator.js';
export { LockHealthIndicator, type LockPingOptions } from './lock-health.indicator.js';
