import type { LockKey } from './lock-key.js';

/** Computes the key of a call from its arguments. */
export type KeyFunction<A extends readonly unknown[]> = (...args: A) => LockKey;

type Method = (...args: never[]) => unknown;

/** The key function of a method: {@link KeyFunction} with the method's own parameters. */
export type LockFor<M extends Method> = KeyFunction<Parameters<M>>;

/**
 * Gives a key function the parameter types of its method, which a decorator cannot know yet when its arguments are typed:
 *
 * ```ts
 * @DistributedLock(LockFor<OrderService['pay']>((order) => lockKey`order:${order.id}`))
 * async pay(order: Order) {}
 * ```
 */
export function LockFor<M extends Method>(key: LockFor<M>): LockFor<M> {
  return key;
}
