import { fork } from 'node:child_process';
import { once } from 'node:events';
import { fileURLToPath } from 'node:url';

const program = fileURLToPath(new URL('program.mjs', import.meta.url));

/**
 * What one lock cycle of this build costs on this provider, `redis` or `memory`, in a new process: see program.mjs.
 * That process has exited when this resolves, so the next one has the core to itself.
 */
export async function costOfCycle(build, provider, env = process.env) {
  const child = fork(program, [build, provider], { env });
  const [[cost]] = await Promise.all([once(child, 'message'), once(child, 'exit')]);
  return cost;
}
