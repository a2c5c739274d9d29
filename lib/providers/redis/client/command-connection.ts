import type { Timer } from '../../../api/clock.js';
import type { LockConfigError } from '../../../api/errors.js';
import { REFUSAL_RETRIED_FOR } from '../../../core/toolkit/retryable.js';
import { type ConnectionSettings, isFromReplica, OpenConnection } from './open-connection.js';
import {
  type CommandSender,
  isReplyError,
  noDatabase,
  notAClient,
  NotSent,
  type RedisConnection,
  withoutCommand,
} from './redis-connection.js';
import { DefiniteRefusal, isDemotion, isForbidden, LOGIN_REMEDY, refusedLogin } from './refusals.js';

/** How long to keep reading a silent connection before dropping it, in ms. */
const REPLY_GRACE = 50;

type OnReply = (reply: unknown) => void;
type OnFailure = (error: unknown) => void;

/** Reacts to the state of a connection. */
export interface ConnectionListener {
  /** The connection is ready for commands, initially or after a reconnect. */
  onUp(): void;
  /** The connection was lost. The outcome of every command in flight is unknown. */
  onDown(cause: unknown): void;
}

/**
 * A connection for commands, which reconnects when the server falls silent.
 *
 * A frozen server or a network outage doesn't close the socket. So we replace the connection if commands are in flight
 * and no reply has arrived for `commandTimeout` ms.
 *
 * A connection counts as up only after the server has reported the connection's client id. With that id, the next
 * connection can kill this one at the server, so commands still buffered there can't run late. This costs one round
 * trip per connection and nothing per command.
 *
 * A connection to a replica doesn't count as up, because replicas reject writes. Otherwise, each reconnect would end
 * the outage and each command would start it again.
 */
export class CommandConnection extends OpenConnection implements CommandSender {
  #up = false;
  /** The commands in flight on the connection in use. */
  #flight: Flight = { commands: 0, isOver: false };
  #lastHeard = 0;
  #timer: Timer | undefined;
  /** The server's id for the current connection. */
  #identity: ConnectionIdentity | undefined;
  /** Lost connections that may still be open at the server. */
  readonly #lost = new Set<ConnectionIdentity>();
  #suspected = false;
  #cause: unknown = new Error('The connection was closed before it was ready.');
  #onFirstOutcome: (() => void) | undefined;
  #idle: (() => void) | undefined;
  /** Whether the current refusal has been logged. */
  #isRefusalLogged = false;
  #wasReady = false;
  #wasUp = false;
  /** When the server started refusing the login or writes (monotonic clock). */
  #refusedSince: number | undefined;

  constructor(
    connection: RedisConnection,
    settings: ConnectionSettings,
    private readonly listener: ConnectionListener,
  ) {
    super(connection, settings);
  }

  get isUp(): boolean {
    return this.#up;
  }

  get unanswered(): number {
    return this.#flight.commands;
  }

  get cause(): unknown {
    // A refusal by a server that has never accepted us is final. Otherwise, it may be temporary.
    const since = this.#refusedSince;
    if (since === undefined || (this.#wasUp && this.settings.clock.now() - since < REFUSAL_RETRIED_FOR))
      return this.#cause;
    return new DefiniteRefusal(this.#cause);
  }

  /** Rejects if the first attempt fails, but keeps reconnecting in the background. */
  connect(): Promise<void> {
    return new Promise((resolve, reject) => {
      this.#onFirstOutcome = () => {
        if (this.#up) resolve();
        else reject(this.cause);
      };
      // We don't await the library's promise: it resolves too early, and ioredis's rejections have fewer details than
      // its events.
      new Promise((connected) => {
        connected(this.connection.connect());
      }).then(
        () => {
          if (!this.#wasReady) this.#refuse(notAClient());
        },
        () => this.#onFirstOutcome?.(),
      );
    });
  }

  send(command: string, args: string[], onReply: OnReply, onFailure: OnFailure): void {
    if (this.#up) this.#transmit(command, args, onReply, onFailure);
    else onFailure(new NotSent('There is no connection to the server.', { cause: this.cause }));
  }

  #transmit(command: string, args: string[], onReply: OnReply, onFailure: OnFailure): void {
    const flight = this.#flight;
    if (flight.commands === 0) this.#lastHeard = this.settings.clock.now();
    flight.commands += 1;
    if (this.#timer === undefined) this.#listen(this.settings.commandTimeout);
    this.connection.call(command, ...args).then(
      (reply) => {
        this.#heard(flight);
        if (flight.isOver) {
          onFailure(new Error('The reply arrived after its connection was dropped.'));
          return;
        }
        onReply(reply);
        // The script returns an error for each operation separately.
        const demotion = Array.isArray(reply) ? (reply as unknown[]).find(isDemotion) : undefined;
        if (demotion) this.reconnect(demotion);
      },
      (error: unknown) => {
        this.#heard(flight);
        onFailure(withoutCommand(error));
        if (!flight.isOver && isDemotion(error)) this.reconnect(error);
      },
    );
  }

  /** Sends a command, and resolves to its reply. */
  call(command: string, ...args: string[]): Promise<unknown> {
    return new Promise((resolve, reject) => {
      this.send(command, args, resolve, reject);
    });
  }

  /**
   * Reconnects, because the address may now point to another server. An attempt in progress may still lead to the old
   * one, so it is dropped too.
   */
  reconnect(cause: Error): void {
    if (!this.isClosed) this.#drop(cause);
  }

  /** Waits up to `commandTimeout` ms for the commands in flight, then closes. */
  async close(): Promise<void> {
    if (this.#up && this.#flight.commands > 0) await new Promise<void>((resolve) => (this.#idle = resolve));
    this.#up = false;
    this.#clearTimer();
    this.shut();
  }

  #heard(flight: Flight): void {
    flight.commands -= 1;
    if (flight.isOver) return;
    this.#suspected = false;
    if (flight.commands > 0) this.#lastHeard = this.settings.clock.now();
    else this.#idle?.();
  }

  /** Sends the first commands on a new connection. */
  protected onReady(): void {
    this.#wasReady = true;
    // Do this first: commands from a lost connection that the server hasn't read yet must not run after ours.
    for (const identity of this.#lost) this.#kill(identity);
    void this.#begin(this.#flight);
  }

  #refuse(cause: LockConfigError): void {
    this.#cause = cause;
    this.#onFirstOutcome?.();
  }

  /**
   * Opens the connection unless the server is a replica. If it refuses to tell, the first write reveals the problem.
   */
  async #begin(flight: Flight): Promise<void> {
    const info = await this.#learn('client', 'INFO').then(String, () => {
      this.#refuse(notAClient());
    });
    if (info === undefined || flight !== this.#flight) return;
    const [, id, address] = /^id=(\d+) addr=(\S+)/.exec(info) ?? [];
    if (id !== undefined && address !== undefined) this.#identity = { id, address };
    const wanted = this.connection.database?.();
    const [, actual = wanted] = / db=(\d+)/.exec(info) ?? [];
    if (wanted && Number(actual) !== wanted) {
      this.#refuse(noDatabase(wanted));
      return;
    }
    const isReplica = this.mustBeMaster && isFromReplica(await this.#learn('info', 'replication'));
    if (flight !== this.#flight) return;
    if (isReplica) this.leaveReplica();
    else this.#open();
  }

  /** Resolves to the reply, or to '' if the server refuses the command. Pending forever if the connection is lost. */
  #learn(command: string, ...args: string[]): Promise<unknown> {
    return new Promise((resolve) => {
      this.#transmit(command, args, resolve, (error) => {
        if (isReplyError(error)) resolve('');
      });
    });
  }

  protected override leaveReplica(): void {
    if (this.isClosed) return;
    if (!isDemotion(this.#cause)) this.#cause = new Error('READONLY INFO reports role:slave');
    if (this.settings.topology === 'server') {
      this.#refused(
        'The Redis server for locks is a replica. Locks are unavailable until it is promoted or its address points to a master.',
      );
    }
    this.#onFirstOutcome?.();
    super.leaveReplica();
  }

  #open(): void {
    if (this.isClosed) return;
    this.#up = true;
    this.#wasUp = true;
    this.#refusedSince = undefined;
    this.#isRefusalLogged = false;
    // The cause if the connection ends without an error.
    this.#cause = new Error('The connection was closed.');
    this.#onFirstOutcome?.();
    this.listener.onUp();
  }

  #refused(warning: string): void {
    this.#refusedSince ??= this.settings.clock.now();
    // Logged once per outage. The outage's start event only says that the connection was closed.
    if (this.#isRefusalLogged || this.isClosed) return;
    this.#isRefusalLogged = true;
    this.settings.logger.warn(warning);
  }

  protected override onError(error: unknown): void {
    this.#cause = withoutCommand(error);
    const words = refusedLogin(error);
    if (words === undefined) this.#refusedSince = undefined;
    else {
      this.#refused(
        `Redis rejects the login (${words}), so locks are unavailable until a login succeeds. ${LOGIN_REMEDY}`,
      );
    }
  }

  protected override onClose(): void {
    this.#clearTimer();
    this.#flight.isOver = true;
    this.#flight = { commands: 0, isOver: false };
    this.#idle?.();
    if (this.#identity) this.#lost.add(this.#identity);
    this.#identity = undefined;
    if (!this.#up) {
      this.#onFirstOutcome?.();
      return;
    }
    this.#up = false;
    this.listener.onDown(this.#cause);
  }

  /**
   * Kills our lost connection at the server. Otherwise, an acquire that the server hasn't read yet could run after the
   * release we send now, and hold the lock for a request that has ended. (A generation number in each command would do
   * the same, but at a cost per command.) The id and the address must both match, because ids start over when a server
   * is restarted or replaced. If the ACL denies the command, such an orphaned hold ends with its lease.
   */
  #kill(identity: ConnectionIdentity): void {
    const { id, address } = identity;
    this.#transmit(
      'client',
      ['KILL', 'ID', id, 'ADDR', address],
      () => this.#lost.delete(identity),
      (error) => {
        // If there is no reply, the next connection tries again.
        if (!isReplyError(error)) return;
        this.#lost.delete(identity);
        if (isForbidden(error)) {
          this.settings.logger.debug(
            'Redis denies CLIENT KILL, so commands from a lost connection may still run late. Grant +client|kill.',
          );
        }
      },
    );
  }

  // One timer for all commands. It is not re-armed while nothing is in flight.
  #listen(delay: number): void {
    const { clock, commandTimeout } = this.settings;
    this.#timer = clock.setTimer(() => {
      this.#timer = undefined;
      if (this.#flight.commands === 0) return;
      const silent = clock.now() - this.#lastHeard;
      if (silent < commandTimeout) this.#listen(Math.max(1, Math.ceil(commandTimeout - silent)));
      else if (this.#suspected) this.#drop(new Error(`The server did not respond for ${Math.round(silent)} ms.`));
      else {
        // After the event loop was blocked, timers run before sockets are read, so first let replies that have arrived
        // be read. node-redis writes from setImmediate and may not even have sent the command, so allow for a round
        // trip.
        this.#suspected = true;
        this.#listen(REPLY_GRACE);
      }
    }, delay);
  }

  #clearTimer(): void {
    if (this.#timer !== undefined) this.settings.clock.clearTimer(this.#timer);
    this.#timer = undefined;
  }

  #drop(cause: Error): void {
    this.#cause = cause;
    this.onClose();
    this.connection.disconnect(true);
  }
}

/**
 * The commands sent on one connection. ioredis still reads replies from the half-closed socket after we drop the
 * connection; node-redis doesn't. A server that hung and wakes up would confirm locks that another server has since
 * granted, so such a reply counts as a failure.
 */
interface Flight {
  commands: number;
  /** The connection was dropped or has ended. */
  isOver: boolean;
}

interface ConnectionIdentity {
  readonly id: string;
  readonly address: string;
}
