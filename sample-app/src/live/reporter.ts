import { Injectable } from '@nestjs/common';
import { LockAdmin, LockService } from 'nestjs-distributed-lock';

const EVENTS = ['acquired', 'released', 'release-pending', 'lost'] as const;
const LOAD_INTERVAL = 200;

/** On request, reports lock and stock events of this process to the script that started it. */
@Injectable()
export class Reporter {
  #isWatched = false;
  #wasBusy = false;

  constructor(
    private readonly locks: LockService,
    private readonly admin: LockAdmin,
  ) {
    process.on('message', (message) => {
      if (message === 'watch' && !this.#isWatched) this.#watch();
    });
  }

  report(report: object): void {
    if (!this.#isWatched) return;
    // JSON cannot represent a fencing token (bigint).
    process.send?.(JSON.stringify(report, (_, value: unknown) => (typeof value === 'bigint' ? String(value) : value)));
  }

  #watch(): void {
    this.#isWatched = true;
    for (const type of EVENTS) {
      this.locks.events.on(type, (event) => {
        this.report({ type, ...event });
      });
    }
    setInterval(() => void this.#reportLoad(), LOAD_INTERVAL).unref();
  }

  /** Reports how many callers wait in this process, and the remaining lease on the backend. */
  async #reportLoad(): Promise<void> {
    const waiting = this.admin.waiting();
    const [busy] = [...this.admin.held(), ...waiting];
    if (busy || this.#wasBusy) {
      const expiresIn = busy ? await this.#expiresIn(busy.key) : null;
      this.report({ type: 'load', waiting: waiting.length, expiresIn });
    }
    this.#wasBusy = busy !== undefined;
  }

  async #expiresIn(key: string): Promise<number | null> {
    try {
      return (await this.admin.inspect(key))?.expiresIn ?? null;
    } catch {
      // SQL row locks cannot be inspected.
      return null;
    }
  }
}
