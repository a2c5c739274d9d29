import type { Dice } from './dice.js';
import type { Network, WorldServer } from './network.js';
import { bucketOf } from './slot-map.js';

/** The minimum duration of a migration, and how often an unresponsive server is retried, in ms. */
const LASTS = 5;
const AGAIN = 20;
/** The maximum time until the other masters learn of a new owner, in ms. */
const HEARD_WITHIN = 500;

/**
 * Migrates a bucket's slot as `redis-cli --cluster reshard` does: first both masters learn of the migration, then the
 * keys move one after another, and then the target owns the slot. The source learns that a moment later, and the others
 * when these two tell them.
 */
export function migrate(
  { network, bucket, lasts, dice }: { network: Network; bucket: number; lasts: number; dice: Dice },
  onMoved: (target: number) => void,
): void {
  const { slots, timeline } = network;
  if (slots === undefined) throw new Error('Only a Cluster has slots.');
  const source = network.serverAt(slots.owners[bucket] as number);
  const to = dice.pick(network.masters.filter((master) => master !== source));
  const target = network.portOf(to);
  slots.migrating.set(bucket, target);
  source.model.slots?.migrating.set(bucket, target);
  const end = timeline.now + LASTS + lasts;

  const own = () => {
    slots.owners[bucket] = target;
    slots.migrating.delete(bucket);
    learn(to, bucket, target);
    timeline.in(dice.between(0, LASTS), () => {
      learn(source, bucket, target);
    });
    notifyOthers(network, bucket, [to, source], dice);
    onMoved(target);
  };
  const step = () => {
    const [key, ...rest] = source.model.keys().filter((each) => bucketOf(each) === bucket);
    if (!answers(source) || !answers(to)) timeline.in(AGAIN, step);
    else if (key === undefined) own();
    else {
      source.model.give(key, to.model);
      timeline.in(Math.max(0, end - timeline.now) / (1 + rest.length), step);
    }
  };
  const answers = (server: WorldServer) => timeline.now >= Math.max(server.pausedUntil, server.downUntil);
  timeline.in(lasts / 4, step);
}

/** A replica is promoted: it owns all slots of its master, and the other masters learn that a moment later. */
export function promote(network: Network, old: WorldServer, promoted: WorldServer, dice: Dice): void {
  const { slots } = network;
  if (slots === undefined) throw new Error('Only a Cluster has slots.');
  const [from, to] = [old, promoted].map((server) => network.portOf(server)) as [number, number];
  for (const [bucket, port] of slots.owners.entries()) {
    if (port !== from) continue;
    slots.owners[bucket] = to;
    learn(promoted, bucket, to);
    notifyOthers(network, bucket, [old, promoted], dice);
  }
}

/** A replaced master learns everything that has happened in the meantime. */
export function rejoin(network: Network, old: WorldServer): void {
  const { owners = [] } = network.slots ?? {};
  for (const [bucket, port] of owners.entries()) learn(old, bucket, port);
  if (old.model.slots) old.model.slots.isCutOff = false;
}

function notifyOthers(
  { servers, slots, timeline }: Network,
  bucket: number,
  informed: WorldServer[],
  dice: Dice,
): void {
  for (const other of servers) {
    if (informed.includes(other)) continue;
    timeline.in(dice.between(0, HEARD_WITHIN), () => {
      learn(other, bucket, slots?.owners[bucket] as number);
    });
  }
}

function learn({ model }: WorldServer, bucket: number, owner: number): void {
  const { slots } = model;
  if (slots === undefined || slots.owners[bucket] === owner) return;
  const wasOwn = slots.owners[bucket] === slots.port;
  slots.owners[bucket] = owner;
  slots.migrating.delete(bucket);
  if (wasOwn) model.lose(bucket);
}
