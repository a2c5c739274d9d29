import { type Reply, replyError } from './lua-engine.js';

/**
 * The hash slots of the locks' 16 buckets, which are the tags `{0}` to `{15}`. `test/redis/world-model.spec.ts`
 * compares them with a real server.
 */
export const SLOTS: readonly number[] = [
  ...[13_907, 9_842, 5_649, 1_584, 14_039, 9_974, 5_781, 1_716],
  ...[14_171, 10_106, 247, 4_310, 8_373, 12_436, 115, 4_178],
];

const HOST = '10.0.1.1';
const NON_LOCAL = 'ERR Script attempted to access a non local key in a cluster node';

/** The bucket in the name of a key or channel. Every name in the simulation has one. */
export function bucketOf(name: string): number {
  return Number.parseInt(name.slice(name.indexOf('{') + 1), 10);
}

/** What a master of a Cluster knows: which master owns each slot, and which of its own slots are migrating. */
export class SlotMap {
  /** The ports to which its own slots are migrating, by bucket. */
  readonly migrating = new Map<number, number>();
  /** Whether the node knows that it was cut off, but not yet what happened in the meantime. */
  isCutOff = false;

  /** @param owners the ports of the owners, by bucket */
  constructor(
    readonly owners: number[],
    readonly port: number,
  ) {}

  ownerOf(name: string): number | undefined {
    return this.owners[bucketOf(name)];
  }

  /**
   * The reply to a command that this node doesn't execute, as Redis 7 gives it before checking anything else.
   *
   * @param names the keys or the channel of the command
   * @param has whether a key is here; always true for a channel
   */
  refusal(names: readonly string[], has: (name: string) => boolean): Error | undefined {
    const [first] = names;
    if (first === undefined) return undefined;
    const bucket = bucketOf(first);
    if (names.some((name) => bucketOf(name) !== bucket)) {
      return replyError("CROSSSLOT Keys in request don't hash to the same slot");
    }
    if (this.isCutOff) return replyError('CLUSTERDOWN The cluster is down');
    const owner = this.owners[bucket];
    if (owner !== this.port) return replyError(`MOVED ${SLOTS[bucket]} ${HOST}:${owner}`);
    const target = this.migrating.get(bucket);
    const found = names.filter(has).length;
    if (target === undefined || found === names.length) return undefined;
    return replyError(
      found === 0
        ? `ASK ${SLOTS[bucket]} ${HOST}:${target}`
        : 'TRYAGAIN Multiple keys request during rehashing of slot',
    );
  }

  /** The same for a command of a script. */
  refusalInScript(names: readonly string[], has: (name: string) => boolean): Error | undefined {
    return this.refusal(names, has) && replyError(NON_LOCAL);
  }

  /** The reply to `CLUSTER SLOTS`. */
  get ranges(): Reply {
    return this.owners.map((port, bucket) => [SLOTS[bucket] ?? 0, SLOTS[bucket] ?? 0, [HOST, port]]);
  }
}
