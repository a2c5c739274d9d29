import { fork } from 'node:child_process';
import { once } from 'node:events';
import { join } from 'node:path';
import { startWire } from './wire.mjs';

const READY_WITHIN = 30_000;
const WORKER = join(import.meta.dirname, 'worker.mjs');

/** The worker processes, each with wires of its own to the servers. */
export class Fleet {
  #settings;
  #members = [];
  #onDeath;

  /** `onDeath` is told of a worker that ends without being asked to. */
  constructor(settings, onDeath) {
    this.#settings = settings;
    this.#onDeath = onDeath;
  }

  async start(count, ports) {
    this.#members = await Promise.all(
      Array.from({ length: count }, async (_, index) => {
        const wires = await Promise.all(ports.map((port) => startWire(port)));
        const member = { name: `w${index + 1}`, life: 0, wires, process: undefined };
        await this.#launch(member);
        return member;
      }),
    );
  }

  get members() {
    return this.#members;
  }

  order(member, type, details = {}) {
    if (member.process.connected) member.process.send({ type, ...details });
  }

  run() {
    for (const member of this.#members) this.order(member, 'run');
  }

  /** Kills a worker in the middle of whatever it does, and starts another in its place. */
  async replace(member) {
    member.expected = true;
    member.process.kill('SIGKILL');
    await once(member.process, 'exit');
    await this.#launch(member);
    this.order(member, 'run');
  }

  /** No new sections. Resolves to what each worker still has when all its clients have ended, or says that they have not. */
  async drain(within) {
    return Promise.all(
      this.#members.map(async (member) => ({
        name: member.name,
        ...(await this.#ask(member, 'drain', 'drained', within)),
      })),
    );
  }

  async usage() {
    return Promise.all(this.#members.map((member) => this.#ask(member, 'usage', 'usage', 10_000)));
  }

  /** Stops all. Resolves to those that did not end by themselves. */
  async stop(within) {
    const stuck = await Promise.all(
      this.#members.map(async (member) => {
        member.expected = true;
        const ended = member.process.exitCode === null ? once(member.process, 'exit') : Promise.resolve();
        this.order(member, 'stop');
        const inTime = await Promise.race([ended.then(() => true), patience(within)]);
        if (!inTime) member.process.kill('SIGKILL');
        await Promise.all(member.wires.map((wire) => wire.close()));
        return inTime ? undefined : member.name;
      }),
    );
    return stuck.filter(Boolean);
  }

  async #launch(member) {
    member.life += 1;
    member.expected = false;
    const settings = {
      ...this.#settings,
      worker: `${member.name}/${member.life}`,
      ports: member.wires.map(({ port }) => port),
    };
    const child = fork(WORKER, [JSON.stringify(settings)], { execArgv: ['--expose-gc'] });
    member.process = child;
    child.once('exit', (code, signal) => {
      if (!member.expected) this.#onDeath(`${settings.worker} ended (${code ?? signal})`);
    });
    await this.#answer(member, 'ready', READY_WITHIN);
  }

  #ask(member, order, answer, within) {
    const answered = this.#answer(member, answer, within);
    this.order(member, order);
    return answered;
  }

  /** The next message of this type; nothing when the process ends or says nothing `within` ms. */
  #answer({ process: child }, type, within) {
    return new Promise((resolve) => {
      const settle = (message) => {
        clearTimeout(timer);
        child.off('message', listen);
        child.off('exit', leave);
        resolve(message);
      };
      const listen = (message) => {
        if (message.type === type) settle(message);
      };
      const leave = () => {
        settle(undefined);
      };
      const timer = setTimeout(leave, within).unref();
      child.on('message', listen);
      child.on('exit', leave);
    });
  }
}

function patience(milliseconds) {
  return new Promise((resolve) => setTimeout(resolve, milliseconds).unref());
}
