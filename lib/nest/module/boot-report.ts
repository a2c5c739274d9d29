import ms from 'ms';
import type { LockCapabilities } from '../../api/lock-provider.js';
import { describe, type LockDescription } from '../../core/plan/lock-plan.js';
import { type MissingValue, missingValueIn } from '../../key/missing-value.js';
import { quote } from '../../key/quote.js';
import { isScheduled, shortestGap } from '../methods/schedule-metadata.js';
import type { DeclaredMethod } from '../methods/declared-method.js';
import { logger } from '../options/module-logger.js';
import type { Application } from './explore-application.js';

/**
 * Logs one line for each of an application's providers and, for debugging, a table of its locked methods. Warns about
 * scheduled methods that several processes may run, and about keys that are probably mistakes.
 */
export function reportBoot(
  { service: { manager }, plans, warnings }: Application,
  campaigns: readonly DeclaredMethod[],
): void {
  const locked = [...plans.keys()].filter(({ isElected }) => !isElected);
  const hasSchedules = locked.some(isScheduled);
  for (const provider of manager.providerNames) {
    const { kind, capabilities, records } = describe(manager.plan({ provider }));
    const withoutRecords = hasSchedules && !records ? ', no records, so jobs need "minHold"' : '';
    logger.log(`Lock provider "${provider}" is a ${kind}: ${inWords(capabilities)}${withoutRecords}`);
  }
  const rows: string[][] = [];
  for (const method of [...locked, ...campaigns]) {
    const plan = plans.get(method);
    if (!plan) continue;
    const each = { name: method.name, lock: describe(plan.lock) };
    rows.push(row(each));
    if (!method.isElected) {
      for (const warning of method.key.warnings) warnings.add(warning);
      if (isScheduled(method) && !plan.job && each.lock.minHold === 0) warnings.add(runsTwice(each));
    }
    const missing = missingValueIn(method.key.templates);
    if (missing) warnings.add(hasNoValue(each, missing));
  }
  rows.sort(([a = ''], [b = '']) => a.localeCompare(b));
  if (rows.length > 0) logger.debug(`Locked methods:\n${table([HEAD, ...rows])}`);
}

/**
 * Warns about scheduled methods whose key stays locked beyond their next run. Called after `ScheduleModule` has created
 * its jobs, because the jobs' class computes the ticks.
 */
export function warnOfSkippedRuns({ service, plans }: Application): void {
  for (const [method, plan] of plans) {
    const lock = describe(plan.lock);
    if (lock.minHold === 0) continue;
    const gap = shortestGap(method, service.scheduler.cronTime);
    if (gap !== undefined && lock.minHold >= gap) logger.warn(skipsRuns({ name: method.name, lock }, gap));
  }
}

/**
 * Warns if no code handles SIGTERM or SIGINT, because a killed process's locks stay held until their leases expire.
 * In-memory and session locks end with the process.
 */
export function warnOfUnhandledSignals({ service: { manager } }: Application): void {
  if (process.listenerCount('SIGTERM') > 0 || process.listenerCount('SIGINT') > 0) return;
  const outlives = manager.providerNames.some((provider) => {
    const { kind, capabilities } = describe(manager.plan({ provider }));
    return kind !== 'MemoryLockProvider' && capabilities.lease === 'per-lock';
  });
  if (!outlives || manager.isForTests) return;
  logger.warn(
    'Nothing handles SIGTERM, so a terminated process keeps its locks until their leases expire: call app.enableShutdownHooks() in main.ts.',
  );
}

/** A method and its planned lock. */
interface Planned {
  readonly name: string;
  readonly lock: LockDescription;
}

// Processes fire at slightly different times, even with synchronized clocks. If one fires after the run has ended, it
// runs the method again.
function runsTwice({ name, lock }: Planned): string {
  return (
    `${name} is scheduled, but its key is free as soon as it has run, so a process that fires later runs it again: ` +
    (lock.capabilities.minHold
      ? 'set "minHold" above the largest difference in firing times.'
      : `lock provider "${lock.provider}" cannot keep the key locked, so choose one that can and set "minHold", or make the run skip work already done.`)
  );
}

function skipsRuns({ name, lock }: Planned, period: number): string {
  return (
    `${name} is due again after ${exactly(period)}, but "minHold" keeps its key locked for ${exactly(lock.minHold)}, so runs are skipped: ` +
    `lower it below ${exactly(period)}, or schedule the method less often.`
  );
}

function hasNoValue({ name }: Planned, { key, segment }: MissingValue): string {
  return (
    `The lock key ${quote(key)} of ${name} contains the text "${segment}" instead of a value, since decorators run when their file is imported: ` +
    `make sure the value is set by then, or write #{…} for a per-call value.`
  );
}

function inWords({ shared, limits, fair, fencing, lease, minHold }: LockCapabilities): string {
  return [
    ['exclusive', ...(shared ? ['shared'] : []), ...(limits ? ['limited'] : [])].join(', ') + ' locks',
    fair ? 'fair among processes' : 'unordered among processes',
    fencing ? 'with fencing tokens' : 'without fencing tokens',
    lease === 'per-lock' ? 'a lease per lock' : 'locks live as long as their session',
    minHold ? 'minHold' : 'no minHold',
  ].join(', ');
}

const HEAD = ['method', 'key', 'provider', 'wait', 'lease'];

function row({ name, lock }: Planned): string[] {
  const lease = lock.lease === undefined ? 'session' : duration(lock.lease);
  return [name, lock.template ?? '(key function)', lock.provider, duration(lock.wait), lease];
}

function exactly(time: number): string {
  const rounded = ms(time);
  return ms(rounded as ms.StringValue) === time ? rounded : `${time / 1_000}s`;
}

function duration(time: number): string {
  return Number.isFinite(time) ? ms(time) : 'unlimited';
}

function table(rows: readonly (readonly string[])[]): string {
  const widths = HEAD.map((_, column) => Math.max(...rows.map((cells) => cells[column]?.length ?? 0)));
  const line = (cells: readonly string[]) => cells.map((cell, column) => cell.padEnd(widths[column] ?? 0)).join('  ');
  return rows.map((cells) => `  ${line(cells).trimEnd()}`).join('\n');
}
