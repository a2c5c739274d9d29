export {
  DistributedLockInstrumentation,
  type DistributedLockInstrumentationConfig,
} from './distributed-lock-instrumentation.js';
export type { AcquireTrace, ContentionTrace, HolderLabel, HoldTrace, JobTrace } from '../../api/lock-traces.js';
