import { fork } from 'node:child_process';
import { once } from 'node:events';
import { fileURLToPath } from 'node:url';

const program = fileURLToPath(new URL('run-loads.mjs', import.meta.url));

/**
 * A candidate in its own process, as in an application. In a shared process, all would pay for what one of them does:
 * with some libraries, the first lock makes every await of the process more expensive, and a client that several use is
 * compiled for all of them.
 */
export class CandidateProcess {
  #name;
  #child;
  #ended;

  constructor(name, child) {
    this.#name = name;
    this.#child = child;
    this.#ended = once(child, 'exit');
  }

  /** @param module exports `candidate(name, ...args)`, which creates the candidate */
  static async start(module, name, ...args) {
    const started = new CandidateProcess(name, fork(program, [module.href, name, JSON.stringify(args)]));
    await started.#answerTo('start');
    return started;
  }

  /** Runs a function of loads.mjs on the candidate, one at a time. Resolves to what it measures. */
  async run({ name }, ...args) {
    this.#child.send({ name, args });
    return this.#answerTo(name);
  }

  async stop() {
    this.#child.disconnect();
    await this.#ended;
  }

  async #answerTo(load) {
    const failed = this.#ended.then(([code, signal]) => {
      throw new Error(`The process of ${this.#name} failed with ${signal ?? code} during ${load}. Its error is above.`);
    });
    const [answer] = await Promise.race([once(this.#child, 'message'), failed]);
    return answer;
  }
}

/** Starts a process for each candidate. Resolves to the processes by name. */
export async function startEach(module, names, ...args) {
  const processes = {};
  for (const name of names) processes[name] = await CandidateProcess.start(module, name, ...args);
  return processes;
}

/** By name, this load on each of these processes. */
export function each(processes, names, load, ...args) {
  return Object.fromEntries(names.map((name) => [name, () => processes[name].run(load, ...args)]));
}
