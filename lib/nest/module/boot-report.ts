import type { LoggerService } from '@nestjs/common';
import ms from 'ms';
import type { LockCapabilities } from '../../api/lock-provider.js';
import type { LockPlan } from '../../core/acquire/lock-plan.js';
import { type MissingValue, missingValueIn } from '../../key/missing-value.js';
import { quote } from '../../key/quote.js';
import type { LeaderMethod } from '../methods/leader-method.js';
import type { LockedMethod } from '../methods/locked-method.js';
import type { LockService } from '../service/lock.service.js';
import { periodOf } from './schedule-period.js';

/**
 * Logs what an application locks with, one line for each provider, and what it locks, as one table for debugging. Warns of
 * scheduled methods whose runs nothing keeps apart, or that are kept locked beyond their next run, and of keys that are probably not meant.
 */
export function reportBoot(
  service: LockService,
  methods: Iterable<LockedMethod>,
  leaderMethods: readonly LeaderMethod[],
  logger: LoggerService,
): void {
  const { manager } = service;
  for (const provider of manager.providerNames) {
    const { core } = manager.plan({ provider });
    logger.log(`Lock provider "${provider}" is a ${core.kind}: ${inWords(core.capabilities)}`);
  }
  const locked = [...methods];
  for (const method of locked) {
    for (const warning of method.key.warnings) logger.warn(warning);
    const { minHold } = lockOf(method, service).settings;
    if (method.isScheduled && minHold === 0) logger.warn(runsTwice(method, service));
    const period = periodOf(method.inEffect);
    if (period !== undefined && minHold >= period) logger.warn(skipsRuns(method, minHold, period));
  }
  const planned = [...locked, ...leaderMethods];
  for (const method of planned) {
    const missing = missingValueIn(lockOf(method, service).origin.template?.split(', ') ?? []);
    if (missing) logger.warn(hasNoValue(method, missing));
  }
  const rows = planned.map((method) => row(method, service)).sort(([a = ''], [b = '']) => a.localeCompare(b));
  if (rows.length > 0) logger.debug?.(`Locked methods:\n${table([HEAD, ...rows])}`);
}

function lockOf(method: LockedMethod | LeaderMethod, service: LockService): LockPlan {
  const plan = method.planIn(service);
  return 'lock' in plan ? plan.lock : plan;
}

// Processes fire a little apart, also with synchronised clocks: a process that comes when the run is over runs it once more.
function runsTwice(method: LockedMethod, service: LockService): string {
  const { core } = lockOf(method, service);
  return (
    `${method.name} is scheduled, but its key is free as soon as it has run, so that a process that fires later runs it again: ` +
    (core.capabilities.minHold
      ? 'set "atLeast" of @RunOnce ("minHold" of @DistributedLock) to more than the processes may fire apart.'
      : `lock provider "${core.name}" cannot keep the key, so choose one with minHold and set "atLeast", or let the run itself see that it was done.`)
  );
}

function skipsRuns({ name }: LockedMethod, minHold: number, period: number): string {
  return (
    `${name} is due again after ${exactly(period)}, but "atLeast" of @RunOnce ("minHold" of @DistributedLock) keeps its key locked for ${exactly(minHold)}, so that runs are skipped: ` +
    `lower it below ${exactly(period)}, or schedule the method less often.`
  );
}

function hasNoValue({ name }: LockedMethod | LeaderMethod, { key, segment }: MissingValue): string {
  return (
    `The lock key ${quote(key)} of ${name} contains the text "${segment}" instead of a value, since decorators run when their file is imported: ` +
    `make sure that the value is set by then, or write #{…} for a value of each call.`
  );
}

/** A time in the largest unit that leaves no fraction: `ms()` would print 90 s as 2m. */
function exactly(time: number): string {
  const [unit, length] = UNITS.find(([, each]) => time % each === 0) ?? ['ms', 1];
  return `${time / length}${unit}`;
}

const UNITS = [
  ['d', 86_400_000],
  ['h', 3_600_000],
  ['m', 60_000],
  ['s', 1_000],
] as const;

function inWords({ shared, limits, fair, fencing, lease, minHold }: LockCapabilities): string {
  return [
    ['exclusive', ...(shared ? ['shared'] : []), ...(limits ? ['limited'] : [])].join(', ') + ' locks',
    fair ? 'first come, first served' : 'in no order among processes',
    fencing ? 'with fencing tokens' : 'without fencing tokens',
    lease === 'per-lock' ? 'a lease for each lock' : 'locks live as long as their session',
    minHold ? 'minHold' : 'no minHold',
  ].join(', ');
}

const HEAD = ['method', 'key', 'provider', 'wait', 'lease'];

function row(method: LockedMethod | LeaderMethod, service: LockService): string[] {
  const { core, settings, origin } = lockOf(method, service);
  const lease = core.capabilities.lease === 'per-lock' ? duration(settings.lease) : 'session';
  return [method.name, origin.template ?? '(key function)', core.name, duration(settings.wait), lease];
}

function duration(time: number): string {
  return Number.isFinite(time) ? ms(time) : 'unlimited';
}

function table(rows: readonly (readonly string[])[]): string {
  const widths = HEAD.map((_, column) => Math.max(...rows.map((cells) => cells[column]?.length ?? 0)));
  const line = (cells: readonly string[]) => cells.map((cell, column) => cell.padEnd(widths[column] ?? 0)).join('  ');
  return rows.map((cells) => `  ${line(cells).trimEnd()}`).join('\n');
}
