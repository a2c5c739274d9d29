import { Code, LOCK_SCRIPT_SHA, type OperationArguments } from './lock-script.js';
import type { Votes } from './votes.js';

/** One operation on one lock, on its way to the nodes. */
export interface Command {
  readonly lock: string;
  readonly args: OperationArguments;
  /** The votes of the request that it is about. */
  readonly votes?: Votes | undefined;
  /** The number of the only node that it is for. Default: all nodes. */
  readonly only?: number;
  /** Whether a caller still waits for the outcome. Default false. */
  readonly isOpen?: boolean;
  /** Called before the first node gets it, with the time on the monotonic clock. */
  onSent?(at: number): void;
  onReply?(reply: unknown, node: number): void;
  /** Called when there is no answer: the node is down, refuses, may not vote yet, or its connection was lost. */
  onFault?(cause: unknown): void;
}

/** Whether it makes a node vote. */
export function isVote({ args: [operation] }: Command): boolean {
  const code = operation[0];
  return code === Code.vote || code === Code.voteAgain;
}

/** Whether it ends votes for good: a key that is to be retained stays locked by its vote instead where a node does not answer. */
export function isRelease({ args: [operation] }: Command): boolean {
  return operation === `${Code.release}0` || operation === Code.cleanUp;
}

/** The arguments of one script call with these commands. */
export function callOf(counter: string, commands: readonly Command[], script = LOCK_SCRIPT_SHA): string[] {
  const call = [script, ''];
  let needsCounter = false;
  for (const command of commands) {
    call.push(command.lock);
    needsCounter ||= isVote(command) || command.args[0] === Code.writeToken;
  }
  if (needsCounter) call.push(counter);
  call[1] = String(call.length - 2);
  for (const { args } of commands) call.push(args[0], args[1]);
  return call;
}
