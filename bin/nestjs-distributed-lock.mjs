#!/usr/bin/env node
import { parseArgs } from 'node:util';
import { lockTablesSql } from '../dist/esm/sql.js';

const USAGE = `usage: npx nestjs-distributed-lock sql --database postgres [options]

Prints the statements that create the tables of the SQL locks, for a migration of your own.

  --database postgres   or mysql (also for MariaDB), or sqlite
  --table app.locks     default: distributed_lock
  --records             also the table that a failover needs, if its casStore is in SQL`;

try {
  const { values, positionals } = parseArgs({
    options: {
      database: { type: 'string' },
      table: { type: 'string' },
      records: { type: 'boolean' },
      help: { type: 'boolean', short: 'h' },
    },
    allowPositionals: true,
  });
  if (values.help || positionals.join() !== 'sql') {
    console.log(USAGE);
    process.exitCode = values.help ? 0 : 2;
  } else {
    for (const statement of lockTablesSql(values.database, values)) console.log(`${statement};`);
  }
} catch (error) {
  console.error(`${error.message}\n\n${USAGE}`);
  process.exitCode = 2;
}
