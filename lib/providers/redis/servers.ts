import type { Batcher, Operation } from './client/batcher.js';
import type { Ask } from './client/diagnostics.js';
import type { ServerClock } from './server-clock.js';

/** The servers of a backend: one, or the masters of a Cluster. Each lock is on one of them at a time. */
export interface Servers {
  readonly isCluster: boolean;
  /** Rejects when one of them cannot be reached, and keeps trying. */
  connect(): Promise<void>;
  /** Where operations on this lock are sent. */
  batcherOf(lock: string): Batcher;
  /** Sends an operation that keeps its lock held for `lease` ms: answered when as many replicas have it as the options ask for. */
  confirm(operation: Operation, lease: number): void;
  /** Where operations on this record are sent: answered when as many replicas have it as the options ask for. */
  recorderOf(record: string): Batcher;
  /** Where this process is notified about this lock. */
  channelOf(lock: string): string;
  clockOf(lock: string): ServerClock | undefined;
  /** A message about this lock was missed. */
  probe(lock: string): void;
  /** How to ask each of them, for diagnostics. */
  readonly asks: readonly Ask[];
  close(): Promise<void>;
}
