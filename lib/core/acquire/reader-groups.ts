import type { AcquireRequest, Grant, Holder, LockBackend, RenewOutcome } from '../../api/lock-provider.js';

/** Whether two readers may hold by one shared lock of the backend: both ask for the same, on the same terms. */
export function canShare(one: AcquireRequest, other: AcquireRequest): boolean {
  if (one.mode !== 'shared' || other.mode !== 'shared') return false;
  return one.lease === other.lease && one.renew === other.renew && one.minHold === other.minHold;
}

/** Readers of one process that share one shared lock of the backend. It lasts until the last of them has left. */
class ReaderGroup {
  readonly members = new Set<string>();
  /** The longest lease that was promised to a member: no other member may shorten it. */
  #lease: number;
  /** The renewal of this tick: the watchdog renews all members in one. */
  #renewal: Promise<RenewOutcome> | undefined;

  /** @param grant the lock in the backend, under the holder id of the reader that asked for it. */
  constructor(readonly grant: Grant) {
    this.#lease = grant.lease;
  }

  /** Renews the lock for all members: once a tick, and again where a member wants a longer lease. */
  renew(lease: number, backend: Pick<LockBackend, 'renew'>): Promise<RenewOutcome> {
    if (this.#renewal && lease <= this.#lease) return this.#renewal;
    this.#lease = Math.max(this.#lease, lease);
    const renewal = backend.renew(this.grant, this.#lease);
    this.#renewal = renewal;
    queueMicrotask(() => {
      if (this.#renewal === renewal) this.#renewal = undefined;
    });
    return renewal;
  }

  join(holder: string): Grant {
    this.members.add(holder);
    return new MemberGrant(this, holder);
  }
}

/** What one member of a group holds. It carries its group, so that a release can be sent again under the group's id. */
class MemberGrant implements Grant {
  readonly key: string;
  readonly mode: Grant['mode'];
  readonly fencingToken: bigint | null;
  readonly validUntil: number;
  readonly lease: number;

  constructor(
    readonly group: ReaderGroup,
    readonly holder: string,
  ) {
    const { grant } = group;
    this.key = grant.key;
    this.mode = grant.mode;
    this.fencingToken = grant.fencingToken;
    this.validUntil = grant.validUntil;
    this.lease = grant.lease;
  }
}

/** The groups of readers of one provider. */
export class ReaderGroups {
  readonly #byPhysicalHolder = new Map<string, ReaderGroup>();

  /** A group that shares this lock; nobody has joined it yet. */
  open(grant: Grant): ReaderGroup {
    const group = new ReaderGroup(grant);
    this.#byPhysicalHolder.set(grant.holder, group);
    return group;
  }

  /** Takes the holder out of its group. Answers what is to be released in the backend, if anything. */
  leave(holder: Holder): Holder | 'others-stay' {
    if (!(holder instanceof MemberGrant)) return holder;
    const { grant, members } = holder.group;
    members.delete(holder.holder);
    if (members.size > 0) return 'others-stay';
    this.#byPhysicalHolder.delete(grant.holder);
    return grant;
  }

  /** The holders that share the backend's lock of `holder`: the members of its group, or itself. */
  membersOf(holder: string): readonly string[] {
    const group = this.#byPhysicalHolder.get(holder);
    return group ? [...group.members] : [holder];
  }

  /** Renews what the backend has: the lock of the group, or the holder's own. */
  renew(grant: Grant, lease: number, backend: Pick<LockBackend, 'renew'>): Promise<RenewOutcome> {
    return grant instanceof MemberGrant ? grant.group.renew(lease, backend) : backend.renew(grant, lease);
  }
}
