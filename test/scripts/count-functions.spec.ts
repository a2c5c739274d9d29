import { execFileSync } from 'node:child_process';
import { join } from 'node:path';
import { describe, expect, it } from '@jest/globals';

const root = join(import.meta.dirname, '../..');

interface Counts {
  readonly toWire: number;
  readonly toTask: number;
  readonly altogether: number;
  readonly files: number;
  readonly withoutAccessorsAndInitializers: { readonly altogether: number; readonly files: number };
}

describe('the count of functions that one lock enters', () => {
  it('sees also those that have returned, for a free lock and for one that another process hands over', () => {
    const output = execFileSync(process.execPath, ['scripts/count-functions.mjs'], { cwd: root, encoding: 'utf8' });
    const counts = new Map<string, Counts>();
    const listed = output.split('\n').filter((line) => line.startsWith('  '));
    for (const [, name, numbers] of output.matchAll(/^(\w+): (\{.*\})$/gm)) {
      counts.set(name!, JSON.parse(numbers!) as Counts);
    }
    expect([...counts.keys()]).toEqual(['uncontended', 'contended']);
    for (const { toWire, toTask, altogether, files, withoutAccessorsAndInitializers: others } of counts.values()) {
      expect(toWire).toBeGreaterThan(20);
      expect(toTask).toBeGreaterThan(toWire);
      expect(altogether).toBeGreaterThan(toTask);
      expect(files).toBeGreaterThan(10);
      expect(others.altogether).toBeLessThan(altogether);
      expect(others.files).toBeGreaterThan(10);
    }
    const isAccessorOrInitializer = (line: string) => / (get|set) \S+ at \d+$| <\w+_initializer> at \d+$/.test(line);
    expect(listed.filter(isAccessorOrInitializer)).not.toEqual([]);
    const sum = (numberOf: (each: Counts) => number) =>
      [...counts.values()].reduce((all, each) => all + numberOf(each), 0);
    expect(sum((each) => each.altogether)).toBe(listed.length);
    expect(sum((each) => each.withoutAccessorsAndInitializers.altogether)).toBe(
      listed.filter((line) => !isAccessorOrInitializer(line)).length,
    );
    const [, bytes] = /^allocatedBytes: (\d+)$/m.exec(output) ?? [];
    expect(Number(bytes)).toBeGreaterThan(1_000);
    for (const ours of [
      'nest/service/lock.service.js withLock',
      'core/acquire/key-queue.js add',
      'providers/redis/batcher.js add',
    ]) {
      expect(output).toContain(`  ${ours} at `);
    }
  }, 180_000);
});
