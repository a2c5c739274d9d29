import { METHOD_METADATA } from '@nestjs/common/constants.js';
import { LockConfigError, LockError } from '../../api/errors.js';
import { assertLeaderKey } from '../../recipes/leadership.js';
import { isUnlocked } from '../decorators/unlocked.decorator.js';
import type { DeclaredMethod } from '../methods/declared-method.js';
import type { MethodPlan } from '../methods/method-plan.js';
import type { LockService } from '../service/lock.service.js';

/**
 * The metadata keys of handlers for HTTP, microservices, WebSockets, and GraphQL, including its field resolvers. Their
 * packages may not be installed.
 */
const HANDLER_MARKS = [
  METHOD_METADATA,
  'microservices:pattern',
  'websockets:message_mapping',
  'graphql:resolver_type',
  'graphql:resolve_property',
];

/**
 * A method's plan in an application, if it can work. Checks the method without calling it and adds any mistakes to
 * `problems`.
 */
export function checkMethod(
  method: DeclaredMethod,
  service: LockService,
  problems: Set<string>,
): MethodPlan | undefined {
  const { name, key, target, methodName, isElected } = method;
  // Template errors already name the method.
  if (!isElected) for (const { message } of key.errors) problems.add(message);
  const found: string[] = [];
  let plan: MethodPlan | undefined;
  try {
    if (isElected) assertFixedKey(method);
    plan = method.planIn(service);
  } catch (error) {
    if (!LockError.is(error)) throw error;
    found.push(error.message);
  }
  if (!isElected) found.push(...lockProblems(method, service));
  if (isUnlocked(target, methodName)) {
    found.push('it has both a lock and @Unlocked, which is for overrides without a lock: remove one');
  }
  for (const problem of found) problems.add(`${name}: ${problem}`);
  return plan;
}

function assertFixedKey({ decorator, key: { source } }: DeclaredMethod): void {
  if (typeof source === 'string' && source.includes('#{')) {
    throw new LockConfigError(
      `${decorator} needs a fixed key, since an election has no arguments, but "${source}" is a template`,
    );
  }
  assertLeaderKey(source);
}

function lockProblems(method: DeclaredMethod, service: LockService): string[] {
  const { key, locksBelow } = method;
  const problems: string[] = [];
  for (const context of key.contextNames) {
    if (!Object.hasOwn(service.context, context)) {
      problems.push(`its key reads #{ctx.${context}}, but the module's "context" has no "${context}"`);
    }
  }
  if (key.usesRequest && !HANDLER_MARKS.some((mark) => Reflect.hasMetadata(mark, method.inEffect))) {
    problems.push('its key reads #{request…}, but it is not a handler: read the value from an argument');
  }
  if (locksBelow.some((below) => below.isAroundRequest)) {
    problems.push(
      `a @DistributedLock is above one with around: 'request', which must be outermost: move that one to the top, or pass both keys to one decorator as an array`,
    );
  }
  return problems;
}
