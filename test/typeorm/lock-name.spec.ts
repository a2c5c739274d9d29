import { counterNameOf, rowNameOf } from '../../lib/providers/typeorm/lock-name.js';

// Golden: two versions of this package in one fleet must lock the same rows, for ever.
describe('names of rows', () => {
  it.each([
    ['order:42', 'shop:order:42'],
    ['Order:42', 'shop:Order:42'],
    ['a b', 'shop:a_b#h4fMnf0CFrqHZE2QKepVI-VfEDmrXap6hhhmU2qKI_s'],
    ['x'.repeat(121), `shop:${'x'.repeat(40)}#KW9uPH1FFOsk0oA0SDKK1Ju6L8675vo-a8kFzYjob-E`],
  ])('%s', (key, name) => {
    expect(rowNameOf('shop', key)).toBe(name);
  });

  it('are short, of ASCII, and differ for keys that differ by half a character', () => {
    const names = [
      '\ud800',
      '\ud801',
      'é',
      'e\u0301',
      'a#b',
      'a_b',
      `${'x'.repeat(4_000)}a`,
      `${'x'.repeat(4_000)}b`,
    ].map((key) => rowNameOf('n'.repeat(64), key));
    expect(new Set(names).size).toBe(names.length);
    for (const name of names) expect(name).toMatch(/^[\x21-\x7e]{1,255}$/);
  });

  it('of counters are sixteen in a namespace, and never those of keys', () => {
    const counters = new Set(Array.from({ length: 500 }, (_, index) => counterNameOf('shop', `key:${index}`)));
    expect(counters.size).toBe(16);
    expect(counterNameOf('shop', 'order:42')).toBe('shop#fence:13');
    for (const name of counters) expect(name.startsWith('shop#fence:')).toBe(true);
  });
});
