/** Stores how many of each item are left. Reading and writing are two steps, as with any remote store. */
export abstract class Stock {
  abstract read(item: string): Promise<number>;

  /** Writes the stock and returns true, or returns false if the fencing token is smaller than an earlier one. */
  abstract write(item: string, left: number, token: bigint | null): Promise<boolean>;
}
