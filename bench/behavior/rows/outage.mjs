// Three reasons for which a caller is not given a lock: it is busy, Redis refuses the command, Redis does not answer. Can the caller
// tell them apart by the error?
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
  // Every write is answered with an error, as when the disk or the memory is full.
  const admin = connect(server.url);
  await admin.config('SET', 'min-replicas-to-write', '1');
  const refused = await endOf();
  await admin.config('SET', 'min-replicas-to-write', '0');
  await server.stop();
  const silent = await endOf();
  const isConfused = [refused.name, silent.name].includes(busy.name);
  return `${isConfused ? 'the same error' : 'different errors'}: busy ${busy.text}; refused ${refused.text}; down ${silent.text}`;
});
