// The whole module, because applications replace `dns.lookup`, and `net.connect` calls what they put there.
import dns from 'node:dns';
import { isIP } from 'node:net';
import { isError, safeText } from '../../api/cause.js';
import type { BackendContext } from '../../api/lock-provider.js';
import { withTimeout } from '../../core/toolkit/timing.js';
import { ZooKeeperFailure } from './zookeeper-client.js';
import type { Server, ZooKeeperSettings } from './zookeeper-options.js';

/** How many failures an error lists. */
const MOST_LISTED = 10;

/** One of the addresses that the name of a server stands for. */
export interface ServerAddress extends Server {
  readonly address: string;
}

/**
 * The addresses of the connect string, and how each of them has failed.
 *
 * A name stands for all of its addresses, as it does for Java's client and for kazoo: one name of a headless service of Kubernetes is all
 * servers. They are looked up again for each round, because addresses of pods change.
 */
export class ServerAddresses {
  /** How many addresses the latest round has, and names whose addresses may come later. */
  size = 1;
  /** A lookup blocks a thread of Node until it is answered, perhaps for half a minute, so no name has two. */
  readonly #lookups = new Map<Server, Promise<void>>();
  readonly #known = new Map<Server, readonly string[]>();
  /** Why a name has no addresses. */
  readonly #unresolved = new Map<Server, Error>();
  /** How the addresses of this round have failed, by what an error calls them. */
  readonly #failures = new Map<string, Error>();

  constructor(
    private readonly settings: Pick<ZooKeeperSettings, 'servers' | 'tls'>,
    private readonly context: Pick<BackendContext, 'clock' | 'random'>,
  ) {}

  /**
   * The addresses of a round, in an order by which processes spread over the servers, also when one of them goes.
   *
   * @param last comes last
   * @param wait for how many ms a lookup is waited for
   */
  async round(last: ServerAddress | undefined, wait: number): Promise<ServerAddress[]> {
    const { clock, random } = this.context;
    const lookups = this.settings.servers.filter(({ host }) => !isIP(host)).map((server) => this.#lookUp(server));
    if (lookups.length > 0) await withTimeout(clock, wait, Promise.all(lookups));
    const addresses = this.settings.servers.flatMap((server) =>
      (isIP(server.host) ? [server.host] : (this.#known.get(server) ?? [])).map((address) => ({ ...server, address })),
    );
    this.size = addresses.length + this.#lookups.size;
    const names = new Set(addresses.map(nameOf));
    for (const name of this.#failures.keys()) if (!names.has(name)) this.#failures.delete(name);
    const lastName = last && nameOf(last);
    return addresses
      .map((server) => ({ server, at: nameOf(server) === lastName ? 1 : random.fraction() }))
      .sort((one, other) => one.at - other.at)
      .map(({ server }) => server);
  }

  failed(server: ServerAddress, error: Error): void {
    // As the latest.
    this.#failures.delete(nameOf(server));
    this.#failures.set(nameOf(server), error);
  }

  /** A server has greeted us. */
  forgetFailures(): void {
    this.#failures.clear();
  }

  /** All that was tried in vain. */
  failure(): ZooKeeperFailure {
    const tried = [
      ...Array.from(this.#unresolved, ([{ host }, error]) => [host, error] as const),
      ...this.#failures,
    ].reverse();
    const shown = tried.slice(0, MOST_LISTED).map(([name, error]) => `${name} (${reasonOf(error)})`);
    const more = tried.length > MOST_LISTED ? ` and ${tried.length - MOST_LISTED} more` : '';
    // A server that has said something explains more than an address that could not be reached.
    const [, cause] = tried.find(([, error]) => !('syscall' in error)) ?? tried[0] ?? [];
    return new ZooKeeperFailure('unanswered', `No server of ZooKeeper answers. Tried: ${shown.join(', ')}${more}.`, {
      cause,
    });
  }

  #lookUp(server: Server): Promise<void> {
    const lookup = this.#lookups.get(server) ?? this.#ask(server).finally(() => this.#lookups.delete(server));
    this.#lookups.set(server, lookup);
    return lookup;
  }

  async #ask(server: Server): Promise<void> {
    this.#unresolved.set(server, new Error('its name is not resolved yet'));
    try {
      this.#known.set(server, await this.#addressesOf(server.host));
      this.#unresolved.delete(server);
    } catch (error) {
      this.#known.delete(server);
      this.#unresolved.set(server, isError(error) ? error : new Error(String(error)));
    }
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
