import type { OperationArguments } from './lock-script.js';
import type { Votes } from './votes.js';

/** One operation on one lock, on its way to the nodes. */
export interface Command {
  readonly lock: string;
  readonly args: OperationArguments;
  /** The votes of the attempt that it is about. */
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
export function isVote({ args: [code] }: Command): boolean {
  return code === 'V' || code === 'A';
}

/** The arguments of one script call with these commands. */
export function callOf(counter: string, commands: readonly Command[]): string[] {
  const keys = [counter];
  const values: string[] = [];
  for (const { lock, args } of commands) {
    keys.push(lock);
    values.push(...args);
  }
  return [String(keys.length), ...keys, ...values];
}
