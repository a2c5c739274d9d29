#!/usr/bin/env node
// The commands other than sql show the locks on a server; lib/cli has them.
if (process.argv[2] === 'sql') await import('./sql.mjs');
else {
  const { main } = await import('../dist/esm/cli.js');
  process.exitCode = await main(process.argv.slice(2));
}
