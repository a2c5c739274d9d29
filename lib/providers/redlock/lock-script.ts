import { type OperationArguments, scriptOf } from '../redis/client/batcher.js';
import TEXT from './lock-script.lua.js';

/** The script that runs the operations described in lock-script.lua on a node. */
export const LOCK_SCRIPT = scriptOf(TEXT);

/** The operation codes, described in lock-script.lua. */
export const Code = {
  vote: 'V',
  writeToken: 'W',
  restoreVote: 'A',
  extend: 'E',
  release: 'R',
  cleanUp: 'C',
  show: 'I',
  forceRelease: 'F',
} as const;

const TOKEN_DIGITS = 16;
const ROUND_DIGITS = 12;

export const NO_TOKEN = '0'.repeat(TOKEN_DIGITS);
/** The duration argument for an operation that doesn't need one. */
export const NO_MS = '0';
/** A retained key's holder. */
export const RETAINED = '-'.repeat(32);
const HOLDER_DIGITS = RETAINED.length;

/** The holder in an operation's arguments. */
export function holderOf([, vote]: OperationArguments): string {
  return vote.slice(0, HOLDER_DIGITS);
}

/** The round of the vote that an operation requests. */
export function roundOf([, vote]: OperationArguments): string {
  return vote.slice(HOLDER_DIGITS + TOKEN_DIGITS, HOLDER_DIGITS + TOKEN_DIGITS + ROUND_DIGITS);
}

export function tokenDigits(token: number): string {
  return String(token).padStart(TOKEN_DIGITS, '0');
}

export function roundDigits(round: number): string {
  return String(round).padStart(ROUND_DIGITS, '0');
}

/** A node's vote for us. Tokens stay below 2^53 until the year 2255, so they fit in a number. */
export interface Vote {
  /** The token in the vote; 0 until one is agreed on. */
  readonly written: number;
  /** The smallest token that the node would accept. */
  readonly least: number;
  /** Whether the node has a counter, and thus knows the tokens granted earlier. */
  readonly remembers: boolean;
  /** Milliseconds until the vote expires. */
  readonly left: number;
}

// Valid replies: 0 or 1, a vote, a vote's round, or the reply to `I`.
const ANSWER = /^(?:[01]|[+?]\d{32}\d{1,15}|\d{12}|[^]{32}\d{16}-?\d{1,15})$/;

/** Whether the reply is well-formed. If not, it counts as a node fault: a parser that threw would crash the process. */
export function isAnswer(reply: unknown): boolean {
  return (typeof reply === 'number' || typeof reply === 'string') && ANSWER.test(String(reply));
}

/** Reads a reply to `V` other than 0 or 1. */
export function readVote(reply: string): Vote {
  return {
    written: Number(reply.slice(1, 1 + TOKEN_DIGITS)),
    least: Number(reply.slice(1 + TOKEN_DIGITS, 1 + 2 * TOKEN_DIGITS)),
    remembers: reply.startsWith('+'),
    left: Number(reply.slice(1 + 2 * TOKEN_DIGITS)),
  };
}

/**
 * A vote, as returned by `I`. The holder's id must not leave the backend, because anyone who knows it can release the
 * lock.
 */
export interface ShownVote {
  readonly holder: string;
  readonly token: bigint;
  readonly left: number;
}

export function readShownVote(reply: unknown): ShownVote | undefined {
  if (typeof reply !== 'string') return undefined;
  return {
    holder: reply.slice(0, HOLDER_DIGITS),
    token: BigInt(reply.slice(HOLDER_DIGITS, HOLDER_DIGITS + TOKEN_DIGITS)),
    left: Number(reply.slice(HOLDER_DIGITS + TOKEN_DIGITS)),
  };
}
