import { nextTick } from 'node:process';
import type {
  AcquireRequest,
  Finding,
  Grant,
  Holder,
  ProviderContext,
  ReleaseManner,
  ReleaseOutcome,
  Renewal as RenewalRequest,
  RenewOutcome,
} from '../../engine/lock-provider.js';
import { LockUnavailableError } from '../../lock/errors.js';
import type { LockInfo } from '../../lock/lock-info.js';
import { CommandConnection } from './command-connection.js';
import { Dispatcher, HEAVY } from './dispatcher.js';
import { examine } from './doctor.js';
import { readInspection } from './inspection.js';
import { KeyLayout } from './key-layout.js';
import type { Operation, OperationArguments } from './operation.js';
import type { RedisConnection } from './redis-client.js';
import { Release } from './release.js';
import { Renewal } from './renewal.js';
import { ServerClock } from './server-clock.js';
import { Subscription } from './subscription.js';
import { WaitingRoom } from './waiting-room.js';

/** How a process is called in the queue and on its channel: 48 random bits, as wide as the script expects. */
const PROCESS_ID_DIGITS = 12;

/** A provider at work, from `start` to `stop`: its two connections, and who answers what comes from them. */
export class Session {
  readonly #layout: KeyLayout;
  readonly #commands: CommandConnection;
  readonly #subscription: Subscription;
  readonly #dispatcher: Dispatcher;
  readonly #room: WaitingRoom;
  #wasUp = false;
  #stopping = false;

  constructor(
    private readonly context: ProviderContext,
    command: RedisConnection,
    subscriber: RedisConnection,
    patience: number,
  ) {
    const { clock, logger, namespace, random } = context;
    const process = random.id().slice(0, PROCESS_ID_DIGITS);
    const serverClock = new ServerClock();
    this.#layout = new KeyLayout(namespace);
    this.#commands = new CommandConnection(command, clock, logger, patience, {
      onUp: () => {
        serverClock.forget();
        this.#onUp();
      },
      onDown: (cause) => {
        serverClock.forget();
        if (!this.#stopping) context.emit({ type: 'unavailable', cause });
      },
    });
    this.#dispatcher = new Dispatcher(process, this.#layout.counter, clock, this.#commands, (notice, sentAt) => {
      this.#room.onNotice(notice, sentAt);
    });
    this.#room = new WaitingRoom({
      clock,
      serverClock,
      layout: this.#layout,
      isReachable: () => this.#commands.isUp,
      add: (operation) => {
        this.#dispatcher.add(operation);
      },
      emit: (event) => {
        context.emit(event);
      },
      onMessageMissed: () => {
        this.#subscription.probe();
      },
      unavailable: (key, cause) => this.#unavailable(key, cause),
    });
    this.#subscription = new Subscription(subscriber, this.#layout.channelOf(process), clock, logger, patience, {
      onUp: () => {
        this.#room.askAgain();
      },
      onMessage: (message) => {
        this.#room.onNotice(message, undefined);
      },
    });
  }

  async connect(): Promise<void> {
    const subscribed = this.#subscription.connect();
    subscribed.catch(() => undefined);
    try {
      await this.#commands.connect();
      await subscribed;
    } catch (error) {
      // ioredis goes on trying by itself; its success is then a recovery.
      this.#wasUp = true;
      throw new LockUnavailableError(
        `Lock provider "${this.context.name}" cannot reach Redis: check its address and credentials, and that it is up.`,
        { provider: this.context.name, cause: this.#commands.cause ?? error },
      );
    }
  }

  acquire(request: AcquireRequest): Promise<Grant | 'busy'> {
    return this.#room.enter(request);
  }

  renew(renewals: readonly RenewalRequest[]): Promise<RenewOutcome[]> {
    return Promise.all(
      renewals.map(
        (renewal) =>
          new Promise<RenewOutcome>((resolve) => {
            const lock = this.#layout.lockOf(renewal.grant.key);
            this.#dispatcher.add(new Renewal(lock, renewal, resolve));
          }),
      ),
    );
  }

  release(holder: Holder, { keepFor }: ReleaseManner): Promise<ReleaseOutcome> {
    const waiter = this.#room.dismiss(holder.holder);
    const lock = this.#layout.lockOf(holder.key);
    return new Promise((resolve) => {
      const release = new Release(lock, holder, keepFor, waiter?.claim ?? '', (outcome) => {
        // Whoever calls again knows nothing of the queue any more.
        if (outcome === 'unknown' && waiter) this.#room.leave(waiter);
        resolve(outcome);
      });
      this.#dispatcher.add(release);
    });
  }

  async inspect(key: string): Promise<LockInfo | null> {
    return readInspection(key, await this.#run(key, ['I', '', '0']));
  }

  async forceRelease(key: string): Promise<boolean> {
    return (await this.#run(key, ['F', '', '0'])) === 1;
  }

  check(): Promise<Finding[]> {
    return examine((command, ...args) => this.#commands.ask(command, ...args));
  }

  async close(): Promise<void> {
    this.#stopping = true;
    this.#room.close(new Error('The provider is stopped.'));
    // What was added in this tick is sent at its end.
    await new Promise<void>((resolve) => {
      nextTick(resolve);
    });
    this.#subscription.close();
    await this.#commands.close();
  }

  #onUp(): void {
    // In this order: holds are renewed before anybody asks, so that no waiter is granted what is still ours.
    if (this.#wasUp) this.context.emit({ type: 'recovered' });
    this.#wasUp = true;
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
      this.#dispatcher.add(operation);
    });
  }

  #unavailable(key: string, cause: unknown): LockUnavailableError {
    const { name } = this.context;
    const reason =
      cause instanceof Error && cause.name === 'ReplyError'
        ? `Redis refuses it (${cause.message})`
        : 'Redis did not answer';
    return new LockUnavailableError(`Lock "${key}" of provider "${name}": ${reason}; check the server and its log.`, {
      key,
      provider: name,
      cause,
    });
  }
}
