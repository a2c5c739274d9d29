// Compiled by `npm run typecheck`, never run.
import { LockFor, type KeyFunction } from '../../lib/key/key-function.js';
import { lockKey } from '../../lib/key/key-tag.js';
import type { LockKey } from '../../lib/key/lock-key.js';

interface Order {
  id: string;
  lines: readonly { sku: string }[];
}

abstract class OrderService {
  abstract pay(order: Order, amount?: number): Promise<void>;
  abstract transfer(from: Order, ...to: Order[]): Promise<void>;
  abstract nothing(): Promise<void>;
  private hidden(order: Order): Promise<string> {
    return Promise.resolve(order.id);
  }
  abstract generic<T extends Order>(order: T): Promise<T>;
}

type Equal<A, B> = (<T>() => T extends A ? 1 : 2) extends <T>() => T extends B ? 1 : 2 ? true : false;
const check = <T extends true>(holds?: T): void => void holds;

check<Equal<LockFor<OrderService['pay']>, KeyFunction<[order: Order, amount?: number]>>>();
check<Equal<ReturnType<LockFor<OrderService['nothing']>>, LockKey>>();

LockFor<OrderService['pay']>((order) => `order:${order.id}`);
LockFor<OrderService['pay']>((order, amount) => lockKey`order:${order.id}:${amount ?? 0}`);
LockFor<OrderService['pay']>((order) => order.lines.map(({ sku }) => lockKey`stock:${sku}`));
LockFor<OrderService['pay']>(() => 'orders');
LockFor<OrderService['transfer']>((from, ...to) => [from, ...to].map(({ id }) => `order:${id}`));
LockFor<OrderService['generic']>((order) => order.id);
LockFor<OrderService['hidden']>((order) => order.id);
const written: LockFor<OrderService['pay']> = (order) => order.id;
const exactly: (order: Order, amount?: number) => LockKey = LockFor<OrderService['pay']>(written);
void exactly;

// @ts-expect-error: an order has no number
LockFor<OrderService['pay']>((order) => order.number);
// @ts-expect-error: a key is text
LockFor<OrderService['pay']>((order) => order.lines.length);
// @ts-expect-error: an amount may be missing
LockFor<OrderService['pay']>((order, amount) => amount.toFixed());
// @ts-expect-error: pay has two parameters
LockFor<OrderService['pay']>((order, amount, third: string) => third);
// @ts-expect-error: nothing has none
LockFor<OrderService['nothing']>((order: Order) => order.id);
// @ts-expect-error: not a method
LockFor<Order['id']>(() => 'x');
// @ts-expect-error: an object cannot stand in a key
void lockKey`order:${{ id: 1 }}`;
// @ts-expect-error: what may be missing cannot stand in a key
void lockKey`order:${undefined as string | undefined}`;
