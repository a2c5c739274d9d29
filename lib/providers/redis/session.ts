import { nextTick } from 'node:process';
import type {
  AcquireRequest,
  Answer,
  Finding,
  Grant,
  Holder,
  ProviderContext,
  ReleaseManner,
  ReleaseOutcome,
  RenewOutcome,
} from '../../api/lock-provider.js';
import { LockUnavailableError } from '../../api/errors.js';
import type { LockInfo } from '../../api/lock-info.js';
import { HEAVY } from './dispatcher.js';
import { examine } from './doctor.js';
import { readInspection } from './inspection.js';
import { KeyLayout } from './key-layout.js';
import type { Operation, OperationArguments } from './operation.js';
import type { RedisSettings } from './redis-options.js';
import { Release } from './release.js';
import { Renewal } from './renewal.js';
import type { OpenServers, Servers } from './servers.js';
import { NotReplicated } from './wait-connection.js';
import { WaitingRoom } from './waiting-room.js';

/** How a process is called in the queue and on its channel: 48 random bits, as wide as the script expects. */
const PROCESS_ID_DIGITS = 12;

/** A provider at work, from `start` to `stop`: who answers what comes from the servers. */
export class Session {
  readonly #layout: KeyLayout;
  readonly #servers: Servers;
  readonly #room: WaitingRoom;
  #isStarted = false;
  #stopping = false;

  constructor(
    private readonly context: ProviderContext,
    open: OpenServers,
    private readonly settings: RedisSettings,
  ) {
    const { patience, waitReplicas } = settings;
    const { clock, logger, namespace, random } = context;
    this.#layout = new KeyLayout(namespace);
    const process = random.id().slice(0, PROCESS_ID_DIGITS);
    this.#servers = open(
      { clock, logger, layout: this.#layout, process, patience, waitReplicas },
      {
        onUp: () => {
          this.#onUp();
        },
        onDown: (cause) => {
          if (!this.#stopping) context.emit({ type: 'unavailable', cause });
        },
        onListening: () => {
          this.#room.askAgain();
        },
        onNotice: (notice, sentAt) => {
          this.#room.onNotice(notice, sentAt);
        },
      },
    );
    this.#room = new WaitingRoom({
      clock,
      servers: this.#servers,
      layout: this.#layout,
      confirmsAll: waitReplicas > 0,
      emit: (event) => {
        context.emit(event);
      },
      unavailable: (key, cause, sent) => this.#unavailable(key, cause, sent),
    });
  }

  async connect(): Promise<void> {
    try {
      await this.#servers.connect();
    } catch (cause) {
      throw new LockUnavailableError(
        `Lock provider "${this.context.name}" cannot reach Redis: check its address and credentials, and that it is up.`,
        { provider: this.context.name, cause },
      );
    } finally {
      // ioredis goes on trying by itself; from here on, a success is a recovery.
      this.#isStarted = true;
    }
  }

  acquire(request: AcquireRequest): Promise<Grant | 'busy'> {
    return this.#room.enter(request);
  }

  renew(grant: Grant, lease: number): Promise<RenewOutcome> {
    return new Promise((resolve) => {
      const lock = this.#layout.lockOf(grant.key);
      const cohort = this.#room.cohortOf(grant.holder);
      this.#servers.confirm(new Renewal(lock, grant, lease, cohort, this.context.clock.now(), resolve), lease);
    });
  }

  release(holder: Holder, { keepFor }: ReleaseManner): Answer<ReleaseOutcome> {
    if (keepFor === 0 && this.#room.passOn(holder.holder)) return 'released';
    const departing = this.#room.dismiss(holder.holder);
    const [first, ...others] = departing;
    if (first?.isUnsent) return 'lost';
    const lock = this.#layout.lockOf(holder.key);
    return new Promise((resolve) => {
      const release = new Release(lock, first?.request ?? holder, others, keepFor, first?.claim ?? '', (outcome) => {
        // Whoever calls again knows nothing of the queue any more.
        if (outcome === 'unknown') for (const waiter of departing) this.#room.leave(waiter);
        resolve(outcome);
      });
      this.#servers.add(release);
    });
  }

  async inspect(key: string): Promise<LockInfo | null> {
    return readInspection(key, await this.#run(key, ['I', '', '0']));
  }

  async forceRelease(key: string): Promise<boolean> {
    return (await this.#run(key, ['F', '', '0'])) === 1;
  }

  check(): Promise<Finding[]> {
    const { isCluster, asks } = this.#servers;
    const { waitReplicas } = this.settings;
    return examine(asks, { isCluster, waitReplicas, key: this.#layout.counter, channel: this.#layout.channelOf('') });
  }

  async close(): Promise<void> {
    this.#stopping = true;
    this.#room.close(new Error('The provider is stopped.'));
    // What was added in this tick is sent at its end.
    await new Promise<void>((resolve) => {
      nextTick(resolve);
    });
    await this.#servers.close();
  }

  #onUp(): void {
    // In this order: holds are renewed before anybody asks, so that no waiter is granted what is still ours.
    if (this.#isStarted) this.context.emit({ type: 'recovered' });
    this.#room.onRecovered();
  }

  #run(key: string, args: OperationArguments): Promise<unknown> {
    const lock = this.#layout.lockOf(key);
    return new Promise((resolve, reject) => {
      const operation: Operation = {
        lock,
        isAsk: false,
        weight: HEAVY,
        encode: () => args,
        onReply: resolve,
        onFailure: (error) => {
          reject(this.#unavailable(key, error));
        },
      };
      this.#servers.add(operation);
    });
  }

  #unavailable(key: string, cause: unknown, sent = true): LockUnavailableError {
    const { name } = this.context;
    return new LockUnavailableError(
      `Lock "${key}" of provider "${name}": ${reasonOf(cause)}; check the server and its log.`,
      {
        key,
        provider: name,
        cause,
        sent,
      },
    );
  }
}

function reasonOf(cause: unknown): string {
  if (cause instanceof NotReplicated) return `too few replicas have it (${cause.message})`;
  return cause instanceof Error && cause.name === 'ReplyError'
    ? `Redis refuses it (${cause.message})`
    : 'Redis did not answer';
}
