import fc from 'fast-check';
import { BUCKETS, KeyLayout } from '../../lib/providers/redis/key-layout.js';
import { RedlockKeyLayout } from '../../lib/providers/redlock/key-layout.js';

describe('names of the records in Redis', () => {
  const layout = new KeyLayout('shop');

  // Golden: if two versions differ here, their instances don't see each other's locks. Never change a line.
  it.each([
    ['order:42', 'shop:{1}:order:42'],
    ['order:43', 'shop:{14}:order:43'],
    ['stock/äöü 漢字', 'shop:{15}:stock/äöü 漢字'],
    ['', 'shop:{5}:'],
    ['a}q', 'shop:{6}:a~007dq'],
    ['{other}:x', 'shop:{5}:{other~007d:x'],
    ['a~b', 'shop:{12}:a~007eb'],
    ['line\r\nbreak\0', 'shop:{1}:line~000d~000abreak~0000'],
    ['lone \ud800', 'shop:{1}:lone ~d800'],
    ['🔒', 'shop:{14}:🔒'],
    ['x'.repeat(513), 'shop:{7}:~~adc183813d454f1d1ff7104db9f7da8a6f3a3dcfe7376e6fdf77242b11a727fd'],
  ])('the lock of %j', (key, name) => {
    expect(layout.lockOf(key)).toBe(name);
  });

  // Golden as well.
  it.each([
    ['order:42', 'shop:{1}record:order:42'],
    ['a}q', 'shop:{6}record:a~007dq'],
    ['lone \ud800', 'shop:{1}record:lone ~d800'],
    ['x'.repeat(513), `shop:{7}record:${'x'.repeat(513)}`],
  ])('the record %j is in the slot of the lock with the same name', (name, key) => {
    expect(layout.recordOf(name)).toBe(key);
    expect(layout.recordIn(key)).toBe(name);
    expect(layout.bucketIn(key)).toBe(layout.bucketIn(layout.lockOf(name)));
  });

  // Golden as well.
  it.each([
    ['label', 'order:42', 'shop:{1}label:order:42'],
    ['label', 'a}q', 'shop:{6}label:a~007dq'],
    ['waits', '0123456789ab:redis', 'shop:{8}waits:0123456789ab:redis'],
    ['instance', '0123456789ab', 'shop:{1}instance:0123456789ab'],
  ] as const)('the %s text of %j is in the slot of the lock with the same name', (kind, name, key) => {
    expect(layout.textOf(kind, name)).toBe(key);
    expect(layout.bucketIn(key)).toBe(layout.bucketIn(layout.lockOf(name)));
  });

  it('use 16 buckets, which never changes', () => {
    expect(BUCKETS).toBe(16);
    expect(layout.counter).toBe('shop:{0}');
    expect(layout.channelOf('0123456789ab')).toBe('shop:{0}0123456789ab');
  });

  it('differ for any two keys, and put every record in the slot of its bucket', () => {
    const hostile = fc.oneof(
      fc.string({ unit: 'binary' }),
      fc.string({ unit: fc.constantFrom('{', '}', '~', ':', '0', '7', 'd', 'q', 'r', '\0', '\n', '\ud800', '\udfff') }),
    );
    fc.assert(
      fc.property(hostile, hostile, (one, two) => {
        const names = [one, two].map((key) => layout.lockOf(key));
        const bytes = names.map((name) => Buffer.from(name).toString('hex'));
        expect(bytes[0] === bytes[1]).toBe(one === two);
        // The suffixes of queue and readers begin with a brace, which no key contains after the brace of its tag.
        for (const [index, key] of [one, two].entries()) expect(layout.keyOf(names[index] ?? '')).toBe(key);
        const records = [one, two].map((name) => layout.recordOf(name));
        expect(records.map((key) => layout.recordIn(key))).toEqual([one, two]);
        expect([...records.map((key) => layout.keyOf(key)), ...names.map((name) => layout.recordIn(name))]).toEqual(
          Array(4).fill(undefined),
        );
        for (const name of names) expect(name.replace(/^shop:\{\d+\}:/, '')).not.toContain('}');
      }),
      { numRuns: 2_000 },
    );
  }, 60_000);

  it('map no name of another record or another namespace to a key', () => {
    for (const name of [
      'shop:{0}',
      'shop:{0}seen',
      layout.textOf('instance', '0123456789ab'),
      layout.textOf('label', ':a'),
      layout.recordOf('a'),
      layout.recordOf(':a'),
      'shop:{1}:a}q',
      'shop:{1}:a}r',
      'shop:{16}:a',
      'SHOP:{1}:a',
      'xshop:{1}:a',
      'shop2:{1}:a',
      '{1}:a',
    ]) {
      expect([name, layout.keyOf(name)]).toEqual([name, undefined]);
    }
  });

  it('spread keys evenly', () => {
    const counts = new Map<string, number>();
    for (let index = 0; index < 16_000; index += 1) {
      const bucket = layout.lockOf(`order:${index}`).split(':')[1] ?? '';
      counts.set(bucket, (counts.get(bucket) ?? 0) + 1);
    }
    expect(counts.size).toBe(16);
    expect(Math.max(...counts.values())).toBeLessThan(1_300);
  });
});

// Golden: if two versions differ here, their processes don't see each other's locks.
describe('names of the records on a Redlock node', () => {
  const layout = new RedlockKeyLayout('shop');

  it('never change', () => {
    expect(layout.counter).toBe('shop:redlock');
    expect(layout.run).toBe('shop:redlock-run');
    expect(layout.lockOf('order:42')).toBe('shop:redlock:order:42');
    expect(layout.lockOf('a~b}c\n')).toBe('shop:redlock:a~007eb~007dc~000a');
    expect(layout.lockOf('k'.repeat(513))).toBe(
      'shop:redlock:~~2fe2eae0c6d56d6a1e4c28c7fecbbe24bcefe07846d2a1e26f4221643d94997a',
    );
  });

  it('never equal a name of the single-server provider', () => {
    const single = new KeyLayout('shop');
    for (const key of ['order', '{0}', 'redlock:order']) {
      expect(single.lockOf(key).startsWith(layout.counter)).toBe(false);
    }
    expect(single.counter.startsWith(layout.counter)).toBe(false);
  });
});
