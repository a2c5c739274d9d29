import { printable } from '../api/printable.js';
import { withJson } from '../core/toolkit/with-json.js';
import type { CommandContext } from './command.js';
import { tableLines } from './table.js';

/** How many rows are kept in memory, and sorted by their keys. A longer table consists of several such parts. */
const PART = 1_000;

/** How rows are shown. */
export interface TableFormat<Row> {
  readonly header: readonly string[];
  readonly cellsOf: (row: Row) => string[];
  /** What the rows are, in the plural. */
  readonly noun: string;
}

/** Prints rows while they are read: a table, or for `--json` one array with a row on each line. Resolves to the number of rows. */
export async function printListing<Row extends { readonly key: string }>(
  { args: { json }, terminal }: CommandContext,
  rows: AsyncIterable<Row>,
  { header, cellsOf, noun }: TableFormat<Row>,
): Promise<number> {
  const widths: number[] = [];
  let part: Row[] = [];
  let count = 0;
  const jsonOf = (row: Row, index: number) =>
    `${count - part.length + index === 0 ? '[' : ','}\n${printable(JSON.stringify(withJson(row)))}`;
  const tableOf = () => {
    part.sort((one, other) => (one.key < other.key ? -1 : 1));
    const [head = '', ...lines] = tableLines([header, ...part.map(cellsOf)], widths);
    return (count === part.length ? [terminal.paint('bold', head), ...lines] : lines).map((line) => `${line}\n`);
  };
  const printPart = async () => {
    await terminal.print((json ? part.map(jsonOf) : tableOf()).join(''));
    part = [];
  };
  for await (const row of rows) {
    part.push(row);
    count += 1;
    terminal.progress(count, noun);
    if (part.length === PART) await printPart();
  }
  if (part.length > 0) await printPart();
  terminal.clearProgress();
  if (json) await terminal.print(count === 0 ? '[]\n' : '\n]\n');
  return count;
}
