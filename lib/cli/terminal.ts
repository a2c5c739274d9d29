import { once } from 'node:events';
import { createInterface } from 'node:readline';
import type { ReadStream, WriteStream } from 'node:tty';
import { styleText } from 'node:util';
import type { LockLogger } from '../api/logger.js';
import { printable } from '../api/printable.js';
import { monotonicNow } from '../core/toolkit/real-timers.js';

type Style = Parameters<typeof styleText>[0];

/** How long a list must take before progress is shown, in ms. */
const PROGRESS_AFTER = 500;
/** How often to update the progress, in ms. */
const PROGRESS_EVERY = 200;
const CLEAR_LINE = '\r\u001b[K';

/** Terminal I/O: results go to `stdout`, everything else to `stderr`. */
export class Terminal implements LockLogger {
  #startedAt: number | undefined;
  #shownAt = 0;

  constructor(
    private readonly stdin: ReadStream = process.stdin,
    private readonly stdout: WriteStream = process.stdout,
    private readonly stderr: WriteStream = process.stderr,
    private readonly environment: NodeJS.ProcessEnv = process.env,
  ) {
    // The process reading the pipe, such as `head`, has exited.
    stdout.on('error', (error: NodeJS.ErrnoException) => {
      if (error.code !== 'EPIPE') throw error;
      process.exit();
    });
  }

  /** Whether the user can answer a prompt. */
  get isInteractive(): boolean {
    return this.stdin.isTTY && this.stderr.isTTY;
  }

  /** Prints a result. Resolves when the stream accepts more data. */
  async print(text: string): Promise<void> {
    this.clearProgress();
    if (!this.stdout.write(text)) await once(this.stdout, 'drain');
  }

  /** Prints a message that is not part of the result. */
  say(line: string): void {
    this.clearProgress();
    this.stderr.write(`${line.split('\n').map(printable).join('\n')}\n`);
  }

  /** Prints a result as one line of JSON. JSON doesn't escape all terminal control characters, so `printable` does. */
  printJson(value: unknown): Promise<void> {
    return this.print(`${printable(JSON.stringify(value))}\n`);
  }

  /** Colors text if `stdout` supports colors. */
  paint(style: Style, text: string): string {
    const { TERM, NO_COLOR } = this.environment;
    return this.stdout.isTTY && TERM !== 'dumb' && !NO_COLOR ? styleText(style, text) : text;
  }

  /** Shows how many rows have been read if reading takes a while. */
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

  /** Asks a yes/no question. Anything but `y` or `yes`, including Ctrl-C and Ctrl-D, means no. */
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
    // Debug output is useless on a terminal.
  }

  warn(message: string): void {
    this.say(`warning: ${message}`);
  }

  error(message: string): void {
    this.say(`error: ${message}`);
  }
}
