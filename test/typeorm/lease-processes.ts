import { spawn } from 'node:child_process';
import { once } from 'node:events';
import { text } from 'node:stream/consumers';
import type { DataSource } from 'typeorm';
import { type CompiledLibrary, compileLibrary } from '../servers/compiled-library.js';

const SCRIPT = new URL('lease-process.mjs', import.meta.url).pathname;
const KEYS = ['a', 'A'];

export const typeOrmLibrary = (): Promise<CompiledLibrary> => compileLibrary();

/**
 * Lets processes take two keys in turn, and fails if two were ever inside at the same time: updates would be lost, or a token would
 * not be larger than the one before.
 */
export async function contend(
  { folder }: CompiledLibrary,
  options: object,
  admin: DataSource,
  processes: number,
  rounds: number,
): Promise<void> {
  await admin.query('DROP TABLE IF EXISTS counters');
  await admin.query('CREATE TABLE counters (name VARCHAR(9) NOT NULL, n INT NOT NULL)');
  for (const key of KEYS) await admin.query(`INSERT INTO counters (name, n) VALUES ('${key}', 0)`);
  const outputs = await Promise.all(
    Array.from({ length: processes }, async () => {
      const child = spawn(process.execPath, [SCRIPT, folder, JSON.stringify(options), KEYS.join(), String(rounds)]);
      const [output, complaint] = await Promise.all([text(child.stdout), text(child.stderr), once(child, 'close')]);
      if (child.exitCode !== 0) throw new Error(complaint);
      return output.trim().split('\n');
    }),
  );
  const rows = await admin.query<{ name: string; n: number }[]>('SELECT name, n FROM counters');
  const each = (processes * rounds) / KEYS.length;
  expect(Object.fromEntries(rows.map(({ name, n }) => [name, n]))).toEqual({ a: each, A: each });
  const tokens = outputs.flat();
  expect(new Set(tokens).size).toBe(processes * rounds);
  for (const lines of outputs) {
    for (const key of KEYS) {
      const own = lines.filter((line) => line.startsWith(`${key} `)).map((line) => BigInt(line.slice(2)));
      expect(own).toEqual([...own].sort((one, other) => (one < other ? -1 : 1)));
    }
  }
}
