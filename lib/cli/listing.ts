import { printable } from '../api/printable.js';
import { withJson } from '../core/toolkit/with-json.js';
import type { CommandContext } from './command.js';
import { ExitCode } from './exit-code.js';
import { tableLines } from './table.js';

/** How many rows are buffered and sorted by key. Longer tables are printed in batches of this size. */
const PART = 1_000;

/** How to print rows as a table. */
export interface TableFormat<Row> {
  readonly header: readonly string[];
  readonly cellsOf: (row: Row) => string[];
  /** The plural noun for the rows. */
  readonly noun: string;
  /** What to say if there are no rows. */
  readonly none: () => string | Promise<string>;
}

/**
 * Prints rows as they are read: a table or, with `--json`, an array with one row per line. Without rows, says so.
 */
export async function printListing<Row extends { readonly key: string }>(
  { args: { json }, terminal }: CommandContext,
  rows: AsyncIterable<Row>,
  { header, cellsOf, noun, none }: TableFormat<Row>,
): Promise<ExitCode> {
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
  else if (count === 0) terminal.say(await none());
  return ExitCode.done;
}
