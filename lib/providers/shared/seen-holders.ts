import type { AcquireRequest, Holding, Instance } from '../../api/lock-provider.js';

/** So many names of instances are kept. A fleet has fewer. */
const NAMES = 1_000;

/** A holder, as a server answers it. */
export interface SeenHolder {
  /** How many hold the lock. */
  readonly holders: number;
  /** The id of the instance; `null` if there are several holders. */
  readonly instance: string | null;
  /** For how many ms it had the lock when the server answered; `null` where that is not known. */
  readonly heldFor: number | null;
  /** Where its name is recorded, if that is not by its id. */
  readonly nameAt?: string;
}

interface Seen extends Omit<Holding, 'instance'> {
  /** The id of the instance. */
  readonly id: string | null;
}

/**
 * The holders that keep requests of this process out, as the server last answered. The names of their instances are read in the background, while callers
 * wait: nothing waits for a name.
 */
export class SeenHolders {
  /** By id: the names, or the ids while they are read and where no name is recorded. */
  readonly #names = new Map<string, string>();

  /** @param readName resolves to the id where no name is recorded; `nameAt` is that of the holder */
  constructor(
    private readonly own: Instance,
    private readonly readName: (id: string, nameAt: string | undefined) => Promise<string>,
  ) {}

  /** The server has answered that the request is kept out by this holder. `seenAt`: when it was asked, on the monotonic clock. */
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
    if (this.#names.size >= NAMES) {
      const [oldest = id] = this.#names.keys();
      this.#names.delete(oldest);
    }
    this.#names.set(id, id);
    this.readName(id, nameAt).then(
      (name) => {
        if (this.#names.has(id)) this.#names.set(id, name);
      },
      // The next answer that names it reads it again.
      () => this.#names.delete(id),
    );
  }
}
