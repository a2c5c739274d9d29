import type { LockHolder } from '../../api/lock-holder.js';
import type { Holding } from '../../api/lock-provider.js';
import type { KeyRequest } from '../acquire/key-request.js';
import { excludes } from '../acquire/re-entry.js';
import type { Waiter } from '../acquire/waiter.js';
import type { ProviderCore } from '../provider-core.js';
import { answerOr } from '../toolkit/answer-or.js';

/** The holder of a key, as far as this process knows. */
export interface KnownHolding extends Holding {
  /** The method that holds the key in this process, or `null`. */
  readonly method: string | null;
  /** Whether the holder belongs to this process and to the caller's queue. */
  readonly isHere: boolean;
}

/**
 * The holder that blocks the caller, if known: an exclusive holder in this process, or the one that the backend
 * last saw. For shared and limited locks, the backend's count comes first, because it includes other processes.
 */
export function blockingHolder(
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

/** The holder that blocks the request, as the backend last saw it. */
export function holderSeenFor(request: KeyRequest, { backend }: ProviderCore): Holding | null {
  return answerOr(null, () => backend.heldBy?.(request) ?? null);
}

/** Converts a holder to the form used in errors and events. */
export function lockHolder(
  { instance, method, since, holders }: KnownHolding,
  now: number,
  wallTime: number,
): LockHolder {
  return { instance, method, since: since === null ? null : new Date(wallTime - (now - since)), holders };
}

/**
 * Describes the holder to a caller that arrived at `startedAt`. Blaming the last of many holders would be misleading,
 * so the text mentions a holder that arrived after the caller. It also mentions an old observation, because the holder
 * may be gone.
 */
export function holderInWords(holding: KnownHolding, startedAt: number, now: number): string {
  const { holders, instance, method, since, seenAt } = holding;
  if (holders > 1) return `${holders} holders have it`;
  if (instance === null) return 'one holder has it';
  const name = `instance "${instance}"${method === null ? '' : ` (${method})`}`;
  const seenFor = since === null ? 0 : Math.max(0, seenAt - since);
  if ((since ?? 0) > startedAt + RECENT_MS) return `it changed hands; ${name} has now held it for ${inWords(seenFor)}`;
  if (now - seenAt > Math.max(seenFor, RECENT_MS)) return `${name} held it ${inWords(now - seenAt)} ago`;
  return since === null ? `${name} has it` : `${name} has held it for ${inWords(now - since)}`;
}

// An observation no older than this counts as current, and a holder that came this soon after the caller may have come
// before it: its time is an estimate from the server's clock.
const RECENT_MS = 50;

function inWords(duration: number): string {
  const seconds = duration / 1_000;
  if (seconds < 1) return `${Math.round(duration)} ms`;
  if (seconds < 120) return `${Math.floor(seconds)} s`;
  return seconds < 7_200 ? `${Math.floor(seconds / 60)} min` : `${Math.floor(seconds / 3_600)} h`;
}
