export {
  DistributedLockInstrumentation,
  type DistributedLockInstrumentationConfig,
} from './distributed-lock-instrumentation.js';
