import { Injectable } from '@nestjs/common';
import { Reporter } from './reporter.js';

/**
 * When the script that started this process requests it, freezes an order while it holds the lock, like a task that
 * hangs. With several processes, this isn't needed, because the script stops a whole process.
 */
@Injectable()
export class Freezer {
  #isArmed = false;
  #resume = (): void => undefined;

  constructor(private readonly reporter: Reporter) {
    process.on('message', (message) => {
      if (message === 'freeze') this.#isArmed = true;
      if (message === 'resume') {
        this.#isArmed = false;
        this.#resume();
      }
    });
  }

  async pass(fencingToken: bigint | null): Promise<void> {
    if (!this.#isArmed) return;
    this.#isArmed = false;
    await new Promise<void>((resolve) => {
      this.#resume = resolve;
      this.reporter.report({ type: 'frozen', fencingToken });
    });
  }
}
