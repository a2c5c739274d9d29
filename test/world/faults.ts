import { Dice } from './dice.js';
import { FAILOVER, MEMBERS } from './failover-judge.js';
import type { Judge } from './judge.js';
import { migrate, promote, rejoin } from './migration.js';
import type { Link, Network, WorldServer } from './network.js';
import { type Fault, type FaultKind, longestHold, type Plan } from './plan.js';
import { type Effect, isLock } from './redis-model.js';
import { bucketOf } from './slot-map.js';
import type { Story, Timeline } from './timeline.js';
import type { Process } from './workload.js';

/** What faults can change besides the network. */
export interface Fleet {
  /** The processes, by place. */
  readonly processes: readonly Process[];
  makeServer(): WorldServer;
  boot(place: number): void;
}

/** The minimum time that a replaced master hangs, in ms, and how long it then still believes it is the master. */
const HANGS = 500;
const STILL_MASTER = 50;

/** The minimum time that a server takes to start, in ms. */
const RESTARTS_WITHIN = 10;

/** The faults that affect one process and leave the others healthy. */
const OF_ONE_PROCESS: ReadonlySet<FaultKind> = new Set<FaultKind>([
  ...(['cut', 'reset', 'stall', 'late-replies', 'late-messages', 'pause', 'suspend', 'crash', 'wall-clock'] as const),
  ...(['at-lose-reply', 'at-late-reply', 'at-crash', 'at-pause'] as const),
]);

/** The faults that affect one connection of a process. */
const OF_ONE_CONNECTION: ReadonlySet<FaultKind> = new Set<FaultKind>([
  ...(['stall', 'late-replies', 'cut-node', 'at-lose-reply', 'at-late-reply'] as const),
]);

/** The faults that affect one server. */
const OF_ONE_SERVER: ReadonlySet<FaultKind> = new Set<FaultKind>([
  ...(['server-pause', 'restart', 'restart-empty', 'script-flush', 'flush', 'evict', 'at-restart-empty'] as const),
]);

/** Makes the faults of a plan happen. */
export class FaultInjector {
  count = 0;
  crashes = 0;
  /** Faults that strike at the next command with their effect. */
  readonly #armed: Fault[] = [];
  /** Whether a failover or a slot migration is in progress. Only one happens at a time. */
  #isSwitching = false;

  constructor(
    private readonly plan: Plan,
    private readonly timeline: Timeline,
    private readonly network: Network,
    private readonly judge: Judge,
    private readonly story: Story,
    private readonly fleet: Fleet,
  ) {
    network.onExecuted = (link, effects, command) => {
      this.#strike(link, effects, command);
    };
  }

  start(): void {
    for (const fault of this.plan.faults) {
      this.timeline.at(fault.at, () => {
        if (fault.kind.startsWith('at-')) this.#armed.push(fault);
        else this.#happen(fault);
      });
    }
    this.timeline.at(this.plan.duration, () => {
      this.#armed.length = 0;
    });
  }

  #happen(fault: Fault): void {
    const { timeline, network } = this;
    const process = this.fleet.processes[fault.place];
    // A crashed process doesn't exist until it starts again.
    if (process === undefined || process.machine.isDead) return;
    const { machine } = process;
    const until = timeline.now + fault.lasts;
    const dice = new Dice(fault.choice);
    const links = network.linksOf(machine);
    const server = this.#serverFor(fault);
    const isAtNode = (each: Link) => each.server === server && !each.isSubscriber;
    const link = network.areIndependent ? links.find(isAtNode) : links.length > 0 ? dice.pick(links) : undefined;
    this.#tell(fault, process.place, `process ${process.number}`, link);
    switch (fault.kind) {
      case 'cut':
        network.cutUntil.set(machine, Math.max(until, network.cutUntil.get(machine) ?? 0));
        break;
      case 'cut-node':
        server.cutFrom.set(machine, Math.max(until, server.cutFrom.get(machine) ?? 0));
        break;
      case 'reset':
        for (const each of links) if (dice.chance(0.7)) each.breakOff('read ECONNRESET');
        break;
      case 'stall':
        if (link) link.toServer.heldUntil = until;
        break;
      case 'late-replies':
        if (link) link.toClient.heldUntil = until;
        break;
      case 'late-messages':
        for (const each of links) if (each.isSubscriber) each.toClient.heldUntil = until;
        break;
      case 'pause':
        machine.pause(fault.lasts);
        break;
      case 'suspend':
        machine.suspend(fault.lasts);
        break;
      case 'slow':
        network.slowUntil = until;
        break;
      case 'server-pause':
        server.pausedUntil = Math.max(until, server.pausedUntil);
        break;
      case 'crash':
        this.#crash(process, fault.lasts);
        break;
      case 'wall-clock':
        machine.wallError += dice.between(-3_600_000, 3_600_000);
        this.judge.jobs?.clockStepped();
        break;
      case 'switch-to':
        this.#switchMembers(process);
        break;
      default:
        this.#strikeServer(fault, dice);
    }
  }

  /** An operator switches to the member that is not active. */
  #switchMembers({ locks: { admin } }: Process): void {
    const { active } = admin.failoverState(FAILOVER);
    const other = MEMBERS.find((name) => name !== active) ?? MEMBERS[0];
    // If the outcome is unknown, the operator leaves it at that.
    admin.switchTo(other, FAILOVER).catch(() => undefined);
  }

  #strikeServer(fault: Fault, dice: Dice): void {
    const server = this.#serverFor(fault);
    switch (fault.kind) {
      case 'restart':
      case 'restart-empty':
        this.#restart(server, fault);
        break;
      case 'script-flush':
        server.model.flushScripts();
        break;
      case 'flush':
        this.judge.lostDataOf(server.model);
        server.model.flush();
        break;
      case 'evict': {
        const locks = server.model.keys().filter(isLock);
        if (locks.length === 0) break;
        const lock = dice.pick(locks);
        this.judge.lostDataOf(server.model, lock);
        server.model.evict(lock);
        break;
      }
      case 'switch':
        this.#switch(fault, dice);
        break;
      case 'migrate': {
        // Migrate a bucket that is in use, if there is one.
        const keys = this.network.masters.flatMap(({ model }) => model.keys());
        this.#migrate(keys.length > 0 ? bucketOf(dice.pick(keys)) : 0, fault, dice);
        break;
      }
      default:
        throw new Error(`Unknown fault: ${fault.kind}.`);
    }
  }

  #restart(server: WorldServer, { kind, lasts }: Fault): void {
    const keepsData = kind === 'restart';
    if (!keepsData) this.judge.lostDataOf(server.model);
    server.endLinks('The server was restarted.');
    server.downUntil = this.timeline.now + RESTARTS_WITHIN + lasts;
    server.model.restart(keepsData);
  }

  /** The affected server: one of the masters in a Cluster, or one of the independent nodes. */
  #serverFor({ choice }: Fault): WorldServer {
    const { masters } = this.network;
    return masters[choice % masters.length] as WorldServer;
  }

  /**
   * A lagging replica is promoted while the master hangs. Sentinel notifies the clients, and the old master when it is
   * back. In a Cluster, clients find out by themselves, and the old master refuses everything until it knows.
   */
  #switch(fault: Fault, dice: Dice): void {
    const { timeline, network, judge } = this;
    const { lasts } = fault;
    if (this.#isSwitching) return;
    this.#isSwitching = true;
    const old = this.#serverFor(fault);
    const promoted = this.fleet.makeServer();
    promoted.model.copy(old.model);
    timeline.in(dice.between(0, 10), () => {
      old.pausedUntil = timeline.now + HANGS + lasts;
      timeline.in(dice.between(0, lasts), () => {
        network.servers.push(promoted);
        judge.lostData();
        this.story.note('the replica is promoted');
        if (old.model.slots) {
          old.model.slots.isCutOff = true;
          promote(network, old, promoted, dice);
        } else for (const link of old.links) link.leave();
      });
      timeline.at(old.pausedUntil + STILL_MASTER, () => {
        old.model.isReplica = true;
        if (old.model.slots) rejoin(network, old);
        else old.endLinks('The server has become a replica.');
        this.#isSwitching = false;
      });
    });
    judge.disturbed(timeline.now + HANGS + 2 * lasts);
  }

  #migrate(bucket: number, { lasts }: Fault, dice: Dice): void {
    const { network, story } = this;
    if (this.#isSwitching) return;
    this.#isSwitching = true;
    story.note(`the slot of bucket ${bucket} migrates`);
    migrate({ network, bucket, lasts, dice }, (port) => {
      story.note(`the slot of bucket ${bucket} is now at port ${port}`);
      this.judge.disturbed(this.timeline.now);
      this.#isSwitching = false;
    });
  }

  #strike(link: Link, effects: ReadonlySet<Effect>, command: readonly string[]): void {
    const isHere = (fault: Fault) => !this.network.areIndependent || this.#serverFor(fault) === link.server;
    const place = this.#armed.findIndex((fault) => effects.has(fault.point) && isHere(fault));
    const [fault] = place < 0 ? [] : this.#armed.splice(place, 1);
    const process = this.fleet.processes.find(({ machine }) => machine === link.machine);
    if (fault === undefined || process === undefined || process.machine.isDead) return;
    this.#tell(fault, process.place, `process ${process.number}, at a command with the effect "${fault.point}"`);
    const until = this.timeline.now + fault.lasts;
    const { slots, areIndependent } = this.network;
    const { server } = slots !== undefined || areIndependent ? link : this.network;
    const subscribers = [...server.links].filter(({ isSubscriber }) => isSubscriber);
    switch (fault.kind) {
      case 'at-lose-reply':
        link.breakOff('read ECONNRESET');
        break;
      case 'at-late-reply':
        link.toClient.heldUntil = until;
        break;
      case 'at-crash':
        this.#crash(process, fault.lasts);
        break;
      case 'at-pause':
        process.machine.pause(fault.lasts);
        break;
      case 'at-lose-messages':
        for (const each of subscribers) if (each !== link) each.breakOff('read ECONNRESET');
        break;
      case 'at-migrate':
        // The counter in the bucket of the lock that the script has just changed.
        this.#migrate(bucketOf(command[3] ?? ''), fault, new Dice(fault.choice));
        break;
      case 'at-restart-empty':
        this.#restart(link.server, fault);
        break;
      case 'at-late-messages':
        for (const each of subscribers) each.toClient.heldUntil = until;
        break;
      default:
        throw new Error(`"${fault.kind}" does not strike at a point.`);
    }
  }

  #crash(process: Process, downFor: number): void {
    this.crashes += 1;
    process.machine.isDead = true;
    for (const link of this.network.linksOf(process.machine)) link.breakOff('The process has crashed.');
    this.judge.crashed(process.place);
    this.judge.orphaned(this.timeline.now + longestHold(this.plan.habits));
    this.timeline.in(downFor, () => {
      this.fleet.boot(process.place);
    });
  }

  #tell(fault: Fault, place: number, whom: string, link?: Link): void {
    const { kind, lasts } = fault;
    const { redlock, habits } = this.plan;
    this.count += 1;
    if (kind === 'switch-to') return;
    // A silent connection for commands is soon replaced. One for messages isn't, as long as no message is known to be
    // missing.
    const isReplaced = (kind === 'stall' || kind === 'late-replies') && link?.isSubscriber !== true;
    const until = this.timeline.now + (isReplaced ? Math.min(lasts, 3 * this.plan.commandTimeout) : lasts);
    const isOfConnection = OF_ONE_CONNECTION.has(kind);
    if (this.network.areIndependent && (isOfConnection || OF_ONE_SERVER.has(kind))) {
      const probation = redlock?.delayedRestart && !isOfConnection ? redlock.maxLease : 0;
      const node = this.network.servers.indexOf(this.#serverFor(fault));
      const orphaned = redlock ? longestHold(habits) + probation : 0;
      this.judge.nodeHit(node, until + orphaned, isOfConnection ? place : undefined);
    } else if (OF_ONE_PROCESS.has(kind)) this.judge.processHit(place, until, longestHold(habits));
    else this.judge.allHit(until);
    this.story.note(`FAULT ${kind} for ${lasts.toFixed(0)} ms: ${whom}`);
  }
}
