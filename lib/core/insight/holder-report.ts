import type { LockHolder } from '../../api/lock-holder.js';
import type { Holding } from '../../api/lock-provider.js';
import type { KeyRequest } from '../acquire/key-request.js';
import { excludes } from '../acquire/re-entry.js';
import type { Waiter } from '../acquire/waiter.js';
import type { ProviderCore } from '../provider-core.js';
import { answerOr } from '../toolkit/answer-or.js';

/** The holder of a key, as far as this process knows. */
export interface KnownHolding extends Holding {
  /** The method that holds it in this process, or `null`. */
  readonly method: string | null;
  /** This process holds it, by the queue that the caller came to. */
  readonly isHere: boolean;
}

/**
 * The holder that keeps the caller out, if it is known: the one of this process, or as the backend has seen it for the request. The backend counts
 * those that hold together, because it sees all of them.
 */
export function holderBeside(
  { queue, terms }: Waiter,
  core: ProviderCore,
  request = queue.request,
): KnownHolding | null {
  const instance = core.instance.name;
  const now = core.clock.now();
  let holders = 0;
  for (const each of queue.held) {
    const { mode } = each.request;
    if (!excludes(mode, terms.mode) || !each.isValid(now)) continue;
    holders += each.holderCount;
    const [alone] = mode === 'exclusive' ? each.holders : [];
    if (alone === undefined) continue;
    const { grantedAt, subject } = alone;
    return { holders, instance, since: grantedAt, seenAt: now, method: subject.method, isHere: true };
  }
  const isHere = holders > 0;
  const seen = request === undefined ? null : holderSeenFor(request, core);
  if (seen !== null) return { ...seen, method: null, isHere };
  if (!isHere) return null;
  return { holders, instance: holders > 1 ? null : instance, since: null, seenAt: now, method: null, isHere };
}

/** The holder that keeps the request out, as the backend last saw it. */
export function holderSeenFor(request: KeyRequest, { backend }: ProviderCore): Holding | null {
  return answerOr(null, () => backend.heldBy?.(request) ?? null);
}

/** The holder as the error of a busy lock and its event have it. */
export function lockHolder(
  { instance, method, since, holders }: KnownHolding,
  now: number,
  wallTime: number,
): LockHolder {
  return { instance, method, since: since === null ? null : new Date(wallTime - (now - since)), holders };
}

/**
 * The holder in words, for a caller that came at `startedAt`. To blame the last of many holders would mislead, so one that came after the caller is
 * named as such, and a look that is older than what it saw is no proof that the holder is still there.
 */
export function holderInWords(holding: KnownHolding, startedAt: number, now: number): string {
  const { holders, instance, method, since, seenAt } = holding;
  if (holders > 1) return `${holders} holders have it`;
  if (instance === null) return 'one holder has it';
  const name = `instance "${instance}"${method === null ? '' : ` (${method})`}`;
  const seenFor = since === null ? 0 : Math.max(0, seenAt - since);
  if (since !== null && since > startedAt)
    return `it went from holder to holder; now ${name} has held it for ${inWords(seenFor)}`;
  if (now - seenAt > Math.max(seenFor, JUST_NOW)) return `${name} held it ${inWords(now - seenAt)} ago`;
  return since === null ? `${name} has it` : `${name} has held it for ${inWords(now - since)}`;
}

// A look that is so old, in ms, has just been answered.
const JUST_NOW = 50;

function inWords(duration: number): string {
  const seconds = duration / 1_000;
  if (seconds < 1) return `${Math.round(duration)} ms`;
  if (seconds < 120) return `${Math.floor(seconds)} s`;
  return seconds < 7_200 ? `${Math.floor(seconds / 60)} min` : `${Math.floor(seconds / 3_600)} h`;
}
