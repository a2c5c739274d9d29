/** Where the shop keeps how many of an item are left. Reading and writing are two steps, as with any remote store. */
export abstract class Stock {
  abstract read(item: string): Promise<number>;
  abstract write(item: string, left: number): Promise<void>;
}
