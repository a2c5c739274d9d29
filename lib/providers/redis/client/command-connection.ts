import type { Timer } from '../../../api/clock.js';
import type { LockConfigError } from '../../../api/errors.js';
import { REFUSAL_RETRIED_FOR } from '../../../core/toolkit/retryable.js';
import { type ConnectionSettings, OpenConnection } from './open-connection.js';
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

/** How long to wait before a server that is a replica is left, to see where its address leads then, in ms. */
const REPLICA_PAUSE = 500;

/** How long a connection that has fallen silent is still listened to, in ms. */
const SECOND_LOOK = 50;

type OnReply = (reply: unknown) => void;
type OnFailure = (error: unknown) => void;

/** Reacts to the state of a connection. */
export interface ConnectionListener {
  /** The connection is ready for commands: for the first time, or again. */
  onUp(): void;
  /** The connection was ready and is not any more; every command in flight has an unknown outcome. */
  onDown(cause: unknown): void;
}

/**
 * A connection for commands. It knows whether it is up, and drops itself when the server falls silent.
 *
 * A frozen server or a cut network closes no socket. So when commands are in flight and nothing came back for `commandTimeout` ms, the
 * connection is dropped and a new one is made.
 *
 * It is up only when the server has reported under which id it knows the connection. Commands that were sent can then be kept from
 * being executed late, by ending the connection at the server. That is one round trip per connection, and nothing per command.
 *
 * Nor is it up at a replica, which refuses all that locks need. Otherwise an outage would end with each connection and begin with each command.
 */
export class CommandConnection extends OpenConnection implements CommandSender {
  #up = false;
  /** The commands in flight on the connection in use. */
  #flight: Flight = { commands: 0, isOver: false };
  #lastHeard = 0;
  #timer: Timer | undefined;
  /** The connection in use, as the server knows it, and those that were lost and may not have ended there. */
  #identity: ConnectionIdentity | undefined;
  readonly #lost = new Set<ConnectionIdentity>();
  #suspected = false;
  #cause: unknown = new Error('The connection was closed before it was ready.');
  #onFirstOutcome: (() => void) | undefined;
  #idle: (() => void) | undefined;
  /** The refusal of its login is in the log. */
  #isRefusalLogged = false;
  #wasReady = false;
  #wasUp = false;
  /** Since when the server refuses the login, or writes, on the monotonic clock. */
  #refusedSince: number | undefined;
  /** Ends the connection to a replica. */
  #leaving: Timer | undefined;

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

  get isIdle(): boolean {
    return this.unanswered === 0;
  }

  /** How many commands the server has not answered yet. */
  get unanswered(): number {
    return this.#flight.commands;
  }

  get cause(): unknown {
    // Where nothing was accepted before, as at the start, nothing can have changed.
    const since = this.#refusedSince;
    if (since === undefined || (this.#wasUp && this.settings.clock.now() - since < REFUSAL_RETRIED_FOR))
      return this.#cause;
    return new DefiniteRefusal(this.#cause);
  }

  /** Rejects when the first try has failed; then it continues by itself. */
  connect(): Promise<void> {
    return new Promise((resolve, reject) => {
      this.#onFirstOutcome = () => {
        if (this.#up) resolve();
        else reject(this.cause);
      };
      // The promise resolves too early, and that of ioredis has fewer details.
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
          onFailure(new Error('The reply came after its connection was given up.'));
          return;
        }
        onReply(reply);
        // The script answers for each operation by itself.
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

  /** As {@link send}, as a promise. */
  ask(command: string, ...args: string[]): Promise<unknown> {
    return new Promise((resolve, reject) => {
      this.send(command, args, resolve, reject);
    });
  }

  /** Connects again unless it is down already: the address may lead to another server now. */
  reconnect(cause: Error): void {
    if (this.#up) this.#giveUp(cause);
  }

  /** Waits for the commands in flight, for up to `commandTimeout` ms, and closes. */
  async close(): Promise<void> {
    if (this.#up && this.#flight.commands > 0) await new Promise<void>((resolve) => (this.#idle = resolve));
    this.#up = false;
    this.#clearTimers();
    this.shut();
  }

  #heard(flight: Flight): void {
    flight.commands -= 1;
    if (flight.isOver) return;
    this.#suspected = false;
    if (flight.commands > 0) this.#lastHeard = this.settings.clock.now();
    else this.#idle?.();
  }

  /** The first commands on a new connection. */
  protected onReady(): void {
    this.#wasReady = true;
    // Before anything else: commands that a lost connection left unread at the server must not be executed after later ones.
    for (const identity of this.#lost) this.#kill(identity);
    try {
      this.#identify();
    } catch {
      this.#refuse(notAClient());
    }
  }

  #refuse(cause: LockConfigError): void {
    this.#cause = cause;
    this.#onFirstOutcome?.();
  }

  #identify(): void {
    this.#transmit(
      'client',
      ['INFO'],
      (info) => {
        const [, id, address] = /^id=(\d+) addr=(\S+)/.exec(String(info)) ?? [];
        if (id !== undefined && address !== undefined) this.#identity = { id, address };
        const wanted = this.connection.database?.();
        const [, actual = wanted] = / db=(\d+)/.exec(String(info)) ?? [];
        if (wanted && Number(actual) !== wanted) this.#refuse(noDatabase(wanted));
        else this.#examine();
      },
      (error) => {
        // Refused, and not lost: then the connection works without an id.
        if (isReplyError(error)) this.#examine();
      },
    );
  }

  /** Whether it is a master. Where that is not known, the first command finds out. */
  #examine(): void {
    if (this.settings.topology === 'cluster' || this.settings.topology === 'voter') {
      // A replica of a Cluster redirects, and a node that does not take votes is one of the minority.
      this.#open();
      return;
    }
    this.#transmit(
      'info',
      ['replication'],
      (text) => {
        if (/^role:slave/m.test(String(text))) this.#leaveReplica();
        else this.#open();
      },
      (error) => {
        if (isReplyError(error)) this.#open();
      },
    );
  }

  #leaveReplica(): void {
    if (this.isClosed) return;
    if (!isDemotion(this.#cause)) this.#cause = new Error('READONLY INFO answers role:slave');
    if (this.settings.topology === 'server') {
      this.#refused(
        'The Redis of the locks is a replica, so they are unavailable until it is a master, or its address leads to one.',
      );
    }
    this.#onFirstOutcome?.();
    this.#leaving = this.settings.clock.setTimer(
      () => {
        this.connection.disconnect(true);
      },
      REPLICA_PAUSE,
      true,
    );
  }

  #open(): void {
    if (this.isClosed) return;
    this.#up = true;
    this.#wasUp = true;
    this.#refusedSince = undefined;
    this.#isRefusalLogged = false;
    // The default cause, because a connection may end without an error.
    this.#cause = new Error('The connection was closed.');
    this.#onFirstOutcome?.();
    this.listener.onUp();
  }

  #refused(warning: string): void {
    this.#refusedSince ??= this.settings.clock.now();
    // Once for each outage, because it lasts, and the log says of its beginning only that the connection was closed.
    if (this.#isRefusalLogged || this.isClosed) return;
    this.#isRefusalLogged = true;
    this.settings.logger.warn(warning);
  }

  protected override onError(error: unknown): void {
    // The cause goes where the failure is reported.
    this.#cause = withoutCommand(error);
    const words = refusedLogin(error);
    if (words === undefined) this.#refusedSince = undefined;
    else {
      this.#refused(
        `Redis refuses the login of the locks (${words}), so they are unavailable until it accepts. ${LOGIN_REMEDY}`,
      );
    }
  }

  protected override onClose(): void {
    this.#clearTimers();
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
   * Ends our lost connection at the server. Bytes that the server had not read yet could otherwise be executed after a release
   * that we send now, and hold the lock for a request that is over. (A connection generation in each command would keep the
   * same order; this costs nothing per command.) Both the id and the address must match, because ids start again when a
   * server is restarted or replaced. Where the ACL refuses the command, such a hold ends with its lease.
   */
  #kill(identity: ConnectionIdentity): void {
    const { id, address } = identity;
    this.#transmit(
      'client',
      ['KILL', 'ID', id, 'ADDR', address],
      () => this.#lost.delete(identity),
      (error) => {
        // Without an answer it is killed again by the next connection.
        if (!isReplyError(error)) return;
        this.#lost.delete(identity);
        if (isForbidden(error)) {
          this.settings.logger.debug('Redis refuses CLIENT KILL: a lost connection may execute commands late.');
        }
      },
    );
  }

  // One timer for all commands, and none while nothing is in flight for long.
  #listen(delay: number): void {
    const { clock, commandTimeout } = this.settings;
    this.#timer = clock.setTimer(() => {
      this.#timer = undefined;
      if (this.#flight.commands === 0) return;
      const silent = clock.now() - this.#lastHeard;
      if (silent < commandTimeout) this.#listen(Math.max(1, Math.ceil(commandTimeout - silent)));
      else if (this.#suspected) this.#giveUp(new Error(`The server did not answer for ${Math.round(silent)} ms.`));
      else {
        // After a blocked event loop timers run before sockets are read, so replies that have arrived are read first. node-redis has not
        // even written then what was sent just before (it writes from setImmediate), so there is time for a round trip.
        this.#suspected = true;
        this.#listen(SECOND_LOOK);
      }
    }, delay);
  }

  #clearTimers(): void {
    for (const timer of [this.#timer, this.#leaving]) if (timer !== undefined) this.settings.clock.clearTimer(timer);
    this.#timer = this.#leaving = undefined;
  }

  #giveUp(cause: Error): void {
    this.#cause = cause;
    this.onClose();
    this.connection.disconnect(true);
  }
}

/**
 * The commands that were sent on one connection. After the connection is given up, ioredis still reads replies on its half-closed
 * socket (node-redis does not). A server that hung and wakes up would answer there for locks that another server has granted since, so such a reply is a failure.
 */
interface Flight {
  commands: number;
  /** The connection was given up or has ended. */
  isOver: boolean;
}

interface ConnectionIdentity {
  readonly id: string;
  readonly address: string;
}
