import { existsSync, mkdirSync, readdirSync, statSync, writeFileSync } from 'node:fs';
import { dirname, join, normalize, parse, sep } from 'node:path';
import { lockTablesSql } from '../../providers/sql/index.js';
import type { Command } from '../command.js';
import { ExitCode, UsageError } from '../exit-code.js';

export const sql: Command = {
  usesServer: false,
  options: ['database', 'table', 'out'],
  summary: 'Prints the statements that create the SQL lock table',
  details: 'Run them in one of your migrations.',
  async run({ args: { database, table, out }, terminal }) {
    const options = { ...(table !== undefined && { table }) };
    // `lockTablesSql` validates the database.
    const statements = lockTablesSql(database as 'mysql' | 'postgres', options).map((statement) => `${statement};\n`);
    if (out === undefined) await terminal.print(statements.join(''));
    else {
      const file = fileOf(out);
      try {
        mkdirSync(dirname(file), { recursive: true });
        writeFileSync(file, statements.join(''));
      } catch (error) {
        throw new UsageError(`Cannot write ${file}: ${(error as Error).message}. Pass another path to --out.`);
      }
      await terminal.print(`Wrote ${file}.\n`);
    }
    return ExitCode.done;
  },
};

/**
 * Resolves a pattern to the one file that matches. `> *.sql` isn't portable: sh creates a file with that name.
 */
function fileOf(out: string): string {
  if (!out.includes('*')) return out;
  const { root } = parse(out);
  const names = normalize(out).slice(root.length).split(sep);
  const found = names.reduce((folders, name) => folders.flatMap((folder) => pathsIn(folder, name)), [root]);
  const [file, ...others] = found.filter((path) => existsSync(path));
  if (file === undefined)
    throw new UsageError(`No file matches ${out}. Create an empty migration with your migration tool first.`);
  if (others.length === 0) return file;
  throw new UsageError(`${out} matches several files: ${[file, ...others].join(', ')}. Pass one of them to --out.`);
}

/** The paths in a folder that match a name with optional wildcards. */
function pathsIn(folder: string, name: string): string[] {
  if (!name.includes('*')) return [join(folder, name)];
  if (!statSync(folder || '.', { throwIfNoEntry: false })?.isDirectory()) return [];
  const parts = name.split('*').map((part) => part.replace(/[$()+.?[\\\]^{|}]/g, '\\$&'));
  const pattern = new RegExp(`^${parts.join('.*')}$`);
  return readdirSync(folder || '.')
    .filter((entry) => pattern.test(entry))
    .map((entry) => join(folder, entry));
}
