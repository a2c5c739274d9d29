import type { Clock } from '../../api/clock.js';
import type { LockLogger } from '../../api/logger.js';
import type { KeyLayout } from './key-layout.js';
import type { Operation } from './operation.js';
import type { ServerClock } from './server-clock.js';

/** The servers behind a session: one, or the masters of a Cluster. Each lock lives on one of them at a time. */
export interface Servers {
  readonly isCluster: boolean;
  /** Rejects when one of them cannot be reached; goes on trying all the same. */
  connect(): Promise<void>;
  add(operation: Operation): void;
  /** As {@link add}, for what keeps a lock held: answered when as many replicas have it as was asked for. */
  confirm(operation: Operation, lease: number): void;
  isReachable(lock: string): boolean;
  clockOf(lock: string): ServerClock | undefined;
  /** A message about this lock was missed. */
  probe(lock: string): void;
  /** How to ask each of them, for the doctor. */
  readonly asks: readonly Ask[];
  close(): Promise<void>;
}

export type Ask = (command: string, ...args: string[]) => Promise<unknown>;

/** What the servers tell a session unasked. */
export interface ServersListener {
  /** One of them can be asked: for the first time, again, or in the place of another. */
  readonly onUp: () => void;
  readonly onDown: (cause: unknown) => void;
  /** Messages arrive again; some may have been missed. */
  readonly onListening: () => void;
  readonly onNotice: (notice: string, sentAt: number | undefined) => void;
}

/** What all servers of a session have in common. */
export interface ServersContext {
  readonly clock: Clock;
  readonly logger: LockLogger;
  readonly layout: KeyLayout;
  /** How this process is called in the queues and on its channels. */
  readonly process: string;
  /** How long a server may be silent, in ms. */
  readonly patience: number;
  readonly waitReplicas: number;
}

export type OpenServers = (context: ServersContext, listener: ServersListener) => Servers;
