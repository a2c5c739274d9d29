// A process that holds a lock with a lease of 3 s is killed after 2.7 s. When does another process get the lock?
import { fork } from 'node:child_process';
import { once } from 'node:events';
import { setTimeout as sleep } from 'node:timers/promises';
import { compare, outcome } from '../compare.mjs';

const LEASE = 3_000;
const [, , name, url] = process.argv;

if (name) {
  const { packages } = await import('../packages.mjs');
  const { Redis } = await import('ioredis');
  const { run } = await packages.find((each) => each.name === name).open({ url, connect: (at) => new Redis(at) });
  await run('order:1', LEASE, async () => {
    process.send('held');
    await once(process, 'disconnect');
  });
} else {
  await compare('A holder is killed 2.7 s into a lease of 3 s: free after', async ({ name: wanted, server, open }) => {
    const other = await open({ wait: 20_000 });
    const holder = fork(import.meta.filename, [wanted, server.url]);
    await once(holder, 'message');
    // Longer than any package's renewal interval.
    await sleep(2_700);
    holder.kill('SIGKILL');
    const { value, error, seconds } = await outcome(other.run('order:1', LEASE, async () => 'entered'));
    return value ? seconds : String(error);
  });
}
