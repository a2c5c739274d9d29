import type { DeadlockMember } from '../../api/deadlock.js';
import type { LockMode } from '../../api/lock-mode.js';

/** A wait for a key by a caller that holds other locks, as published by its process. */
export interface PublishedWait {
  /** Never reused. */
  readonly id: string;
  readonly key: string;
  readonly mode: LockMode;
  /** When the wait was first published, by the server's clock, in ms since 1970. */
  readonly since: number;
  readonly instance: string;
  readonly method: string | null;
}

/** A grant that blocks a caller, and what that grant's holder is waiting for. */
export interface WaitLink {
  /** The grant's id. */
  readonly grant: string;
  readonly mode: LockMode;
  readonly wait: PublishedWait;
  /** How many records the holder's process had published when this one was read. */
  readonly beat: number;
}

/** Returns a key's holders that are waiting for other keys. */
export type LinksOf = (key: string) => readonly WaitLink[];

/**
 * Finds a cycle in which `start` is the victim, that is, the latest wait. The cycle's last link is `start` itself,
 * with one of its own grants. Returns `undefined` if there is no such cycle, even if `start` waits for callers that are
 * in a cycle without it.
 *
 * The search is depth first. All callers that wait for a key in the same mode wait for the same holders, so the search
 * visits each key only once per mode: neither a key on the current path nor one that was already searched can lead to
 * another cycle. It ignores waits later than `start`, because a cycle that includes one has a different victim.
 */
export function findCycle(start: PublishedWait, linksOf: LinksOf): readonly WaitLink[] | undefined {
  const path: WaitLink[] = [];
  const visited = new Set<string>();
  const leadsBack = (from: PublishedWait): boolean => {
    const node = `${from.mode} ${from.key}`;
    if (visited.has(node)) return false;
    visited.add(node);
    for (const link of linksOf(from.key)) {
      if (!blocks(link, from) || isLater(link.wait, start)) continue;
      path.push(link);
      if (link.wait.id === start.id || leadsBack(link.wait)) return true;
      path.pop();
    }
    return false;
  };
  return leadsBack(start) ? path : undefined;
}

/** Whether `one` was published later, which makes it the victim in a cycle with `other`. */
export function isLater(one: PublishedWait, other: PublishedWait): boolean {
  return one.since === other.since ? one.id > other.id : one.since > other.since;
}

/** Whether the caller must wait for the holder to release the key. */
function blocks({ mode }: Pick<WaitLink, 'mode'>, wait: Pick<PublishedWait, 'mode'>): boolean {
  if (mode === 'limited' || wait.mode === 'limited') return false;
  return mode === 'exclusive' || wait.mode === 'exclusive';
}

/** The beats of a cycle's processes; `undefined` if the cycle no longer exists. */
export function beatsOf(
  start: PublishedWait,
  cycle: readonly WaitLink[],
  linksOf: LinksOf,
): readonly number[] | undefined {
  let from = start;
  const beats: number[] = [];
  for (const { grant, wait } of cycle) {
    const now = linksOf(from.key).find((link) => link.grant === grant && link.wait.id === wait.id);
    if (now === undefined) return undefined;
    beats.push(now.beat);
    from = wait;
  }
  return beats;
}

/**
 * A cycle as reported to its victim, who comes first.
 *
 * @param held the victim's key that blocks another member of the cycle
 */
export function membersOf(held: string, cycle: readonly WaitLink[]): readonly DeadlockMember[] {
  const own = cycle.at(-1)?.wait;
  let wanted = own?.key ?? '';
  const members: DeadlockMember[] = own ? [memberOf(own, held)] : [];
  for (const { wait } of cycle.slice(0, -1)) {
    members.push(memberOf(wait, wanted));
    wanted = wait.key;
  }
  return members;
}

function memberOf({ instance, method, key, mode }: PublishedWait, holds: string): DeadlockMember {
  return { instance, method, holds, waitsFor: key, mode };
}
