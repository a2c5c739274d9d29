/**
 * What the processes of an application agree on, as it stands in the record. Changed by compare-and-set alone, so every
 * version of it follows from the one before. Nothing in it changes while nothing is switched: confirmations of many
 * processes do not get in each other's way.
 */
export interface SwitchRecord {
  /** Grows by one with every switch, for ever. */
  readonly epoch: number;
  /** Drawn for each epoch: another history, begun after a record was deleted, comes to the same numbers. */
  readonly id: string;
  /** The engine that grants locks in this epoch. */
  readonly active: string;
  /** Some process has waited until nobody can hold a lock of an earlier epoch any more. */
  readonly settled: boolean;
  /** The longest window of any process that ever took part, in ms: so long may locks be believed somewhere. */
  readonly window: number;
  /** How often the preferred engine was returned to: each time it has to stay away twice as long. */
  readonly returns: number;
  /** Somebody has chosen the engine by hand, and has a reason that no process knows: there is no return from it. */
  readonly pinned: boolean;
  /** The latest switches, oldest first, for people. */
  readonly history: readonly EngineSwitch[];
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

// Enough to see what has happened lately, and little to write several times a window.
const HISTORY = 20;

/** The switches with one more, without the oldest where there are too many. */
export function remember(history: readonly EngineSwitch[], latest: EngineSwitch): readonly EngineSwitch[] {
  return [...history, latest].slice(-HISTORY);
}

/**
 * The first record of an application. Not settled: where there is none, one may have been deleted, and locks that were
 * granted by it may still be held.
 */
export function firstRecord(active: string, window: number, id: string): SwitchRecord {
  return { epoch: 1, id, active, settled: false, window, returns: 0, pinned: false, history: [] };
}

/** The record after a switch. */
export function switched(
  record: SwitchRecord,
  to: string,
  reason: SwitchReason,
  { id, at }: Pick<SwitchRecord, 'id'> & Pick<EngineSwitch, 'at'>,
): SwitchRecord {
  const epoch = record.epoch + 1;
  return {
    ...record,
    epoch,
    id,
    active: to,
    settled: false,
    pinned: reason === 'manual',
    returns: record.returns + (reason === 'return' ? 1 : 0),
    history: remember(record.history, { epoch, from: record.active, to, reason, at }),
  };
}

export function writeRecord(record: SwitchRecord): string {
  return JSON.stringify(record);
}

/** `undefined` for a text that is no record. */
export function readRecord(text: string): SwitchRecord | undefined {
  try {
    const record = JSON.parse(text) as SwitchRecord | null;
    return Number.isSafeInteger(record?.epoch) && record?.history ? record : undefined;
  } catch {
    return undefined;
  }
}
