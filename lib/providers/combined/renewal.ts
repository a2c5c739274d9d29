import type { Clock, Member, Renewal, RenewOutcome, Timer } from '../../engine/lock-provider.js';
import { type Holding, leastOfBest } from './holding.js';
import { isHeld, type Part } from './part.js';

// How long those that are renewed are told late, for the sake of those that need an engine that has not answered yet: of the
// time that they still have. After a renewal in time that is a sixth of the lease, 5 s of 30 s, and more than a command may take.
const PATIENCE = 0.25;

/** A holding to prolong to `lease` ms from now. */
export interface HoldingRenewal {
  readonly holding: Holding | undefined;
  readonly lease: number;
}

/** The renewal of one holding, as far as its engines have answered. */
interface Count {
  readonly holding: Holding | undefined;
  /** The parts that were renewed. */
  readonly renewed: Part[];
  /** How many engines have not answered. */
  awaited: number;
}

/** What one engine is asked to renew. */
type Batch = { readonly part: Part; readonly count: Count; readonly renewal: Renewal }[];

/**
 * Renews all parts of all holdings with one call to each engine. Answers as soon as it is known of each holding whether it is
 * renewed in enough engines; for those that need one that is silent only while the others have time to wait for it. What that one
 * says later counts for its parts. Nothing is left to renew of a holding that is `undefined`.
 */
export function renewAll(renewals: readonly HoldingRenewal[], clock: Clock): Promise<RenewOutcome[]> {
  const batches = new Map<Member, Batch>();
  const counts = renewals.map(({ holding, lease }): Count => {
    const count: Count = { holding, renewed: [], awaited: 0 };
    holding?.renewing(lease);
    for (const part of holding?.parts ?? []) {
      if (!isHeld(part)) continue;
      const batch = batches.get(part.engine) ?? [];
      batch.push({ part, count, renewal: { grant: part.grant, lease } });
      batches.set(part.engine, batch);
      count.awaited += 1;
    }
    return count;
  });
  return new Promise((resolve) => {
    let patience: Timer | undefined;
    let isAnswered = false;
    const answer = () => {
      isAnswered = true;
      resolve(counts.map(outcomeOf));
    };
    const look = () => {
      if (isAnswered) return;
      if (patience) clock.clearTimer(patience);
      if (counts.every(isDecided)) answer();
      else if (counts.some(isRenewed)) patience = clock.setTimer(answer, PATIENCE * timeLeft(counts, clock.now()));
    };
    for (const [engine, batch] of batches) void renewBatch(engine, batch).then(look);
    look();
  });
}

async function renewBatch(engine: Member, batch: Batch): Promise<void> {
  let outcomes: readonly RenewOutcome[] = [];
  try {
    outcomes = await engine.renew(batch.map(({ renewal }) => renewal));
  } catch {
    // An engine that fails has not answered.
  }
  for (const [index, { part, count }] of batch.entries()) {
    const outcome = outcomes[index] ?? 'unknown';
    count.holding?.renewed(part, outcome);
    count.awaited -= 1;
    if (typeof outcome === 'object') count.renewed.push(part);
  }
}

/** Until when the parts are valid that were renewed, and not lost since. */
function endsOf({ renewed }: Count): number[] {
  return renewed.filter(isHeld).map(({ validUntil }) => validUntil);
}

function isRenewed(count: Count): boolean {
  return count.holding !== undefined && endsOf(count).length >= count.holding.needed;
}

function isDecided(count: Count): boolean {
  return count.awaited === 0 || isRenewed(count) || !count.holding?.isGranted;
}

/** How long those that are renewed are still valid by what their holders were told. */
function timeLeft(counts: readonly Count[], now: number): number {
  let least = Infinity;
  for (const count of counts) if (isRenewed(count)) least = Math.min(least, count.holding?.toldUntil ?? Infinity);
  return Math.max(least - now, 0);
}

function outcomeOf(count: Count): RenewOutcome {
  const { holding } = count;
  if (!holding?.isGranted) return 'lost';
  return isRenewed(count) ? { validUntil: holding.told(leastOfBest(endsOf(count), holding.needed)) } : 'unknown';
}
