/** Where the shop keeps how many of an item are left. Reading and writing are two steps, as with any remote store. */
export abstract class Stock {
  abstract read(item: string): Promise<number>;

  /** Writes, and answers true; but refuses a fencing token that is smaller than one it has seen, and answers false. */
  abstract write(item: string, left: number, token: bigint | null): Promise<boolean>;
}
