import { once } from 'node:events';
import { createInterface } from 'node:readline';
import type { ReadStream, WriteStream } from 'node:tty';
import { styleText } from 'node:util';
import type { LockLogger } from '../api/logger.js';
import { printable } from '../api/printable.js';
import { monotonicNow } from '../core/toolkit/real-timers.js';

type Style = Parameters<typeof styleText>[0];

/** Shorter lists show no progress, in ms. */
const PROGRESS_AFTER = 500;
/** How often the progress changes, in ms. */
const PROGRESS_EVERY = 200;
const CLEAR_LINE = '\r\u001b[K';

/** The streams of this process: answers go to `stdout`, all else to `stderr`. */
export class Terminal implements LockLogger {
  #startedAt: number | undefined;
  #shownAt = 0;

  constructor(
    private readonly stdin: ReadStream = process.stdin,
    private readonly stdout: WriteStream = process.stdout,
    private readonly stderr: WriteStream = process.stderr,
    private readonly environment: NodeJS.ProcessEnv = process.env,
  ) {
    // The reader of a pipe has seen enough, such as `head`.
    stdout.on('error', (error: NodeJS.ErrnoException) => {
      if (error.code !== 'EPIPE') throw error;
      process.exit();
    });
  }

  /** Whether somebody can be asked. */
  get isInteractive(): boolean {
    return this.stdin.isTTY && this.stderr.isTTY;
  }

  /** Resolves when the reader has room for more. */
  async print(text: string): Promise<void> {
    this.clearProgress();
    if (!this.stdout.write(text)) await once(this.stdout, 'drain');
  }

  /** To people, beside the answer. */
  say(line: string): void {
    this.clearProgress();
    this.stderr.write(`${line.split('\n').map(printable).join('\n')}\n`);
  }

  /** An answer for programs, on one line. JSON itself leaves some characters that a terminal obeys. */
  printJson(value: unknown): Promise<void> {
    return this.print(`${printable(JSON.stringify(value))}\n`);
  }

  /** Colors a text that is printed as an answer. */
  paint(style: Style, text: string): string {
    const { TERM, NO_COLOR } = this.environment;
    return this.stdout.isTTY && TERM !== 'dumb' && !NO_COLOR ? styleText(style, text) : text;
  }

  /** Shows how many rows were read, if that takes long. */
  progress(count: number, noun: string): void {
    const now = monotonicNow();
    this.#startedAt ??= now;
    if (!this.stderr.isTTY || now - this.#startedAt < PROGRESS_AFTER || now - this.#shownAt < PROGRESS_EVERY) return;
    this.#shownAt = now;
    this.stderr.write(`${CLEAR_LINE}${count} ${noun} …`);
  }

  clearProgress(): void {
    if (this.#shownAt === 0) return;
    this.#shownAt = 0;
    this.stderr.write(CLEAR_LINE);
  }

  /** Asks a question that is answered with `y` or `yes`; anything else, Ctrl-C and Ctrl-D mean no. */
  confirm(question: string): Promise<boolean> {
    return new Promise((resolve) => {
      const lines = createInterface({ input: this.stdin, output: this.stderr });
      const end = () => {
        lines.close();
      };
      lines.on('SIGINT', end);
      lines.once('close', () => {
        resolve(false);
      });
      lines.question(question, (answer) => {
        resolve(/^y(es)?$/i.test(answer.trim()));
        end();
      });
    });
  }

  debug(): void {
    // Of no use at a prompt.
  }

  warn(message: string): void {
    this.say(`warning: ${message}`);
  }

  error(message: string): void {
    this.say(`error: ${message}`);
  }
}
