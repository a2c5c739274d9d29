import { spawn } from 'node:child_process';
import { once } from 'node:events';
import {
  chmodSync,
  existsSync,
  mkdirSync,
  mkdtempSync,
  readdirSync,
  readFileSync,
  readlinkSync,
  rmSync,
} from 'node:fs';
import { constants, tmpdir } from 'node:os';
import { join } from 'node:path';
import { setTimeout as sleep } from 'node:timers/promises';

// A server that receives SIGTERM closes its files. One that hangs is killed after this time.
const TERMINATION_TIMEOUT = 3_000;

/**
 * The temporary folder of one run of commands. Every process of the run inherits it as TMPDIR, so a process that
 * outlives the run is found by its environment (on Linux), and a file that outlives it is found in the folder. A signal
 * that ends this process, such as Ctrl-C, first ends the run and removes its folder.
 */
export class RunFolder {
  #root = mkdtempSync(join(tmpdir(), 'lock-run-'));
  #temporary = join(this.#root, 'tmp');
  #child;
  #interrupted = false;

  constructor() {
    mkdirSync(this.#temporary);
    // PostgreSQL refuses to run as root, so its own account must be able to access its data.
    for (const folder of [this.#root, this.#temporary]) chmodSync(folder, 0o755);
    for (const signal of ['SIGINT', 'SIGTERM', 'SIGHUP']) process.once(signal, () => void this.#interrupt(signal));
    // This also applies if an error ends this process early.
    process.once('exit', () => this.#destroy());
  }

  /** Runs a command as part of the run. Resolves to its exit code, or to the signal that ended it. */
  async run(command, args, { env = {}, ...options } = {}) {
    this.#child = spawn(command, args, { env: { ...process.env, TMPDIR: this.#temporary, ...env }, ...options });
    const [code, signal] = await once(this.#child, 'exit');
    // The signal handler ends this process, so don't continue.
    if (this.#interrupted) await new Promise(() => undefined);
    return code ?? signal;
  }

  /** A path next to the temporary files, for what the run itself reports. */
  file(name) {
    return join(this.#root, name);
  }

  /** What the run should have ended or removed: its processes, and the entries of its temporary folder. */
  leftBehind() {
    const processes = processesOf(this.#temporary).map(({ pid, command }) => `process ${pid}: ${command}`);
    const files = readdirSync(this.#temporary).map((name) => `file ${join(this.#temporary, name)}`);
    return [...processes, ...files];
  }

  /** Ends the run's processes, and removes its files. */
  async remove() {
    this.#signalAll('SIGTERM');
    const deadline = Date.now() + TERMINATION_TIMEOUT;
    while (processesOf(this.#temporary).length > 0 && Date.now() < deadline) await sleep(50);
    this.#destroy();
  }

  #destroy() {
    while (this.#signalAll('SIGKILL') > 0);
    rmSync(this.#root, { recursive: true, force: true });
  }

  #signalAll(signal) {
    const processes = processesOf(this.#temporary);
    for (const { pid } of processes) send(pid, signal);
    return processes.length;
  }

  async #interrupt(signal) {
    this.#interrupted = true;
    // In a terminal, the command has received the signal, too.
    this.#child?.kill(signal);
    await this.remove();
    process.exit(128 + constants.signals[signal]);
  }
}

/**
 * The processes whose TMPDIR or working directory is in `folder`. PostgreSQL's processes overwrite their environment,
 * which is why the working directory counts. Empty on systems without /proc.
 */
function processesOf(folder) {
  if (!existsSync('/proc/self/environ')) return [];
  return readdirSync('/proc')
    .filter((name) => /^\d+$/.test(name) && Number(name) !== process.pid)
    .flatMap((pid) => {
      try {
        const environment = readFileSync(`/proc/${pid}/environ`, 'utf8');
        const isOurs = environment.split('\0').some((entry) => `${entry}/`.startsWith(`TMPDIR=${folder}/`));
        if (!isOurs && !readlinkSync(`/proc/${pid}/cwd`).startsWith(`${folder}/`)) return [];
        const command = readFileSync(`/proc/${pid}/cmdline`, 'utf8').replaceAll('\0', ' ').trim();
        return [{ pid: Number(pid), command }];
      } catch (error) {
        // The process has exited since the folder was read, or it belongs to another account, which no run of ours
        // starts.
        if (['ENOENT', 'ESRCH', 'EACCES'].includes(error.code)) return [];
        throw error;
      }
    });
}

function send(pid, signal) {
  try {
    process.kill(pid, signal);
  } catch (error) {
    if (error.code !== 'ESRCH') throw error;
  }
}
