import type { AcquireRequest, Holding, Instance } from '../../api/lock-provider.js';

/** How many instance names to cache: more than any fleet needs. */
const NAMES_CACHED = 1_000;

/** A holder as reported by a server. */
export interface SeenHolder {
  readonly holders: number;
  /** The instance id; `null` if there are several holders. */
  readonly instance: string | null;
  /** How long the lock had been held when the server responded, in ms; `null` if unknown. */
  readonly heldFor: number | null;
  /** Where the holder's name is stored, if not under its instance id. */
  readonly nameAt?: string;
}

interface Seen extends Omit<Holding, 'instance'> {
  /** The instance id. */
  readonly id: string | null;
}

/**
 * The holders that block this process's requests, as last reported by the server. Instance names are read in the
 * background, so no caller waits for them.
 */
export class SeenHolders {
  /** Names by instance id. An id maps to itself while its name is being read, or if none is stored. */
  readonly #names = new Map<string, string>();

  /** @param readName reads the name stored at `nameAt`, or under the id; resolves to the id if there is none */
  constructor(
    private readonly own: Instance,
    private readonly readName: (id: string, nameAt: string | undefined) => Promise<string>,
  ) {}

  /** Records that this holder blocks the request. @param seenAt when the command that found the holder was sent */
  saw(request: AcquireRequest, holder: SeenHolder | undefined, seenAt: number): void {
    if (holder === undefined) {
      request.seen = undefined;
      return;
    }
    const { holders, instance: id, heldFor, nameAt } = holder;
    const seen: Seen = { holders, id, since: heldFor === null ? null : seenAt - heldFor, seenAt };
    request.seen = seen;
    if (id !== null) this.#learn(id, nameAt);
  }

  heldBy(request: AcquireRequest): Holding | null {
    const seen = request.seen as Seen | undefined;
    if (seen === undefined) return null;
    const { holders, id, since, seenAt } = seen;
    return { holders, instance: id === null ? null : this.#nameOf(id), since, seenAt };
  }

  #nameOf(id: string): string {
    return id === this.own.id ? this.own.name : (this.#names.get(id) ?? id);
  }

  #learn(id: string, nameAt: string | undefined): void {
    if (id === this.own.id || this.#names.has(id)) return;
    if (this.#names.size >= NAMES_CACHED) {
      const [oldest = id] = this.#names.keys();
      this.#names.delete(oldest);
    }
    this.#names.set(id, id);
    this.readName(id, nameAt).then(
      (name) => {
        if (this.#names.has(id)) this.#names.set(id, name);
      },
      // Try again when this id is next reported.
      () => this.#names.delete(id),
    );
  }
}
