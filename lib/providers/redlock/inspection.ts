import type { LockInfo } from '../../api/lock-info.js';
import type { Instance } from '../../api/lock-provider.js';
import { nameOrIdOf } from '../../core/toolkit/instance-ids.js';
import { Code, NO_MS, readShownVote, RETAINED, type ShownVote } from './lock-script.js';
import type { RedlockNodes } from './nodes.js';
import { Poll } from './poll.js';

type Shown = readonly ShownVote[] | 'none' | 'unknown';

/** Finds the holder with a majority of the votes. */
class Inspection extends Poll<Shown> {
  readonly #byHolder = new Map<string, ShownVote[]>();

  constructor(nodes: RedlockNodes, lock: string) {
    super(nodes, lock, [Code.show, '', NO_MS]);
  }

  decide(): Shown | undefined {
    let most: readonly ShownVote[] = [];
    for (const votes of this.#byHolder.values()) if (votes.length > most.length) most = votes;
    const { majority } = this.nodes;
    if (most.length >= majority) return most;
    const isImpossible = most.length + this.faults + this.missing < majority;
    if (isImpossible && !this.isUnavailable) return 'none';
    if (!this.isComplete) return undefined;
    return this.isAnswered ? 'none' : 'unknown';
  }

  protected override isYes(reply: unknown): boolean {
    const vote = readShownVote(reply);
    if (!vote) return false;
    this.#byHolder.set(vote.holder, [...(this.#byHolder.get(vote.holder) ?? []), vote]);
    return true;
  }
}

/**
 * Reports the holder with a majority of the votes; `null` if there is none.
 *
 * @throws LockUnavailableError if no majority responds
 */
export async function inspect(
  nodes: RedlockNodes,
  key: string,
  lock: string,
  instance: Instance,
): Promise<LockInfo | null> {
  const inspection = new Inspection(nodes, lock);
  const votes = await inspection.start();
  if (votes === 'unknown') throw nodes.unavailable(key, inspection);
  return votes === 'none' ? null : describe(key, votes, nodes.majority, instance);
}

function describe(key: string, votes: readonly ShownVote[], majority: number, instance: Instance): LockInfo {
  const left = votes.map((vote) => vote.left).sort((a, b) => b - a);
  const holder = votes[0]?.holder ?? RETAINED;
  const isRetained = holder === RETAINED;
  return {
    key,
    state: isRetained ? 'retained' : 'held',
    mode: 'exclusive',
    holders: isRetained ? 0 : 1,
    waiters: null,
    expiresIn: left[majority - 1] ?? 0,
    fencingToken: votes.reduce((largest, { token }) => (token > largest ? token : largest), 0n),
    instances: isRetained ? [] : [nameOrIdOf(holder, instance)],
    since: null,
  };
}
