import type { PublishedWait } from '../../lib/core/insight/cycle-search.js';
import { readWaitRecord, WaitRecordWriter } from '../../lib/core/insight/wait-record.js';

describe('the record of a process', () => {
  const process = 'aaaaaaaaaaaa';
  const grant = (number: number) => process + String(number).padStart(20, '0');
  const wait = (number: number, key: string, rest: Partial<PublishedWait> = {}): PublishedWait => ({
    ...{ id: `${process}.${number}`, key, mode: 'exclusive', since: 1_000 + number, instance: 'shop', method: null },
    ...rest,
  });

  function written(...waits: (readonly [PublishedWait, readonly string[]])[]): string {
    const writer = new WaitRecordWriter();
    for (const [each, grants] of waits) expect(writer.add(each, grants)).toBe(true);
    return writer.text(7, 'shop')!;
  }

  it('is read as it was written, by the grants of the owners', () => {
    const own = [wait(1, 'b'), wait(2, 'c', { mode: 'shared', method: 'A.b' }), wait(3, 'A.b')] as const;
    const record = readWaitRecord(
      process,
      written([own[0], [grant(1), grant(2)]], [own[1], [grant(2)]], [own[2], [grant(1), grant(2)]]),
    )!;
    expect(record.beat).toBe(7);
    const waitsOf = (number: number) => record.linksOf(grant(number), 'exclusive').map((link) => link.wait);
    expect(waitsOf(1)).toEqual([own[0], own[2]]);
    expect(waitsOf(2)).toEqual(own);
    expect(waitsOf(3)).toEqual([]);
    // The grant of another process that ends alike.
    expect(record.linksOf(`b${grant(1).slice(1)}`, 'exclusive')).toEqual([]);
    expect(new WaitRecordWriter().text(7, 'shop')).toBeNull();
  });

  it('writes sets of grants, keys and methods one time, and stays within 32,000 characters', () => {
    const grants = Array.from({ length: 100 }, (_, number) => grant(number));
    const writer = new WaitRecordWriter();
    let count = 0;
    while (writer.add(wait(count, `key:${count % 50}`, { method: 'Shop.sell' }), grants)) count += 1;
    expect(count).toBeGreaterThan(1_500);
    const text = writer.text(1, 'shop')!;
    expect(text.length).toBeLessThan(32_200);
    expect(readWaitRecord(process, text)!.linksOf(grant(99), 'exclusive')).toHaveLength(count);
  });

  const record = (change: Record<number, unknown>) =>
    JSON.stringify(Object.assign([1, 7, 1_000, 'shop', ['key'], [grant(1).slice(-20)], '1,0,0,0,0,-1'], change));

  it('is a record as this test writes it', () => {
    expect(readWaitRecord(process, record({}))!.linksOf(grant(1), 'exclusive')).toHaveLength(1);
  });

  it.each([
    '',
    'x',
    '{}',
    'null',
    '[]',
    record({ 0: 2 }),
    record({ 1: '7' }),
    record({ 2: -1 }),
    record({ 3: 'i\u001bd' }),
    record({ 3: 'i'.repeat(101) }),
    record({ 4: [{}] }),
    record({ 4: [''] }),
    record({ 4: ['k'.repeat(4_097)] }),
    record({ 4: ['key', 'Shop.\u001bsell'], 6: '1,0,0,0,0,1' }),
    record({ 5: [3] }),
    record({ 6: '' }),
    record({ 6: '1,0,0,0,0' }),
    record({ 6: '1,1,0,0,0,-1' }),
    record({ 6: '1,0,1,0,0,-1' }),
    record({ 6: '1,0,0,0,x,-1' }),
    record({ 6: '1,0,0,0,0,5' }),
  ])('that says %s was written by others, and is ignored', (text) => {
    expect(readWaitRecord(process, text)).toBeUndefined();
  });
});
