/** Two blanks part the columns. */
const GAP = '  ';

/**
 * Text in columns: each as wide as its widest cell, or as `widths` has it from rows before. Answers the lines, without blanks at their ends.
 *
 * @param widths grows with wider cells, so that a later part of the same table begins where this one ended
 */
export function tableLines(rows: readonly (readonly string[])[], widths: number[] = []): string[] {
  for (const row of rows) {
    row.forEach((cell, column) => (widths[column] = Math.max(widths[column] ?? 0, lengthOf(cell))));
  }
  const padded = (cell: string, column: number) => cell + ' '.repeat((widths[column] ?? 0) - lengthOf(cell));
  return rows.map((row) => row.map(padded).join(GAP).trimEnd());
}

/** In characters, not in the units of UTF-16. */
function lengthOf(text: string): number {
  return Array.from(text).length;
}
