// Five callers in two processes queue for a lock, 270 ms apart. In which order are they served, and what do they send
// while they wait?
import { setTimeout as sleep } from 'node:timers/promises';
import { compare, hold } from '../compare.mjs';

const ROUNDS = 3;
const WAITERS = [0, 1, 2, 3, 4];

await compare('Waiters', async ({ open, connect, server }) => {
  const processes = [await open({ wait: 20_000 }), await open({ wait: 20_000 })];
  let commands = 0;
  const monitor = await connect(server.url).monitor();
  monitor.on('monitor', (_, __, source) => (commands += source === 'lua' ? 0 : 1));
  let inOrder = 0;
  let sent = 0;
  for (let round = 0; round < ROUNDS; round += 1) {
    const holder = await hold(await open(), 'order:1', 60_000);
    const served = [];
    const waiting = [];
    for (const waiter of WAITERS) {
      waiting.push(
        processes[waiter % 2].run('order:1', 60_000, async () => {
          served.push(waiter);
          await sleep(30);
        }),
      );
      await sleep(270);
    }
    const before = commands;
    await sleep(2_000);
    sent += commands - before;
    await holder.leave();
    await Promise.all(waiting);
    if (served.every((waiter, turn) => waiter === WAITERS[turn])) inOrder += 1;
  }
  monitor.disconnect();
  return `in order in ${inOrder} of ${ROUNDS} rounds; ${Math.round(sent / ROUNDS / 2)} commands/s`;
});
