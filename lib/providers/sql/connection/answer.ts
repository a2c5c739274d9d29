/** Runs one statement with bound values. Resolves to its rows, or to the driver's summary if it has none. */
export type Run = (sql: string, parameters?: readonly unknown[]) => Promise<unknown>;

export type Row = Readonly<Record<string, unknown>>;

/** An answer's first row, if there is one. */
export function firstRow(answer: unknown): Row | undefined {
  return Array.isArray(answer) ? (answer[0] as Row | undefined) : undefined;
}

/** Converts a name returned by a server; undefined for NULL. */
export function textOf(value: unknown): string | undefined {
  // A VARBINARY is returned as a Buffer.
  return value === null || value === undefined ? undefined : (value as string | Buffer).toString();
}

export function propertyOf(value: unknown, name: string): unknown {
  return typeof value === 'object' && value !== null ? (value as Readonly<Record<string, unknown>>)[name] : undefined;
}

/** Whether a database's value means true. */
export function isTrue(value: unknown): boolean {
  return value === true || Number(value) === 1;
}
