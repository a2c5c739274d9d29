import type { Member, Renewal, RenewOutcome } from '../../engine/lock-provider.js';
import { type Holding, isHeld, leastOfBest, type Part } from './holding.js';

/** A holding to prolong to `lease` ms from now. */
export interface HoldingRenewal {
  readonly holding: Holding | undefined;
  readonly lease: number;
}

/** The renewal of one holding, as far as its engines have answered. */
interface Count {
  readonly holding: Holding | undefined;
  /** Until when the parts are valid that were renewed. */
  readonly ends: number[];
}

/** What one engine is asked to renew. */
type Batch = { readonly part: Part; readonly count: Count; readonly renewal: Renewal }[];

/**
 * Renews all parts of all holdings with one call to each engine, and answers as soon as each holding is renewed in enough
 * engines: one that is down delays only those that need it. Nothing is left to renew of a holding that is `undefined`.
 */
export function renewAll(renewals: readonly HoldingRenewal[]): Promise<RenewOutcome[]> {
  const batches = new Map<Member, Batch>();
  const counts = renewals.map(({ holding, lease }): Count => {
    const count = { holding, ends: [] };
    for (const part of holding?.parts ?? []) {
      if (!isHeld(part)) continue;
      const batch = batches.get(part.engine) ?? [];
      batch.push({ part, count, renewal: { grant: part.grant, lease } });
      batches.set(part.engine, batch);
    }
    return count;
  });
  return new Promise((resolve) => {
    const look = () => {
      if (counts.every(isRenewed)) resolve(counts.map(outcomeOf));
    };
    const answers = [...batches].map(([engine, batch]) => renewBatch(engine, batch).then(look));
    void Promise.all(answers).then(() => {
      resolve(counts.map(outcomeOf));
    });
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
    if (typeof outcome === 'object') count.ends.push(outcome.validUntil);
  }
}

function isRenewed({ holding, ends }: Count): boolean {
  return holding !== undefined && ends.length >= holding.needed;
}

function outcomeOf(count: Count): RenewOutcome {
  const { holding, ends } = count;
  if (!holding?.isGranted) return 'lost';
  return isRenewed(count) ? { validUntil: holding.told(leastOfBest(ends, holding.needed)) } : 'unknown';
}
