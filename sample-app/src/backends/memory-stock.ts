import { Injectable } from '@nestjs/common';
import { setTimeout as pause } from 'node:timers/promises';
import { Stock } from '../stock/stock.js';

/** Keeps the stock in this process, with the delay of a database. */
@Injectable()
export class MemoryStock extends Stock {
  readonly #left = new Map<string, number>();
  readonly #fence = new Map<string, bigint>();

  async read(item: string): Promise<number> {
    await pause(1);
    return this.#left.get(item) ?? 0;
  }

  async write(item: string, left: number, token: bigint | null): Promise<boolean> {
    await pause(1);
    if (token !== null) {
      if (token < (this.#fence.get(item) ?? 0n)) return false;
      this.#fence.set(item, token);
    }
    this.#left.set(item, left);
    return true;
  }
}
