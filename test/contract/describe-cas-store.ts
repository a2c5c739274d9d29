import type { CasStore } from '../../lib/api/lock-provider.js';

const WRITERS = 6;
const WRITES = 20;

/** The cases of every backend that has a CasStore. Each of `create` is a process, and all share the values. */
export function describeCasStore(create: () => Promise<CasStore>): void {
  it.each([1, 2, 3])('compares and sets, and answers the value after it: process %i', async (process) => {
    const store = await create();
    const name = `set-${process}`;
    expect(await store.compareAndSet(name, 'a', 'b')).toBeNull();
    expect(await store.compareAndSet(name, null, 'a')).toBe('a');
    expect(await store.compareAndSet(name, null, 'b')).toBe('a');
    expect(await store.compareAndSet(name, 'b', 'c')).toBe('a');
    expect(await store.compareAndSet(name, 'a', 'b')).toBe('b');
    const long = 'ü€😀"\\\'\u0000'.repeat(5_000);
    expect(await store.compareAndSet(name, 'b', long)).toBe(long);
    expect(await store.compareAndSet(name, null, 'c')).toBe(long);
    expect(await store.compareAndSet(name, long, '')).toBe('');
    expect(await store.compareAndSet(name, null, 'c')).toBe('');
    expect(await store.compareAndSet(name, '', 'c')).toBe('c');
  });

  it('compares byte by byte, and keeps each value under its name', async () => {
    const store = await create();
    for (const [name, value] of [
      ['case', 'a'],
      ['Case', 'A'],
      ['space', 'a '],
    ] as const) {
      expect(await store.compareAndSet(name, null, value)).toBe(value);
      for (const other of ['a', 'A', 'a ', 'á', ''].filter((text) => text !== value)) {
        expect(await store.compareAndSet(name, other, 'b')).toBe(value);
      }
    }
  });

  it('writers that contend from the first write on make one history, in which no value follows two', async () => {
    const writers = await Promise.all(Array.from({ length: WRITERS }, create));
    const successors = new Map<string | null, string>();
    await Promise.all(
      writers.map(async (store, writer) => {
        let known: string | null = null;
        for (let done = 0; done < WRITES;) {
          const next = `${writer}:${done}`;
          const found = await store.compareAndSet('history', known, next);
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
