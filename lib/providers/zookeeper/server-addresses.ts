// The whole module, because applications replace `dns.lookup`, and `net.connect` calls what they put there.
import dns from 'node:dns';
import { isIP } from 'node:net';
import { isError, safeText } from '../../api/cause.js';
import type { Random } from '../../api/random.js';
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
  /** Still to be tried in this round. */
  #rest: ServerAddress[] = [];
  #size = 1;
  #last: ServerAddress | undefined;
  /** A lookup blocks a thread of Node until it is answered, perhaps for half a minute, so no name has two. */
  readonly #pending = new Set<Server>();
  /** Why a name has no addresses. */
  readonly #unresolved = new Map<Server, Error>();
  /** How the addresses of this round have failed, by what an error calls them. */
  readonly #failures = new Map<string, Error>();

  /** @param onKnown called when no lookup is left to wait for */
  constructor(
    private readonly settings: Pick<ZooKeeperSettings, 'servers' | 'tls'>,
    private readonly random: Pick<Random, 'fraction'>,
    private readonly onKnown: () => void,
  ) {}

  /** How many addresses this round has, and names whose addresses may come later. */
  get size(): number {
    return this.#size;
  }

  get isExhausted(): boolean {
    return this.#rest.length === 0;
  }

  get isLookingUp(): boolean {
    return this.#pending.size > 0;
  }

  /** Looks all names up. Addresses that are found after {@link begin} belong to the round as well. */
  lookUp(): void {
    this.#rest = [];
    for (const server of this.settings.servers) {
      if (isIP(server.host)) this.#rest.push({ ...server, address: server.host });
      else if (!this.#pending.has(server)) void this.#lookUp(server);
    }
    if (this.#pending.size === 0) this.onKnown();
  }

  /** Begins a round with what is known by now, in an order by which processes spread over the servers, also when one of them goes. */
  begin(): void {
    // The address that was lost comes last.
    const { host, port, address } = this.#last ?? {};
    const isLast = (other: ServerAddress) => other.host === host && other.port === port && other.address === address;
    this.#rest = this.#rest
      .map((server) => ({ server, at: isLast(server) ? 1 : this.random.fraction() }))
      .sort((one, other) => one.at - other.at)
      .map(({ server }) => server);
    this.#size = this.#rest.length + this.#pending.size;
    const names = new Set(this.#rest.map(nameOf));
    for (const name of this.#failures.keys()) if (!names.has(name)) this.#failures.delete(name);
  }

  next(): ServerAddress | undefined {
    const next = this.#rest.shift();
    if (next) this.#last = next;
    return next;
  }

  /** Ends the round. */
  clear(): void {
    this.#rest = [];
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

  async #lookUp(server: Server): Promise<void> {
    this.#pending.add(server);
    this.#unresolved.set(server, new Error('its name is not resolved yet'));
    try {
      const addresses = await this.#addressesOf(server.host);
      this.#unresolved.delete(server);
      this.#rest.push(...addresses.map((address) => ({ ...server, address })));
    } catch (error) {
      this.#unresolved.set(server, isError(error) ? error : new Error(String(error)));
    }
    this.#pending.delete(server);
    if (this.#pending.size === 0) this.onKnown();
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
