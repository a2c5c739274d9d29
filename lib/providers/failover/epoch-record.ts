import type { ProviderSwitch, SwitchReason } from '../../api/failover-state.js';
/**
 * The record that all processes share: which member grants, and what processes report about the members. It is changed by
 * compare-and-set alone, so every version follows from the one before.
 *
 * While every process sees the same members as before, nothing in it changes: confirmations write what they found, so those of any
 * number of processes do not conflict. It changes at a switch, when a process starts or stops, and when a process sees a member fail or
 * answer again.
 */
export interface EpochRecord {
  /** Grows by one with every switch, permanently. */
  readonly epoch: number;
  /** Random for each epoch: a record that was deleted and begun again reaches the same epoch numbers. */
  readonly id: string;
  /** The member that grants locks in this epoch. */
  readonly active: string;
  /** A process has waited until all locks of earlier epochs have ended. */
  readonly settled: boolean;
  /** The longest window of any process that ever took part, in ms: a lock may be valid somewhere for that long. */
  readonly window: number;
  /** How many failbacks there were. Each doubles the time for which the preferred member stays away. */
  readonly failbacks: number;
  /** An operator has chosen the member, for a reason that no process can see: there is no failback from it. */
  readonly pinned: boolean;
  /** The latest switches, oldest first, for people. */
  readonly history: readonly ProviderSwitch[];
  /** Reports of processes, by a random id of each. The report of a process that crashed stays until the next count. */
  readonly reports: Readonly<Record<string, Report>>;
  /** Counts the counts: see {@link counting}. */
  readonly count: number;
  /** The latest count is complete. */
  readonly counted: boolean;
}

/** The report of one process. */
export interface Report {
  /** The members that do not answer the process. */
  readonly down: readonly string[];
  /** The latest count in which the process took part. */
  readonly count: number;
}

/**
 * - `failure`: the provider did not answer most processes.
 * - `failback`: a preferred provider has been stable again for long enough.
 * - `manual`: an operator called `switchTo`.
 */
// Enough to see what has happened lately, and little to write three times a window.
const HISTORY = 20;
// Bounds the record where processes crash again and again while no member fails, so that nobody counts.
const MOST_REPORTS = 1_000;

/**
 * The first record of an application. Not settled: where there is none, one may have been deleted, and locks that were
 * granted by it may still be held.
 */
export function firstRecord(active: string, window: number, id: string): EpochRecord {
  return {
    ...{ epoch: 1, id, active, settled: false, window, failbacks: 0, pinned: false, history: [] },
    ...{ reports: {}, count: 0, counted: true },
  };
}

/** The record after a switch. */
export function switched(
  record: EpochRecord,
  to: string,
  reason: SwitchReason,
  { id, at }: Pick<EpochRecord, 'id'> & Pick<ProviderSwitch, 'at'>,
): EpochRecord {
  const epoch = record.epoch + 1;
  return {
    ...record,
    epoch,
    id,
    active: to,
    settled: false,
    pinned: reason === 'manual',
    failbacks: record.failbacks + (reason === 'failback' ? 1 : 0),
    history: [...record.history, { epoch, from: record.active, to, reason, at }].slice(-HISTORY),
  };
}

/** The record with what `process` reports; the same object if nothing changes. */
export function reported(record: EpochRecord, process: string, down: readonly string[]): EpochRecord {
  const { count, reports } = record;
  const known = reports[process];
  if (known?.count === count && String(known.down) === String(down)) return record;
  const all = Object.entries({ ...reports, [process]: { down, count } });
  return { ...record, reports: Object.fromEntries(all.slice(-MOST_REPORTS)) };
}

/** The record without the report of a process that stops. */
export function unreported(record: EpochRecord, process: string): EpochRecord {
  const others = Object.entries(record.reports).filter(([id]) => id !== process);
  return { ...record, reports: Object.fromEntries(others) };
}

/**
 * Begins a count of the processes that are there, because the reports of crashed ones may outvote them. Each process takes part with
 * its next write. After a window, every process whose confirmation is valid has written, so the others are gone.
 */
export function counting(record: EpochRecord): EpochRecord {
  return { ...record, count: record.count + 1, counted: false };
}

/** Ends a count: the reports of processes that took no part are removed. */
export function countedUp(record: EpochRecord): EpochRecord {
  const present = Object.entries(record.reports).filter(([, { count }]) => count === record.count);
  return { ...record, reports: Object.fromEntries(present), counted: true };
}

/** `undefined` for a text that is no record. */
export function readRecord(text: string): EpochRecord | undefined {
  try {
    const record = JSON.parse(text) as Partial<EpochRecord> | null;
    return isRecord(record) ? record : undefined;
  } catch {
    return undefined;
  }
}

function isRecord(record: Partial<EpochRecord> | null): record is EpochRecord {
  const { epoch, history, reports } = record ?? {};
  if (!Number.isSafeInteger(epoch) || !Array.isArray(history) || !reports) return false;
  return Object.values(reports as Record<string, Partial<Report> | null>).every((each) => Array.isArray(each?.down));
}
