import { KeyLayout } from '../../lib/providers/redis/key-layout.js';
import { QuorumKeyLayout } from '../../lib/providers/redis/quorum/quorum-key-layout.js';
import { QUORUM_SCRIPT_SHA } from '../../lib/providers/redis/quorum/quorum-script.js';

// Golden: processes of two versions that differ here would not see each other's locks.
describe('the names of records on a node never change', () => {
  const layout = new QuorumKeyLayout('shop');

  it('names the votes and the counter', () => {
    expect(layout.counter).toBe('shop:redlock');
    expect(layout.lockOf('order:42')).toBe('shop:redlock:order:42');
    expect(layout.lockOf('a~b}c\n')).toBe('shop:redlock:a~007eb~007dc~000a');
    expect(layout.lockOf('k'.repeat(513))).toBe(
      'shop:redlock:~~94e6cd7a2ff28a2bd1a98a9e2f6ca3a8ab1d3a0dcc4d1b0d0ab7a1c5a1ca4a0e',
    );
  });

  it('shares no name with the provider of a single server', () => {
    const single = new KeyLayout('shop');
    for (const key of ['order', '{0}', 'redlock:order']) {
      expect(single.lockOf(key).startsWith(layout.counter)).toBe(false);
    }
    expect(single.counter.startsWith(layout.counter)).toBe(false);
  });

  it('changes the script only on purpose: processes of two versions vote by both', () => {
    expect(QUORUM_SCRIPT_SHA).toMatch(/^[0-9a-f]{40}$/);
  });
});
