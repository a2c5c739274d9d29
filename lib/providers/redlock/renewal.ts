import type { BackendContext, RenewOutcome } from '../../api/lock-provider.js';
import { validUntil } from '../../core/toolkit/validity.js';
import type { Attempt } from './attempt.js';
import { NO_ROUND, NO_TOKEN, tokenDigits, wholeMs } from './lock-script.js';
import type { Nodes } from './nodes.js';
import { agreement, type Question } from './poll.js';
import type { RedlockGrant } from './round.js';

/**
 * Renews one lock: a majority of the nodes has to extend votes that count. Decided as soon as a majority has answered for this lock,
 * whatever other nodes and other locks do. Only then, and only after a success, nodes that have lost the vote are asked for it again.
 */
export async function renew(
  context: BackendContext,
  nodes: Nodes,
  { lock, request, votes }: Attempt,
  { fencingToken, followers = 0, keptUntil }: RedlockGrant,
  lease: number,
): Promise<RenewOutcome> {
  const { id: holder } = request;
  const ms = wholeMs(Math.max(lease, keptUntil - context.clock.now()));
  const acknowledgedBefore = votes.acknowledged();
  // The nodes that have lost the vote, or never gave it.
  const missing: number[] = [];
  let hasSucceeded = false;

  const askAgain = (node: number): void => {
    // Sent behind the release, the vote would outlive it.
    if (votes.isReleased) return;
    const round = nodes.nextRound();
    const args = ['A', holder, ms, tokenDigits(Number(fencingToken) + followers), round] as const;
    const onReply = (reply: unknown) => {
      if (reply === 1) votes.acknowledge(node, round);
    };
    nodes.send({ lock, args, votes, only: node, onReply });
  };
  const question: Question = {
    lock,
    args: ['E', holder, ms, NO_TOKEN, NO_ROUND],
    votes,
    isYes: (reply, node) => {
      if (typeof reply !== 'string') {
        missing.push(node);
        return false;
      }
      votes.acknowledge(node, reply);
      return votes.counts(node, reply);
    },
    onLate: (reply, node) => {
      if (typeof reply === 'string') votes.acknowledge(node, reply);
      else if (hasSucceeded) askAgain(node);
      else missing.push(node);
    },
  };
  const poll = nodes.poll(question, agreement, lease);
  const outcome = await poll.outcome;
  if (outcome !== 'agreed') return outcome === 'refused' ? 'lost' : 'unknown';
  hasSucceeded = true;
  acknowledgedBefore.forEach((round, node) => {
    if (round !== undefined) votes.count(node, round);
  });
  missing.forEach(askAgain);
  return { validUntil: validUntil(poll.sentAt, lease) };
}
