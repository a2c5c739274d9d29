import type { OperationArguments } from '../redis/client/batcher.js';
import { Code, NO_MS } from './lock-script.js';
import type { Votes } from './votes.js';

/** One operation on one lock, on its way to the nodes. */
export interface Command {
  readonly lock: string;
  readonly args: OperationArguments;
  /** The votes of the request that it is about. */
  readonly votes?: Votes | undefined;
  /** Whether a caller still waits for the outcome. Default true. A vote that no caller waits for is not sent. */
  readonly isOpen?: boolean;
  onReply?(reply: unknown, node: number): void;
  /** Called when there is no answer: the node is down, refuses, may not vote yet, or its connection was lost. */
  onFault?(cause: unknown): void;
}

/** Whether it makes a node vote. */
export function isVote({ args: [code] }: Command): boolean {
  return code === Code.vote || code === Code.voteAgain;
}

/** Whether it ends votes for good: a key that is to be retained stays locked by its vote instead where a node does not answer. */
export function isRelease({ args: [code, , ms] }: Command): boolean {
  return code === Code.cleanUp || (code === Code.release && ms === NO_MS);
}
