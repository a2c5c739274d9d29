const COLUMN_GAP = '  ';

/**
 * Formats rows as lines of aligned columns, without trailing spaces.
 *
 * @param widths the minimum column widths; wider cells increase them, so the batches of a long table align
 */
export function tableLines(rows: readonly (readonly string[])[], widths: number[] = []): string[] {
  for (const row of rows) {
    row.forEach((cell, column) => (widths[column] = Math.max(widths[column] ?? 0, lengthOf(cell))));
  }
  const padded = (cell: string, column: number) => cell + ' '.repeat((widths[column] ?? 0) - lengthOf(cell));
  return rows.map((row) => row.map(padded).join(COLUMN_GAP).trimEnd());
}

/** Counts code points, not UTF-16 code units. */
function lengthOf(text: string): number {
  return Array.from(text).length;
}
