import type { AnyNode, MemberExpression } from 'acorn';
import { methodIn, parseSource, type ReadableFunction, sourceOf } from '../../key/function-source.js';
import type { LeaderMethod } from '../methods/leader-method.js';
import type { LockedMethod } from '../methods/locked-method.js';
import { isUnlocked } from '../decorators/unlocked.decorator.js';

/**
 * Overrides of locked methods that run without the lock, in words: they have no decorator of ours, and their source shows no call of `super`.
 * An override whose source cannot be read is not reported.
 *
 * @param prototype that of the class of the instance
 * @param lockedMethods of the class and those that it inherits, its own first; the leader methods as well
 */
export function unlockedOverrides(
  prototype: object,
  instance: unknown,
  lockedMethods: readonly LockedMethod[],
  leaderMethods: readonly LeaderMethod[],
): string[] {
  const decorated = [...lockedMethods, ...leaderMethods];
  const isDecorated = (level: object, name: string | symbol) =>
    isUnlocked(level, name) || decorated.some(({ target, methodName }) => target === level && methodName === name);
  const overridden = new Map<string | symbol, LockedMethod | LeaderMethod>();
  for (const method of decorated) {
    // A term runs the method of the instance, which may be an override.
    const isWrapped = !('decorator' in method) || method.decorator === '@OnlyLeader';
    if (isWrapped && !overridden.has(method.methodName)) overridden.set(method.methodName, method);
  }
  return Array.from(overridden, ([methodName, method]) => {
    const name = String(methodName);
    const owner = unlockedOverride(method, prototype, instance, isDecorated);
    if (owner === undefined) return [];
    return `${owner}.${name} overrides the locked method ${method.name} and runs without its lock, since it has no decorator of its own and no call of super.${name}() that can be seen: decorate it, call super.${name}(), or mark it with @Unlocked() if that is meant.`;
  }).flat();
}

/** The class of the override that a call runs without coming to the locked method. */
function unlockedOverride(
  { target, methodName }: LockedMethod | LeaderMethod,
  prototype: object,
  instance: unknown,
  isDecorated: (level: object, name: string | symbol) => boolean,
): string | undefined {
  const levels: object[] = [];
  for (let level = prototype; level !== target; level = Object.getPrototypeOf(level) as object) levels.push(level);
  const field = fieldOf(instance, methodName);
  if (field && levels.length > 0 && !levels.some((level) => isDecorated(level, methodName))) {
    if (!mayCallSuper(sourceOf(field), methodName)) return prototype.constructor.name;
  }
  for (const level of levels) {
    if (isDecorated(level, methodName)) return undefined;
    const override: unknown = Object.getOwnPropertyDescriptor(level, methodName)?.value;
    if (typeof override !== 'function') continue;
    // Another decorator may have put a wrapper in its place, while the class shows it as it was written. Another method may call super for it.
    const classSource = sourceOf(level.constructor);
    const isWritten = methodIn(parseSource(classSource), methodName) !== undefined;
    if (!mayCallSuper(isWritten ? classSource : sourceOf(override), methodName)) return level.constructor.name;
  }
  return undefined;
}

/** A function that a class has written as a property of its instances. Functions that are put there later have other names. */
function fieldOf(instance: unknown, name: string | symbol): ReadableFunction | undefined {
  const value: unknown = Object.getOwnPropertyDescriptor(Object(instance), name)?.value;
  return typeof value === 'function' && value.name === name ? value : undefined;
}

/** Whether code comes to the method of the class above, as far as its source shows. */
function mayCallSuper(source: string, name: string | symbol): boolean {
  const node = parseSource(source) ?? parseSource(`class { ${source} }`);
  if (node === undefined || some(node, (each) => isSuperMethod(each, name))) return true;
  // A function that passes its call on to another one is the wrapper of a decorator.
  return node.type !== 'ClassExpression' && some(node, isForwarding);
}

/** Whether a part of the code is so. */
function some(node: unknown, is: (node: AnyNode) => boolean): boolean {
  if (typeof node !== 'object' || node === null) return false;
  return ('type' in node && is(node as AnyNode)) || Object.values(node).some((child) => some(child, is));
}

/** `super.pay`, also as compilers write it for older JavaScript. */
function isSuperMethod(node: AnyNode, name: string | symbol): boolean {
  if (node.type === 'MemberExpression') {
    // tsc for ES5 writes _super.prototype.pay.
    return (node.object.type === 'Super' || isPrototype(node.object)) && (isNamed(node, name) || isUnknown(node));
  }
  // Helpers: get(getPrototypeOf(Refunds.prototype), "pay", this) of swc, superGet(Refunds.prototype, this, "pay") of esbuild.
  if (node.type !== 'CallExpression' || node.arguments.length < 3) return false;
  return (
    node.arguments.some((each) => each.type === 'Literal' && each.value === name) &&
    node.arguments.some((each) => some(each, isPrototype))
  );
}

function isPrototype(node: AnyNode): boolean {
  return node.type === 'MemberExpression' && isNamed(node, 'prototype');
}

function isForwarding(node: AnyNode): boolean {
  return node.type === 'MemberExpression' && (isNamed(node, 'apply') || isNamed(node, 'call'));
}

function isNamed({ property, computed }: MemberExpression, name: string | symbol): boolean {
  return property.type === 'Literal'
    ? property.value === name
    : !computed && 'name' in property && property.name === name;
}

/** Whether the name of the member is known only when it is read, such as `super[name]`. */
function isUnknown({ property, computed }: MemberExpression): boolean {
  return computed && property.type !== 'Literal';
}
