import { fork } from 'node:child_process';
import { once } from 'node:events';
import { join } from 'node:path';
import { startTcpProxy } from '../../test/servers/tcp-proxy.ts';

const START_TIMEOUT = 30_000;
const USAGE_TIMEOUT = 10_000;
const RELEASE_TIMEOUT = 2_000;
const WORKER = join(import.meta.dirname, 'worker.mjs');

/** The worker processes. Each reaches the servers through proxies of its own. */
export class Fleet {
  #settings;
  #members = [];
  #onDeath;

  /** `onDeath` is called for a worker that exits without being asked to. */
  constructor(settings, onDeath) {
    this.#settings = settings;
    this.#onDeath = onDeath;
  }

  async start(count, ports) {
    this.#members = await Promise.all(
      Array.from({ length: count }, async (_, index) => {
        const proxies = await Promise.all(ports.map((port) => startTcpProxy(port)));
        const member = { name: `w${index + 1}`, life: 0, proxies, process: undefined };
        await this.#launch(member);
        return member;
      }),
    );
  }

  get members() {
    return this.#members;
  }

  send(member, type, details = {}) {
    if (member.process.connected) member.process.send({ type, ...details });
  }

  run() {
    for (const member of this.#members) this.send(member, 'run');
  }

  /** Kills a worker, whatever it is doing, and starts another one instead. */
  async replace(member) {
    member.expected = true;
    member.process.kill('SIGKILL');
    await once(member.process, 'exit');
    await this.#launch(member);
    this.send(member, 'run');
  }

  /**
   * Ends all sections and starts no new one. Resolves to what each worker still holds or awaits when all its clients have
   * ended. `pending` is missing for a worker whose clients did not end in time.
   */
  async drain(timeout) {
    return Promise.all(
      this.#members.map(async (member) => ({
        name: member.name,
        ...(await this.#request(member, 'drain', 'drained', timeout)),
      })),
    );
  }

  /** Resolves when this worker next releases a lock of this key, or releases none in time. */
  nextRelease(member, key) {
    return this.#request(member, 'announceRelease', 'releasing', RELEASE_TIMEOUT, { key });
  }

  async usage() {
    return Promise.all(this.#members.map((member) => this.#request(member, 'usage', 'usage', USAGE_TIMEOUT)));
  }

  /** Stops all workers. Resolves to the names of those that had to be killed. */
  async stop(timeout) {
    const killed = await Promise.all(
      this.#members.map(async (member) => {
        member.expected = true;
        const ended = member.process.exitCode === null ? once(member.process, 'exit') : Promise.resolve();
        this.send(member, 'stop');
        const inTime = await Promise.race([ended.then(() => true), expired(timeout)]);
        if (!inTime) member.process.kill('SIGKILL');
        await Promise.all(member.proxies.map((proxy) => proxy.close()));
        return inTime ? undefined : member.name;
      }),
    );
    return killed.filter(Boolean);
  }

  async #launch(member) {
    member.life += 1;
    member.expected = false;
    const settings = {
      ...this.#settings,
      worker: `${member.name}/${member.life}`,
      ports: member.proxies.map(({ port }) => port),
    };
    const child = fork(WORKER, [JSON.stringify(settings)], { execArgv: ['--expose-gc'] });
    member.process = child;
    child.once('exit', (code, signal) => {
      if (!member.expected) this.#onDeath(`${settings.worker} exited (${code ?? signal})`);
    });
    await this.#message(member, 'ready', START_TIMEOUT);
  }

  #request(member, type, answerType, timeout, details) {
    const answer = this.#message(member, answerType, timeout);
    this.send(member, type, details);
    return answer;
  }

  /** The next message of this type, or nothing if the process exits or sends none within `timeout` ms. */
  #message({ process: child }, type, timeout) {
    return new Promise((resolve) => {
      const settle = (message) => {
        clearTimeout(timer);
        child.off('message', onMessage);
        child.off('exit', onExit);
        resolve(message);
      };
      const onMessage = (message) => {
        if (message.type === type) settle(message);
      };
      const onExit = () => {
        settle(undefined);
      };
      const timer = setTimeout(onExit, timeout).unref();
      child.on('message', onMessage);
      child.on('exit', onExit);
    });
  }
}

function expired(milliseconds) {
  return new Promise((resolve) => setTimeout(resolve, milliseconds).unref());
}
