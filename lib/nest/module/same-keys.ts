import type { LockPlan } from '../../core/plan/lock-plan.js';
import { quote } from '../../key/quote.js';
import type { LeaderMethod } from '../methods/leader-method.js';
import type { LockedMethod } from '../methods/locked-method.js';
import type { LockService } from '../service/lock.service.js';

/** Conflicts between the keys of the methods of an application. */
export interface KeyFindings {
  readonly problems: readonly string[];
  readonly warnings: readonly string[];
}

/**
 * Finds locks that wait for another lock of the same application which is not released before they give up: two locks of one method, and a lock of
 * the key that a leader holds for its whole term. A job would be skipped silently, and a call would fail after its whole wait.
 */
export function compareKeys(
  methods: readonly LockedMethod[],
  leaders: readonly LeaderMethod[],
  service: LockService,
): KeyFindings {
  const problems: string[] = [];
  const warnings: string[] = [];
  for (const method of methods) {
    const lock = planOf(method, service);
    if (!lock) continue;
    const [waited] = method.locksBelow.flatMap((inner) => waitedKey(method, lock, inner, service) ?? []);
    if (waited !== undefined) {
      problems.push(
        `${method.name}: two of its locks have the key ${quote(waited)}, so the lower one waits for the upper one: remove one of the two, or set reentrant: true on the lower one`,
      );
    }
    const leader = leaders.find(
      (each) => method.key.templates.includes(each.key) && isSameProvider(each, lock, service),
    );
    if (!leader) continue;
    const { decorator, key } = leader;
    if (leader.target === method.target && leader.methodName === method.methodName) {
      if (!entersTerm(method, leader, lock)) {
        problems.push(
          `${method.name}: ${decorator} holds the key ${quote(key)} for its whole term, so the lock of the same key waits for it: remove that lock, or give it another key`,
        );
      }
    } else if (method.isScheduled) {
      problems.push(
        `${method.name}: ${decorator} of ${leader.name} holds the key ${quote(key)} for its whole term, so no scheduled run gets the lock: give the job another key, or put @OnlyLeader(${quote(key)}) in place of its lock`,
      );
    } else if (lock.settings.reentrant !== true) {
      warnings.push(
        `${method.name} locks ${quote(key)}, which ${decorator} of ${leader.name} holds for its whole term, so it is busy for all calls but those under the lock of the term: ` +
          'give one of the two another key, or call it by currentLock().run() in the task of the leader.',
      );
    }
  }
  return { problems, warnings };
}

/** A key of both locks of which the inner one can never be had while the outer one is held. */
function waitedKey(
  outer: LockedMethod,
  { core, settings }: LockPlan,
  inner: LockedMethod,
  service: LockService,
): string | undefined {
  const lock = planOf(inner, service);
  if (lock?.core !== core || lock.settings.reentrant === true) return undefined;
  const { mode } = lock.settings;
  // Holders of shared and of limited locks hold beside each other.
  if (mode !== 'exclusive' && mode === settings.mode) return undefined;
  return outer.key.templates.find((template) => inner.key.templates.includes(template));
}

/** Whether the lock of a method is taken inside the term of its own leader decorator, and enters the lock of the term. */
function entersTerm(method: LockedMethod, leader: LeaderMethod, { settings }: LockPlan): boolean {
  const isInside = leader.decorator === '@RunAsLeader' || leader.locksBelow.includes(method);
  return isInside && settings.reentrant === true;
}

function isSameProvider(leader: LeaderMethod, { core }: LockPlan, service: LockService): boolean {
  return planOf(leader, service)?.core === core;
}

/** Undefined for a method without a plan, which is a problem already. */
function planOf(method: LockedMethod | LeaderMethod, service: LockService): LockPlan | undefined {
  try {
    const plan = method.planIn(service);
    return 'lock' in plan ? plan.lock : plan;
  } catch {
    return undefined;
  }
}
