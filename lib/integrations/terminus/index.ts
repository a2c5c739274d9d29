export { LockHealthIndicator, type LockPingOptions } from './lock-health.indicator.js';
