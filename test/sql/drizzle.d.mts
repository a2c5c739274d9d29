/** Adds `amount` to the balance of account 1 through this client, and answers what it was. */
export function depositByDrizzle(type: 'mariadb' | 'postgres', client: object, amount: number): Promise<number>;
