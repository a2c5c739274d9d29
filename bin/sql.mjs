import { existsSync, mkdirSync, readdirSync, statSync, writeFileSync } from 'node:fs';
import { dirname, join, normalize, parse, sep } from 'node:path';
import { parseArgs } from 'node:util';
import { lockTablesSql } from '../dist/esm/sql.js';

const USAGE = `usage: npx nestjs-distributed-lock sql --database postgres [options]

Prints the statements that create the table of the SQL locks, for a migration of your own.

  --database postgres   or mysql (also for MariaDB)
  --table app.locks     default: distributed_lock
  --out "migrations/*_locks.sql"
                        writes them to this file instead, and replaces what it contains. A name with * is that of the
                        one file that exists; in quotes, it means the same in every shell. Makes the folder, if there is none`;

try {
  const { values, positionals } = parseArgs({
    options: {
      database: { type: 'string' },
      table: { type: 'string' },
      out: { type: 'string' },
      help: { type: 'boolean', short: 'h' },
    },
    allowPositionals: true,
  });
  if (values.help || positionals.join() !== 'sql') {
    console.log(USAGE);
    process.exitCode = values.help ? 0 : 2;
  } else {
    const { database, out, ...options } = values;
    const statements = lockTablesSql(database, options).map((statement) => `${statement};\n`);
    if (out === undefined) process.stdout.write(statements.join(''));
    else {
      const file = fileOf(out);
      mkdirSync(dirname(file), { recursive: true });
      writeFileSync(file, statements.join(''));
      console.log(`Wrote ${file}.`);
    }
  }
} catch (error) {
  console.error(`${error.message}\n\n${USAGE}`);
  process.exitCode = 2;
}

/** The command looks for the file itself, because shells differ: `> *.sql` makes a file of that name under sh. */
function fileOf(out) {
  if (!out.includes('*')) return out;
  const { root } = parse(out);
  const names = normalize(out).slice(root.length).split(sep);
  const found = names.reduce((folders, name) => folders.flatMap((folder) => namesIn(folder, name)), [root]);
  const [file, ...others] = found.filter((path) => existsSync(path));
  if (!file) throw new Error(`No file is named ${out}. Let your migration tool make an empty migration first.`);
  if (others.length === 0) return file;
  throw new Error(`${out} is the name of several files: ${[file, ...others].join(', ')}. Name one of them in --out.`);
}

/** The paths of what this name, which may contain `*`, means in a folder. */
function namesIn(folder, name) {
  if (!name.includes('*')) return [join(folder, name)];
  if (!statSync(folder || '.', { throwIfNoEntry: false })?.isDirectory()) return [];
  const parts = name.split('*').map((part) => part.replace(/[$()+.?[\\\]^{|}]/g, '\\$&'));
  const pattern = new RegExp(`^${parts.join('.*')}$`);
  return readdirSync(folder || '.')
    .filter((entry) => pattern.test(entry))
    .map((entry) => join(folder, entry));
}
