import { BUCKETS } from '../key-layout.js';
import type { Address, NatMap } from '../client/redis-connection.js';
import { hashSlotOf } from './hash-slot.js';

const BUCKET_SLOTS = Array.from({ length: BUCKETS }, (_, bucket) => hashSlotOf(String(bucket)));

/**
 * Reads the reply to `CLUSTER SLOTS`: the master of each bucket; nothing for a bucket that no master serves.
 *
 * A node that does not know its own name leaves it out, which means the one under which it was asked.
 */
export function readSlotMap(reply: unknown, asked: Address, natMap?: NatMap): (Address | undefined)[] {
  const ranges = Array.isArray(reply) ? (reply as [number, number, [string | null, number]][]) : [];
  return BUCKET_SLOTS.map((slot) => {
    const range = ranges.find(([first, last]) => first <= slot && slot <= last);
    if (range === undefined) return undefined;
    const [host, port] = range[2];
    const address = { host: host === null || host === '' ? asked.host : host, port };
    const key = keyOf(address);
    return (typeof natMap === 'function' ? natMap(key) : natMap?.[key]) ?? address;
  });
}

export function keyOf({ host, port }: Address): string {
  return `${host}:${port}`;
}
