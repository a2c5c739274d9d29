import type { LockInfo } from '../../api/lock-info.js';
import { NO_ROUND, NO_TOKEN, readShownVote, RETAINED, type ShownVote } from './lock-script.js';
import type { Nodes } from './nodes.js';
import type { Question } from './poll.js';

/**
 * Shows who has a majority of the votes; nothing when no holder has one.
 *
 * @throws LockUnavailableError when a majority does not answer
 */
export async function inspect(nodes: Nodes, key: string, lock: string): Promise<LockInfo | null> {
  const byHolder = new Map<string, ShownVote[]>();
  const question: Question = {
    lock,
    args: ['I', '', '0', NO_TOKEN, NO_ROUND],
    isYes: (reply) => {
      const vote = readShownVote(reply);
      if (!vote) return false;
      byHolder.set(vote.holder, [...(byHolder.get(vote.holder) ?? []), vote]);
      return true;
    },
  };
  const poll = nodes.poll(question, (answers) => {
    let most: readonly ShownVote[] = [];
    for (const votes of byHolder.values()) if (votes.length > most.length) most = votes;
    if (most.length >= answers.majority) return most;
    const isImpossible = most.length + answers.faults + answers.missing < answers.majority;
    if (isImpossible && !answers.isUnavailable) return 'none';
    if (!answers.isComplete) return undefined;
    return answers.isAnswered ? 'none' : 'unknown';
  });
  const votes = await poll.outcome;
  if (votes === 'unknown') throw nodes.unavailable(key, poll.cause);
  return votes === 'none' ? null : describe(key, votes, nodes.majority);
}

function describe(key: string, votes: readonly ShownVote[], majority: number): LockInfo {
  const left = votes.map((vote) => vote.left).sort((a, b) => b - a);
  const isRetained = votes[0]?.holder === RETAINED;
  return {
    key,
    state: isRetained ? 'retained' : 'held',
    mode: 'exclusive',
    holders: isRetained ? 0 : 1,
    waiters: null,
    expiresIn: left[majority - 1] ?? 0,
    fencingToken: votes.reduce((largest, { token }) => (token > largest ? token : largest), 0n),
  };
}
