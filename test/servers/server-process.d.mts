import type { ChildProcess, SpawnOptions } from 'node:child_process';

/** How a server shows that it is up: it is sent `hello`, and its first bytes must match `answer`. */
export interface Greeting {
  readonly hello: string | Buffer;
  readonly answer: RegExp;
  /** 127.0.0.1 unless noted otherwise. */
  readonly address?: string;
}

export interface Launched {
  readonly process: ChildProcess;
  /** The last 4 000 characters that it has said. */
  readonly output: string;
  /** Why it has ended. */
  readonly failure: Error | undefined;
}

/** Starts a program that ends with this process at the latest, and keeps the end of what it says. */
export function launch(program: string, args: readonly string[], options?: SpawnOptions): Launched;

/** A file of an installed server by its path below `/`: below the folder LOCK_TEST_ROOT if that has it. */
export function installed(path: string): string;

/** The first of these programs below LOCK_TEST_ROOT, or else the name of the last one, for the PATH. */
export function programOf(...names: string[]): string;

/** Waits until the server that `launch` has started greets on `port`, for at most `within` ms. Default: 20 s. */
export function ready(child: Launched, port: number, greeting: Greeting, within?: number): Promise<void>;

/** Whether the server on `port` greets. */
export function answers(port: number, greeting: Greeting): Promise<boolean>;

/** Ends the process, unless it has ended, and waits for that. */
export function end(child: ChildProcess, signal: NodeJS.Signals): Promise<void>;

/** A port of the loopback interface on which nobody listens now. */
export function freePort(): Promise<number>;
