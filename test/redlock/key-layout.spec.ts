import { KeyLayout } from '../../lib/providers/redis/key-layout.js';
import { RedlockKeyLayout } from '../../lib/providers/redlock/key-layout.js';

// Golden: processes of two versions that differ here would not see each other's locks.
describe('the names of records on a node never change', () => {
  const layout = new RedlockKeyLayout('shop');

  it('names the votes, the counter and the run', () => {
    expect(layout.counter).toBe('shop:redlock');
    expect(layout.run).toBe('shop:redlock-run');
    expect(layout.lockOf('order:42')).toBe('shop:redlock:order:42');
    expect(layout.lockOf('a~b}c\n')).toBe('shop:redlock:a~007eb~007dc~000a');
    expect(layout.lockOf('k'.repeat(513))).toBe(
      'shop:redlock:~~2fe2eae0c6d56d6a1e4c28c7fecbbe24bcefe07846d2a1e26f4221643d94997a',
    );
  });

  it('shares no name with the provider of a single server', () => {
    const single = new KeyLayout('shop');
    for (const key of ['order', '{0}', 'redlock:order']) {
      expect(single.lockOf(key).startsWith(layout.counter)).toBe(false);
    }
    expect(single.counter.startsWith(layout.counter)).toBe(false);
  });
});
