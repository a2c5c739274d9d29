import { type LockBusyError, LockConfigError, type LockDeadlockError } from '../../api/errors.js';
import { isBusy } from '../../api/is-busy.js';
import { publishSkipped } from '../../core/plan/lock-plan.js';
import type { GrantedLock } from '../../core/hold/granted-lock.js';
import { type OnLoss, runGuarded } from '../../core/hold/guarded-task.js';
import { underAny } from '../../core/toolkit/abort-listeners.js';
import { type LockKey, normalizeKeys } from '../../key/lock-key.js';
import type { Run } from '../../recipes/jobs/job.js';
import type { ScheduledJob } from '../../recipes/jobs/scheduled-job.js';
import type { LockService } from '../service/lock.service.js';
import { serviceOf } from '../service/service-slot.js';
import type { BusyContext, LossHandler } from './distributed-lock-options.js';
import type { DeclaredMethod } from './declared-method.js';
import type { MethodPlan } from './method-plan.js';
import type { RequestContext } from './request-context.js';

/** A call to a decorated method. */
export interface MethodCall {
  readonly method: DeclaredMethod;
  readonly self: unknown;
  readonly args: readonly unknown[];
  /** The request that the method handles, found during the call: a stream starts later, in another context. */
  readonly request: RequestContext | undefined;
}

/** A call's lock, or the result of a call whose lock stayed busy. */
export type CallLock =
  | {
      readonly lock: GrantedLock;
      readonly onLost: OnLoss<unknown>;
      /** Set if the call is a job run, whose end must be recorded. */
      readonly recorded?: Run['recorded'];
    }
  | { readonly lock: undefined; readonly instead: unknown; readonly isSkipped: boolean };

/**
 * Acquires a call's lock, or starts its tick.
 *
 * @param signal ends the wait for a stream's lock when the consumer leaves. The caller's own signal also ends that wait
 * @throws what `onBusy` throws for a busy lock, and every other lock error
 */
export async function lockCall(
  call: MethodCall,
  signal?: AbortSignal,
  service: LockService = serviceOf(call.method.name, call.self),
): Promise<CallLock> {
  const { method, self, args, request } = call;
  const plan = method.planIn(service);
  if (plan.job) return beginTick(plan.job, call, signal !== undefined);
  const { manager } = service;
  const keys = method.key.of({ self, args, request: request?.request, context: plan.context });
  if (method.key.template === null) manager.missingValues.check(keys, method.name);
  const signals = [signal, signalOf(plan, call), request?.answered].filter((each) => each !== undefined);
  try {
    const lock =
      signals.length > 1
        ? await underAny(signals, (any) => manager.acquirePlanned(plan.lock, keys, { signal: any }))
        : await manager.acquirePlanned(plan.lock, keys, { signal: signals[0] });
    const onLost = typeof plan.onLost === 'string' ? plan.onLost : answerLoss(plan, call, plan.onLost, keys);
    return { lock, onLost };
  } catch (error) {
    if (isBusy(error)) return answerBusy(plan, call, error, keys);
    throw error;
  }
}

/** Runs a task under its call's lock, then releases the lock. */
export function perform(
  { lock, onLost, recorded }: Extract<CallLock, { lock: GrantedLock }>,
  task: () => unknown,
): Promise<unknown> {
  return runGuarded(lock, recorded ? recorded(task) : task, onLost);
}

async function beginTick(job: ScheduledJob, { method }: MethodCall, isStream: boolean): Promise<CallLock> {
  if (isStream) {
    throw new LockConfigError(
      `${method.name} returns a stream, but a method that runs once per tick must return a promise: make it async.`,
    );
  }
  const run = await job.begin();
  if (!run) return { lock: undefined, instead: undefined, isSkipped: true };
  return { ...run, onLost: job.plan.settings.onLost };
}

/** The caller's signal, if the call has one. @throws LockConfigError for any other value */
function signalOf(plan: MethodPlan, { method, self, args }: MethodCall): AbortSignal | undefined {
  const signal: unknown = plan.signal?.apply(self as never, args as never[]);
  if (signal === undefined || signal instanceof AbortSignal) return signal;
  throw new LockConfigError(
    `Option "signal" of ${method.name} returned ${signal === null ? 'null' : `a ${typeof signal}`}, but must return an AbortSignal, or undefined if the call has none.`,
  );
}

/** The result of a call whose lock stayed busy. @throws the busy error, or what the handler throws */
async function answerBusy(
  plan: MethodPlan,
  call: MethodCall,
  error: LockBusyError | LockDeadlockError,
  keys: LockKey,
): Promise<CallLock> {
  if (plan.onBusy === 'throw') throw error;
  if (plan.onBusy === 'skip') {
    publishSkipped(plan.lock, error.key, 'busy');
    return { lock: undefined, instead: undefined, isSkipped: true };
  }
  const instead = await plan.onBusy.call(call.self as never, { ...described(plan, call, keys), error });
  return { lock: undefined, instead, isSkipped: false };
}

function answerLoss(plan: MethodPlan, call: MethodCall, handle: LossHandler, keys: LockKey): OnLoss<unknown> {
  return (error) => handle.call(call.self as never, { ...described(plan, call, keys), error });
}

function described({ lock }: MethodPlan, { method, args }: MethodCall, keys: LockKey): Omit<BusyContext, 'error'> {
  return { keys: normalizeKeys(keys), provider: lock.core.name, method: method.name, args };
}
