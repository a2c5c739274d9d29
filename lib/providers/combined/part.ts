import type { Grant, Holder, Member, ReleaseManner, ReleaseOutcome } from '../../api/lock-provider.js';

/** How that is given back which was never used. */
export const UNUSED: ReleaseManner = { keepFor: 0, failed: true };

/** What one holder has in one engine, or asks for, under an id that only this engine gets. */
export interface Part {
  readonly engine: Member;
  readonly holder: Holder;
  /** What the engine has granted, as it came: it is what the engine is given back. Missing until then. */
  grant: Grant | undefined;
  /** Until when it is held, on the monotonic clock; in the past if it is not held, or counts no more. */
  validUntil: number;
  /** Until when the engine may have it if it does not confirm its release, on the monotonic clock; for ever until one is sent. */
  overAt: number;
  /** The release that is under way; resolves to whether it was answered. */
  release: Promise<boolean> | undefined;
  /** Why the engine has not answered, if it has not. */
  failure: unknown;
}

export type HeldPart = Part & { readonly grant: Grant };

/** One that is about to be asked for. */
export function newPart(engine: Member, holder: Holder): Part {
  const nothing = { grant: undefined, release: undefined, failure: undefined };
  return { engine, holder, validUntil: -Infinity, overAt: Infinity, ...nothing };
}

/** Whether the engine has granted it and, as far as is known, has not taken it back. */
export function isHeld(part: Part): part is HeldPart {
  return part.grant !== undefined && part.validUntil > -Infinity;
}

/** An engine that fails has not answered. */
export async function releasePart({ engine, holder, grant }: Part, manner: ReleaseManner): Promise<ReleaseOutcome> {
  try {
    // Who cannot park lets go at once.
    const keepFor = engine.capabilities.minHold ? manner.keepFor : 0;
    return await engine.release(grant ?? holder, { ...manner, keepFor });
  } catch {
    return 'unknown';
  }
}
