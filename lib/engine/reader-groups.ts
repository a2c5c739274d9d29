import type { Grant, Renewal } from './lock-provider.js';

/** Readers of one process that share one shared lock of the backend. It lasts until the last of them has left. */
class ReaderGroup {
  readonly members = new Set<string>();

  constructor(
    /** The lock in the backend, under the holder id of the reader that asked for it. */
    readonly grant: Grant,
    private readonly byMember: Map<string, ReaderGroup>,
  ) {
    this.join(grant.holder);
  }

  join(holder: string): Grant {
    this.members.add(holder);
    this.byMember.set(holder, this);
    return { ...this.grant, holder };
  }
}

/** The groups of readers of one provider, by member. */
export class ReaderGroups {
  readonly #byMember = new Map<string, ReaderGroup>();

  open(grant: Grant): ReaderGroup {
    return new ReaderGroup(grant, this.#byMember);
  }

  /** Takes the member out. Answers the backend's lock to release, if this was the last member; undefined for no member. */
  leave(holder: string): Grant | 'others-stay' | undefined {
    const group = this.#byMember.get(holder);
    if (!group) return undefined;
    this.#byMember.delete(holder);
    group.members.delete(holder);
    return group.members.size === 0 ? group.grant : 'others-stay';
  }

  /** Everybody who holds by the backend's lock of `holder`: the members of its group, or itself. */
  membersOf(holder: string): readonly string[] {
    for (const group of this.#byMember.values()) if (group.grant.holder === holder) return [...group.members];
    return [holder];
  }

  /** The backend's locks beneath these renewals, each once, and where to find the outcome of each renewal. */
  physical(renewals: readonly Renewal[]): {
    readonly renewals: readonly Renewal[];
    readonly indexes: readonly number[];
  } {
    const once: Renewal[] = [];
    const indexOf = new Map<string, number>();
    const indexes = renewals.map((renewal) => {
      const grant = this.#byMember.get(renewal.grant.holder)?.grant ?? renewal.grant;
      let index = indexOf.get(grant.holder);
      if (index === undefined) {
        index = once.push({ grant, lease: renewal.lease }) - 1;
        indexOf.set(grant.holder, index);
      }
      return index;
    });
    return { renewals: once, indexes };
  }
}
