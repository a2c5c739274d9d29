import { LockFor } from '../../lib/key/key-function.js';

describe('LockFor', () => {
  it('gives the key function back as it is', () => {
    const key = (order: { id: number }): string => `order:${order.id}`;
    expect(LockFor<(order: { id: number }) => Promise<void>>(key)).toBe(key);
  });
});
