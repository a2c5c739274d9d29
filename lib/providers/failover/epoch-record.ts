import type { ProviderSwitch, SwitchReason } from '../../api/failover-state.js';
/**
 * The record shared by all processes: which member is active, and what the processes report about the members. It
 * changes only by compare-and-set, so each version follows from the previous one.
 *
 * As long as no process sees a member fail or recover, the record stays the same. Confirmations write back what they
 * found, so any number of processes can confirm without conflicts. The record changes at a switch, when a process
 * starts or stops, and when a process sees a member fail or recover.
 */
export interface EpochRecord {
  /** Incremented by every switch, never reset. */
  readonly epoch: number;
  /** Random for each epoch, because a deleted and recreated record reuses epoch numbers. */
  readonly id: string;
  /** The member that grants locks in this epoch. */
  readonly active: string;
  /** Whether a process has waited until all locks from earlier epochs had ended. */
  readonly settled: boolean;
  /**
   * The longest window, in ms, of any process that has ever taken part: a lock may be valid somewhere for that long.
   */
  readonly window: number;
  /** The number of failbacks. Each one doubles the time that the preferred member stays unused after a switch. */
  readonly failbacks: number;
  /** Whether an operator chose the active member. The processes don't know why, so this prevents failback. */
  readonly pinned: boolean;
  /** The latest switches, oldest first. */
  readonly history: readonly ProviderSwitch[];
  /** Reports, keyed by a random id per process. A crashed process's report stays until the next roll call. */
  readonly reports: Readonly<Record<string, Report>>;
  /** The number of roll calls: see {@link counting}. */
  readonly count: number;
  /** Whether the latest roll call is complete. */
  readonly counted: boolean;
}

/** One process's report. */
export interface Report {
  /** The members that don't respond to the process. */
  readonly down: readonly string[];
  /** The latest roll call that the process answered. */
  readonly count: number;
}

// Enough history for operators, but small enough to write three times per window.
const HISTORY = 20;
// Limits the record's size if processes keep crashing but no member fails, so no roll call starts.
const MOST_REPORTS = 1_000;

/**
 * The initial record. It isn't settled: an earlier record may have been deleted, and locks granted under it may still
 * be held.
 */
export function firstRecord(active: string, window: number, id: string): EpochRecord {
  return {
    ...{ epoch: 1, id, active, settled: false, window, failbacks: 0, pinned: false, history: [] },
    ...{ reports: {}, count: 0, counted: true },
  };
}

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

/** Adds the report of `process`. Returns the same object if nothing changes. */
export function reported(record: EpochRecord, process: string, down: readonly string[]): EpochRecord {
  const { count, reports } = record;
  const known = reports[process];
  if (known?.count === count && String(known.down) === String(down)) return record;
  const all = Object.entries({ ...reports, [process]: { down, count } });
  return { ...record, reports: Object.fromEntries(all.slice(-MOST_REPORTS)) };
}

/** Removes a stopping process's report. */
export function unreported(record: EpochRecord, process: string): EpochRecord {
  const others = Object.entries(record.reports).filter(([id]) => id !== process);
  return { ...record, reports: Object.fromEntries(others) };
}

/**
 * Starts a roll call of the processes, because crashed processes' reports could outvote live ones. Each process answers
 * with its next write. After one window, every process with a valid confirmation has written, so any others are gone.
 */
export function counting(record: EpochRecord): EpochRecord {
  return { ...record, count: record.count + 1, counted: false };
}

/** Completes a roll call by removing the reports of processes that didn't answer. */
export function countedUp(record: EpochRecord): EpochRecord {
  const present = Object.entries(record.reports).filter(([, { count }]) => count === record.count);
  return { ...record, reports: Object.fromEntries(present), counted: true };
}

/** Parses a record; undefined if the text is invalid. */
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
