/** Adds `amount` to the balance of account 1 through this client, and returns the previous balance. */
export function depositByDrizzle(type: 'mariadb' | 'postgres', client: object, amount: number): Promise<number>;
/** Writes this balance unless a larger token has written. Resolves to whether it wrote. */
export function fencedWriteByDrizzle(client: object, balance: number, fence: bigint): Promise<boolean>;
