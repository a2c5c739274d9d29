import { fork } from 'node:child_process';
import { once } from 'node:events';
import { join } from 'node:path';
import { startTcpProxy } from '../../test/servers/tcp-proxy.ts';

const START_TIMEOUT = 30_000;
const USAGE_TIMEOUT = 10_000;
const RELEASE_TIMEOUT = 2_000;
const WORKER = join(import.meta.dirname, 'worker.mjs');

/** The worker processes. Each reaches the servers through its own proxies. */
export class Fleet {
  #settings;
  #members = [];
  #servers = [];
  #extras = 0;
  #onDeath;

  /** `onDeath` is called for a worker that exits unexpectedly. */
  constructor(settings, onDeath) {
    this.#settings = settings;
    this.#onDeath = onDeath;
  }

  /** `servers` have a `port`, and `addresses` if they listen on several. The workers use these in turn. */
  async start(count, servers) {
    this.#servers = servers;
    this.#members = await Promise.all(Array.from({ length: count }, (_, index) => this.#start(`w${index + 1}`)));
  }

  /**
   * Starts more processes next to a worker, with other settings. They are idle until they get a command, and end with
   * `remove`.
   */
  async startBeside({ name }, count, settings) {
    const names = Array.from({ length: count }, () => `${name}/x${(this.#extras += 1)}`);
    return Promise.all(names.map((each) => this.#start(each, settings)));
  }

  async remove(members) {
    await Promise.all(members.map((member) => this.kill(member)));
    await Promise.all(members.flatMap(({ proxies }) => proxies.map((proxy) => proxy.close())));
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

  /** Kills a worker, whatever it is doing, and starts a replacement. */
  async replace(member) {
    await this.kill(member);
    await this.#launch(member);
    this.send(member, 'run');
  }

  /** Kills a process, unless it has already exited. */
  async kill(member) {
    member.expected = true;
    const { exitCode, signalCode } = member.process;
    if (exitCode !== null || signalCode !== null) return;
    member.process.kill('SIGKILL');
    await once(member.process, 'exit');
  }

  /**
   * Lets all sections finish and starts no new ones. Resolves to what each worker still holds or waits for after all
   * its clients have finished. `pending` is missing for a worker whose clients did not finish in time.
   */
  async drain(timeout, members = this.#members) {
    return Promise.all(
      members.map(async (member) => ({
        name: member.name,
        ...(await this.#request(member, 'drain', 'drained', timeout)),
      })),
    );
  }

  /**
   * Resolves to true when this worker starts releasing a lock of this key, or to false if it doesn't within `timeout`
   * ms.
   */
  async nextRelease(member, key, timeout = RELEASE_TIMEOUT) {
    return (await this.#request(member, 'announceRelease', 'releasing', timeout, { key })) !== undefined;
  }

  async usage() {
    return Promise.all(this.#members.map((member) => this.#request(member, 'usage', 'usage', USAGE_TIMEOUT)));
  }

  /** Stops all workers. Resolves to the names of the workers that had to be killed. */
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

  async #start(name, settings) {
    const proxies = await Promise.all(this.#servers.map(({ port, addresses: host }) => startTcpProxy(port, { host })));
    const member = { name, life: 0, proxies, settings, process: undefined };
    await this.#launch(member);
    return member;
  }

  async #launch(member) {
    member.life += 1;
    member.expected = false;
    const settings = {
      ...this.#settings,
      ...member.settings,
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

  /** The next message of this type, or `undefined` if the process exits or sends none within `timeout` ms. */
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
