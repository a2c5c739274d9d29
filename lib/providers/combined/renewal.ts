import type { RenewOutcome } from '../../api/lock-provider.js';
import { type Holding, leastOfBest } from './holding.js';
import { type HeldPart, isHeld } from './part.js';

/**
 * Prolongs all parts of a holding to `lease` ms from now, in all engines at the same time. Answers as soon as enough engines have
 * renewed theirs, or the holding is lost; what another engine answers later still counts for its part.
 */
export async function renewHolding(holding: Holding, lease: number): Promise<RenewOutcome> {
  holding.renewing(lease);
  const parts = holding.parts.filter(isHeld);
  const renewed: HeldPart[] = [];
  const isRenewed = () => renewed.filter(isHeld).length >= holding.needed;
  await new Promise<void>((resolve) => {
    let awaited = parts.length;
    const look = () => {
      if (awaited === 0 || isRenewed() || !holding.isGranted) resolve();
    };
    for (const part of parts) {
      void renewPart(part, lease).then((outcome) => {
        holding.renewed(part, outcome);
        if (typeof outcome === 'object') renewed.push(part);
        awaited -= 1;
        look();
      });
    }
    look();
  });
  if (!holding.isGranted) return 'lost';
  if (!isRenewed()) return 'unknown';
  const ends = renewed.filter(isHeld).map(({ validUntil }) => validUntil);
  return { validUntil: holding.told(leastOfBest(ends, holding.needed)) };
}

async function renewPart({ engine, grant }: HeldPart, lease: number): Promise<RenewOutcome> {
  try {
    return await engine.renew(grant, lease);
  } catch {
    // An engine that fails has not answered.
    return 'unknown';
  }
}
