// Import the whole module so that a replaced `dns.lookup` takes effect, as it does in `net.connect`.
import dns from 'node:dns';
import { isIP } from 'node:net';
import { isError, safeText } from '../../api/cause.js';
import type { BackendContext } from '../../api/lock-provider.js';
import { withTimeout } from '../../core/toolkit/timing.js';
import { ZooKeeperFailure } from './zookeeper-failure.js';
import type { Server, ZooKeeperSettings } from './zookeeper-options.js';

const MAX_FAILURES_LISTED = 10;

/** One of the addresses that a host name resolves to. */
export interface ServerAddress extends Server {
  readonly address: string;
}

/** A host of the connect string. */
interface Host {
  readonly server: Server;
  addresses: readonly string[];
  /** Why a name has no addresses. */
  error?: Error | undefined;
  /**
   * A lookup blocks a libuv thread until it completes, which may take half a minute, so there is only one lookup per
   * name.
   */
  lookup?: Promise<void> | undefined;
}

/**
 * The connect string's addresses and their connection failures.
 *
 * As in the Java client and kazoo, a host name expands to all of its addresses: a headless Kubernetes service is one
 * name for all servers. Names are resolved again in every round, because pod addresses change.
 */
export class ServerAddresses {
  /** The number of addresses in this round plus the number of names still being resolved. */
  size = 1;
  readonly #hosts: readonly Host[];
  /** This round's connection failures, keyed by the address as displayed. */
  readonly #failures = new Map<string, Error>();

  constructor(
    private readonly settings: Pick<ZooKeeperSettings, 'servers' | 'tls'>,
    private readonly context: Pick<BackendContext, 'clock' | 'random'>,
  ) {
    this.#hosts = settings.servers.map((server) => ({ server, addresses: isIP(server.host) ? [server.host] : [] }));
  }

  /**
   * The addresses to try in this round. The order is random, to spread processes across the servers, even after one
   * fails.
   *
   * @param last moved to the end
   * @param wait how long to wait for lookups, in ms
   */
  async round(last: ServerAddress | undefined, wait: number): Promise<ServerAddress[]> {
    const { clock, random } = this.context;
    const named = this.#hosts.filter(({ server }) => !isIP(server.host));
    const lookups = named.map((host) => (host.lookup ??= this.#resolve(host)));
    if (lookups.length > 0) await withTimeout(clock, wait, Promise.all(lookups));
    const addresses = this.#hosts.flatMap(({ server, addresses }) =>
      addresses.map((address) => ({ ...server, address })),
    );
    this.size = addresses.length + named.filter(({ lookup }) => lookup !== undefined).length;
    const names = new Set(addresses.map(nameOf));
    for (const name of this.#failures.keys()) if (!names.has(name)) this.#failures.delete(name);
    const lastName = last && nameOf(last);
    return addresses
      .map((server) => ({ server, at: nameOf(server) === lastName ? 1 : random.fraction() }))
      .sort((one, other) => one.at - other.at)
      .map(({ server }) => server);
  }

  failed(server: ServerAddress, error: Error): void {
    // Delete the old entry first so that the latest failure comes last.
    this.#failures.delete(nameOf(server));
    this.#failures.set(nameOf(server), error);
  }

  /** Called when a server has accepted the session. */
  forgetFailures(): void {
    this.#failures.clear();
  }

  /** Describes all of this round's failures. */
  failure(): ZooKeeperFailure {
    const tried = [
      ...this.#hosts.flatMap(({ server, error }) => (error ? [[server.host, error] as const] : [])),
      ...this.#failures,
    ].reverse();
    const shown = tried.slice(0, MAX_FAILURES_LISTED).map(([name, error]) => `${name} (${reasonOf(error)})`);
    const more = tried.length > MAX_FAILURES_LISTED ? ` and ${tried.length - MAX_FAILURES_LISTED} more` : '';
    // An error from a server explains more than a failed connection attempt.
    const [, cause] = tried.find(([, error]) => !('syscall' in error)) ?? tried[0] ?? [];
    return new ZooKeeperFailure('unanswered', `No ZooKeeper server responded. Tried: ${shown.join(', ')}${more}.`, {
      cause,
    });
  }

  async #resolve(host: Host): Promise<void> {
    host.error = new Error('its name has not been resolved yet');
    try {
      host.addresses = await this.#addressesOf(host.server.host);
      host.error = undefined;
    } catch (error) {
      host.addresses = [];
      host.error = isError(error) ? error : new Error(String(error));
    }
    host.lookup = undefined;
  }

  async #addressesOf(host: string): Promise<readonly string[]> {
    const { lookup = dns.lookup } = this.settings.tls ?? {};
    const found = await new Promise<string | readonly (string | dns.LookupAddress)[]>((resolve, reject) => {
      lookup(host, { all: true }, (error, addresses) => {
        if (error) reject(error);
        else resolve(addresses);
      });
    });
    const addresses = [found].flat().map((each) => (typeof each === 'string' ? each : each.address));
    if (addresses.length === 0) throw new Error('its name has no addresses');
    return [...new Set(addresses)];
  }
}

function nameOf({ host, port, address }: ServerAddress): string {
  const shown = address.includes(':') ? `[${address}]` : address;
  return host === address ? `${shown}:${port}` : `${host}:${port} at ${shown}`;
}

function reasonOf(error: Error): string {
  const { syscall, code } = error as NodeJS.ErrnoException;
  return syscall !== undefined && code !== undefined ? `${syscall} ${code}` : safeText(error.message);
}
