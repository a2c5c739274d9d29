import { spawn } from 'node:child_process';
import { availableParallelism } from 'node:os';

/** Keeps every core of the machine busy until `stop` is called, as other programs would. */
export function startLoad() {
  const loops = Array.from({ length: availableParallelism() }, () => {
    const loop = spawn(process.execPath, ['-e', 'for (;;);'], { stdio: 'ignore' });
    loop.unref();
    return loop;
  });
  const stop = () => loops.forEach((loop) => loop.kill('SIGKILL'));
  process.once('exit', stop);
  return stop;
}
