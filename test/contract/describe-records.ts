import { expect, it } from '@jest/globals';
import type { Records } from '../../lib/api/lock-provider.js';

const WRITERS = 6;
const WRITES = 20;

/** What every backend that keeps records must do. Each of `create` is a process, and all share what stands there. */
export function describeRecords(create: () => Promise<Records>): void {
  it.each([1, 2, 3])('compare and set, and answer what stands then: process %i', async (process) => {
    const records = await create();
    const name = `set-${process}`;
    expect(await records.compareAndSet(name, 'a', 'b')).toBeNull();
    expect(await records.compareAndSet(name, null, 'a')).toBe('a');
    expect(await records.compareAndSet(name, null, 'b')).toBe('a');
    expect(await records.compareAndSet(name, 'b', 'c')).toBe('a');
    expect(await records.compareAndSet(name, 'a', 'b')).toBe('b');
    const long = 'ü€😀"\\\'\u0000'.repeat(5_000);
    expect(await records.compareAndSet(name, 'b', long)).toBe(long);
    expect(await records.compareAndSet(name, null, 'c')).toBe(long);
    expect(await records.compareAndSet(name, long, '')).toBe('');
    expect(await records.compareAndSet(name, null, 'c')).toBe('');
    expect(await records.compareAndSet(name, '', 'c')).toBe('c');
  });

  it('byte by byte, and each under its name', async () => {
    const records = await create();
    for (const [name, value] of [
      ['case', 'a'],
      ['Case', 'A'],
      ['space', 'a '],
    ] as const) {
      expect(await records.compareAndSet(name, null, value)).toBe(value);
      for (const other of ['a', 'A', 'a ', 'á', ''].filter((text) => text !== value)) {
        expect(await records.compareAndSet(name, other, 'b')).toBe(value);
      }
    }
  });

  it('writers that contend from the first write on make one history, in which no value follows two', async () => {
    const writers = await Promise.all(Array.from({ length: WRITERS }, create));
    const successors = new Map<string | null, string>();
    await Promise.all(
      writers.map(async (records, writer) => {
        let known: string | null = null;
        for (let done = 0; done < WRITES;) {
          const next = `${writer}:${done}`;
          const found = await records.compareAndSet('history', known, next);
          if (found === next) {
            expect(successors.has(known)).toBe(false);
            successors.set(known, next);
            done += 1;
          }
          known = found;
        }
      }),
    );
    let length = 0;
    for (let value = successors.get(null); value !== undefined; value = successors.get(value)) length += 1;
    expect(length).toBe(WRITERS * WRITES);
  });
}
