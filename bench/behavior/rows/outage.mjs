// A caller may fail to get a lock for three reasons: it is busy, Redis refuses the command, or Redis doesn't respond.
// Can the caller tell them apart by the error?
import { compare, hold, nameOf, outcome } from '../compare.mjs';

await compare('Busy, and a backend that fails', async ({ open, connect, server }) => {
  const processes = [await open(), await open()];
  const endOf = async () => {
    const { error, seconds } = await outcome(processes[1].run('order:1', 30_000, () => undefined));
    return {
      name: error && nameOf(error),
      text: error ? `\`${nameOf(error)}\`, ${seconds}` : `no answer in ${seconds}`,
    };
  };
  const holder = await hold(processes[0], 'order:1', 60_000);
  const busy = await endOf();
  await holder.leave();
  // Every write fails, as when the disk or memory is full.
  const admin = connect(server.url);
  await admin.config('SET', 'min-replicas-to-write', '1');
  const refused = await endOf();
  await admin.config('SET', 'min-replicas-to-write', '0');
  await server.stop();
  const silent = await endOf();
  const isConfused = [refused.name, silent.name].includes(busy.name);
  return `${isConfused ? 'the same error' : 'different errors'}: busy ${busy.text}; refused ${refused.text}; down ${silent.text}`;
});
