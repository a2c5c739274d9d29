import type { ChildProcess, SpawnOptions } from 'node:child_process';

/** How to detect that a server is up: it's sent `hello`, and the start of its response must match `answer`. */
export interface Greeting {
  readonly hello: string | Buffer;
  readonly answer: RegExp;
  /** 127.0.0.1 by default. */
  readonly address?: string;
}

export interface Launched {
  readonly process: ChildProcess;
  /** The last 4,000 characters of output. */
  readonly output: string;
  /** Why the process ended. */
  readonly failure: Error | undefined;
}

/** Starts a program, keeps the end of its output, and kills it at the latest when this process exits. */
export function launch(program: string, args: readonly string[], options?: SpawnOptions): Launched;

/**
 * Resolves a file of an installed server by its path relative to `/`, preferring LOCK_TEST_ROOT if it contains the
 * file.
 */
export function installed(path: string): string;

/** Returns the first of these programs found in LOCK_TEST_ROOT, or else the last name, for the PATH. */
export function programOf(...names: string[]): string;

/** Waits until the server started by `launch` is up on `port`, for at most `within` ms. Default: 50 s. */
export function ready(child: Launched, port: number, greeting: Greeting, within?: number): Promise<void>;

/** Whether the server on `port` is up. */
export function answers(port: number, greeting: Greeting): Promise<boolean>;

/** Ends the process if it's still running, and waits for its exit. */
export function end(child: ChildProcess, signal: NodeJS.Signals): Promise<void>;

/** Returns an unused port on the loopback interface. */
export function freePort(): Promise<number>;
