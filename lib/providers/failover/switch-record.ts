/**
 * What the processes of an application agree on, as it stands in the record. Changed by compare-and-set alone, so every
 * version of it follows from the one before.
 */
export interface SwitchRecord {
  /** Grows by one with every switch, for ever. */
  readonly epoch: number;
  /** The engine that grants locks in this epoch. */
  readonly active: string;
  /** Some process has waited until nobody can hold a lock of an earlier epoch any more. */
  readonly settled: boolean;
  /** How often the preferred engine was returned to: each time it has to stay away twice as long. */
  readonly returns: number;
  /** The latest switches, oldest first, for people. */
  readonly history: readonly EngineSwitch[];
  /** Who takes part, by a random name that a process has for its life. */
  readonly processes: Readonly<Record<string, ProcessReport>>;
}

/** One change of the engine that grants locks. */
export interface EngineSwitch {
  readonly epoch: number;
  readonly from: string;
  readonly to: string;
  readonly reason: SwitchReason;
  /** By the wall clock of the process that switched, in ms since the Unix epoch. For people. */
  readonly at: number;
}

/**
 * - `failure`: the engine did not answer most processes.
 * - `return`: the preferred engine has been stable again for long enough.
 * - `manual`: somebody called `switchTo`.
 */
export type SwitchReason = 'failure' | 'return' | 'manual';

/** What one process says. */
export interface ProcessReport {
  /** Counts its writes, so that others see by their own clocks whether it is still there. */
  readonly beat: number;
  /** The engines that do not answer it. */
  readonly down: readonly string[];
}

// Enough to see what has happened lately; the record is written several times a second.
const HISTORY = 20;

/** The switches with one more, without the oldest where there are too many. */
export function remember(history: readonly EngineSwitch[], latest: EngineSwitch): readonly EngineSwitch[] {
  return [...history, latest].slice(-HISTORY);
}

/** The record of an application that never switched. Nobody can hold a lock of an epoch before the first. */
export function firstRecord(active: string): SwitchRecord {
  return { epoch: 1, active, settled: true, returns: 0, history: [], processes: {} };
}

/** The record after a switch. */
export function switched(record: SwitchRecord, to: string, reason: SwitchReason, at: number): SwitchRecord {
  const epoch = record.epoch + 1;
  return {
    ...record,
    epoch,
    active: to,
    settled: false,
    returns: record.returns + (reason === 'return' ? 1 : 0),
    history: remember(record.history, { epoch, from: record.active, to, reason, at }),
  };
}

export function writeRecord(record: SwitchRecord): string {
  return JSON.stringify(record);
}

export function readRecord(text: string): SwitchRecord {
  return JSON.parse(text) as SwitchRecord;
}
