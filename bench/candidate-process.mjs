import { fork } from 'node:child_process';
import { once } from 'node:events';
import { fileURLToPath } from 'node:url';

const program = fileURLToPath(new URL('run-loads.mjs', import.meta.url));

/**
 * A candidate in a process of its own, as in an application. In one process all would pay for each: a lock that opens a context of
 * AsyncLocalStorage makes every await of its process dearer, the code of a client is compiled for all who use it, and all garbage is
 * collected together.
 */
export class CandidateProcess {
  #child;
  #ended;

  constructor(child) {
    this.#child = child;
    this.#ended = once(child, 'exit');
  }

  /** @param module exports `candidate(name, ...args)`, which makes the candidate */
  static async start(module, name, ...args) {
    const started = new CandidateProcess(fork(program, [module.href, name, JSON.stringify(args)]));
    await started.#answer();
    return started;
  }

  /** Runs a function of loads.mjs on the candidate. Answers what it measures. */
  async run({ name }, ...args) {
    this.#child.send({ name, args });
    return this.#answer();
  }

  async stop() {
    this.#child.disconnect();
    await this.#ended;
  }

  async #answer() {
    const failed = this.#ended.then(([code, signal]) => {
      throw new Error(`The process of a candidate ended with ${signal ?? code}.`);
    });
    const [answer] = await Promise.race([once(this.#child, 'message'), failed]);
    return answer;
  }
}
