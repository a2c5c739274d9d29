import type { LockMode } from '../../api/lock-mode.js';

/** A caller that waits for a key while its owner holds others, as its process publishes it. */
export interface PublishedWait {
  /** Never used twice. */
  readonly id: string;
  readonly key: string;
  readonly mode: LockMode;
  /** When it was published first, by the clock of the server, in ms since 1970. */
  readonly since: number;
  readonly instance: string;
  readonly method: string | null;
}

/** A grant that keeps a caller out, and for what its holder waits. */
export interface WaitLink {
  /** The id of the grant. */
  readonly grant: string;
  readonly mode: LockMode;
  readonly wait: PublishedWait;
  /** How often the process of the holder had published it when it was read. */
  readonly beat: number;
}

/**
 * The cycle in which `start` waits for itself and of which it is the victim: the last one is its own wait, beside a grant of its own. `undefined` if there
 * is none, also where it only waits for callers that are in a cycle without it.
 *
 * Depth first. All that wait for a key in one mode wait for the same holders, so each key is followed once for a mode: one that is on the path, or from which the
 * search has come back, leads to no other cycle. Waits that are later than `start` are not followed, because in a cycle with one of these another caller is
 * the victim.
 *
 * @param linksOf the holders of a key that wait for other keys
 */
export function findCycle(
  start: PublishedWait,
  linksOf: (key: string) => readonly WaitLink[],
): readonly WaitLink[] | undefined {
  const path: WaitLink[] = [];
  const followed = new Set<string>();
  const leadsBack = (from: PublishedWait): boolean => {
    const place = `${from.mode} ${from.key}`;
    if (followed.has(place)) return false;
    followed.add(place);
    for (const link of linksOf(from.key)) {
      if (!keepsOut(link, from) || isLater(link.wait, start)) continue;
      path.push(link);
      if (link.wait.id === start.id || leadsBack(link.wait)) return true;
      path.pop();
    }
    return false;
  };
  return leadsBack(start) ? path : undefined;
}

/** Whether the victim of a cycle of both is rather this one. */
export function isLater(one: PublishedWait, other: PublishedWait): boolean {
  return one.since === other.since ? one.id > other.id : one.since > other.since;
}

/** Whether the caller waits until the holder has released. */
function keepsOut({ mode }: Pick<WaitLink, 'mode'>, wait: Pick<PublishedWait, 'mode'>): boolean {
  if (mode === 'limited' || wait.mode === 'limited') return false;
  return mode === 'exclusive' || wait.mode === 'exclusive';
}
