import { types } from 'node:util';
import { type ReadableFunction, sourceOf } from '../../key/function-source.js';
import { isUnlocked } from '../decorators/unlocked.decorator.js';
import { type DeclaredMethod, locksBehind, prototypesOf } from '../methods/declared-method.js';
import type { Application } from './explore-application.js';

/**
 * Warns about overrides of locked methods that run without the lock: they have no lock decorator, and their source
 * doesn't call `super`. An override whose source cannot be read is not reported.
 */
export function findUnlockedOverrides({ providers, warnings }: Application): void {
  for (const { methods, prototype, instance } of providers) {
    const isDecorated = (level: object, name: string | symbol) =>
      isUnlocked(level, name) || methods.some(({ target, methodName }) => target === level && methodName === name);
    const overridden = new Map<string | symbol, DeclaredMethod>();
    for (const method of methods) {
      // A term calls the instance's own method, which may be an override.
      const isWrapped = method.decorator !== '@RunAsLeader';
      if (isWrapped && !overridden.has(method.methodName)) overridden.set(method.methodName, method);
    }
    for (const [methodName, method] of overridden) {
      const name = String(methodName);
      const owner = unlockedOverride(method, prototype, instance, isDecorated);
      if (owner === undefined) continue;
      warnings.add(
        `${owner}.${name} overrides the locked method ${method.name} and runs without its lock, since it has no decorator and no visible call to super.${name}(): decorate it, call super.${name}(), or mark it with @Unlocked() if that is intended.`,
      );
    }
  }
}

/**
 * Warns about locked methods inside another decorator's Proxy, such as `@Transactional` from nestjs-cls. That decorator
 * commits after the lock is released, so the next holder would read data from before the commit.
 */
export function findTransactionsAbove({ providers, warnings }: Application): void {
  for (const level of providers.flatMap(({ prototype }) => prototypesOf(prototype))) {
    for (const property of Reflect.ownKeys(level)) {
      const value: unknown = Reflect.getOwnPropertyDescriptor(level, property)?.value;
      const [method] = types.isProxy(value) ? locksBehind(value as object) : [];
      if (!method) continue;
      warnings.add(
        `${method.name} releases its lock before the commit if the decorator above @DistributedLock is @Transactional: put @DistributedLock above it.`,
      );
    }
  }
}

/** The class whose override runs without calling the locked method. */
function unlockedOverride(
  { target, methodName }: DeclaredMethod,
  prototype: object,
  instance: unknown,
  isDecorated: (level: object, name: string | symbol) => boolean,
): string | undefined {
  const all = prototypesOf(prototype);
  const levels = all.slice(0, all.indexOf(target));
  const field = fieldOf(instance, methodName);
  if (field && levels.length > 0 && !levels.some((level) => isDecorated(level, methodName))) {
    if (!callsSuper(sourceOf(field), methodName)) return prototype.constructor.name;
  }
  for (const level of levels) {
    if (isDecorated(level, methodName)) return undefined;
    const override: unknown = Object.getOwnPropertyDescriptor(level, methodName)?.value;
    if (typeof override !== 'function') continue;
    // Another decorator may have replaced the override, but it's still in the class's source. Another method may call
    // super on its behalf.
    const source = sourceOf(level.constructor);
    if (isWritten(source, methodName) && !callsSuper(source, methodName)) return level.constructor.name;
  }
  return undefined;
}

/** A function that a class declares as an instance field. Functions that are assigned later have other names. */
function fieldOf(instance: unknown, name: string | symbol): ReadableFunction | undefined {
  const value: unknown = Object.getOwnPropertyDescriptor(Object(instance), name)?.value;
  return typeof value === 'function' && value.name === name ? value : undefined;
}

/** Whether a class's text contains a method with this name. If not, it was added by other code, such as a tracer. */
function isWritten(source: string, name: string | symbol): boolean {
  return new RegExp(`(?<![.\\w$])${patternOf(name)}["'\\]]*\\s*[(=]`).test(source);
}

/**
 * Searches the text, so a comment or a string with these words counts as a call. Compilers for older JavaScript write
 * the prototype instead of `super`: `get(getPrototypeOf(Refunds.prototype), "pay", this)` in swc,
 * `superGet(Refunds.prototype, this, "pay")` in esbuild.
 */
function callsSuper(source: string, name: string | symbol): boolean {
  const own = patternOf(name);
  return new RegExp(`super\\s*\\[|(super|prototype)\\.${own}(?![\\w$])|prototype\\b[^;]{0,20}["']${own}["']`).test(
    source,
  );
}

function patternOf(name: string | symbol): string {
  return String(name).replace(/\W/g, '\\$&');
}
