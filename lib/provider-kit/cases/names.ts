import assert from 'node:assert/strict';
import { LockKeyError } from '../../api/errors.js';
import type { CaseDefinition } from '../case-definition.js';
import { rejectsWith } from '../expectations.js';
import type { Stage } from '../stage.js';

// Families of keys that a backend might confuse. They are small, because each lock may cost a connection.
export const HOSTILE: Record<string, readonly string[]> = {
  punctuation: ['/', '\\', ':', '#'],
  braces: ['{', '}', '{a}', '{}'],
  patterns: ['*', '?', '[a]', '%', '_'],
  paths: ['.', '..', '../a', './a'],
  slashes: ['/a', 'a/', 'a//b', 'a/b'],
  quotes: ["'", '"', '`', "a'; DROP TABLE lock; --"],
  blanks: [' ', '  ', 'a ', ' a', 'a'],
  control: ['\0', '\n', '\r\n', '\t', '\x7f'],
  ends: ['a\0', 'a\n', 'a\0b'],
  unicode: ['é', 'e\u0301', 'e', 'É'],
  folding: ['ß', 'ss', 'ſs', 'SS'],
  turkish: ['i', 'I', 'ı', 'İ'],
  planes: ['😀', '😁', '\u{10ffff}', '\uffff'],
  invisible: ['a', 'a\u200b', '\ufeffa', 'a\u00ad'],
  escapes: ['%41', 'A', '\\x41', '&#65;'],
  numbers: ['1', '01', '1.0', '١'],
};

/** Keys are used as is: different keys never share a lock. */
export const nameCases: readonly CaseDefinition[] = [
  {
    id: '#43',
    title: 'hostile keys are usable, exclude others, and are distinct',
    async run(stage) {
      await assertApart(stage, Object.values(HOSTILE));
    },
  },
  {
    id: '#43b',
    title: 'an empty key is refused',
    async run(stage) {
      const { locks } = await stage.process();
      await rejectsWith(LockKeyError, locks.acquire(''), 'the empty key');
    },
  },
  {
    id: '#44',
    title: 'keys that differ in case are different',
    run: (stage) => assertApart(stage, [['order', 'Order', 'ORDER']]),
  },
  {
    id: '#45',
    title: 'long keys that differ in their last or first character are different',
    async run(stage) {
      const families = [65, 129, 256, 1_000, 4_096].map((length) => {
        const stem = 'x'.repeat(length - 1);
        return [`${stem}a`, `${stem}b`, `a${stem}`, stem];
      });
      families.push(['é'.repeat(1_000), `${'é'.repeat(999)}e`]);
      await assertApart(stage, families);
    },
  },
  {
    id: '#48',
    title: 'namespaces are apart, also where namespace and key run into each other',
    async run(stage) {
      const { namespace } = stage;
      const [ann, bob] = await Promise.all([stage.process(namespace), stage.process(`${namespace}-x`)]);
      for (const [annKey, bobKey] of [
        ['order', 'order'],
        ['-x:order', 'order'],
        ['-xorder', 'order'],
      ] as const) {
        const locks = [await ann.tryAcquire(annKey), await bob.tryAcquire(bobKey)];
        for (const lock of locks) {
          assert.ok(lock, `"${annKey}" and "${bobKey}" of another namespace are different`);
          await lock.release();
        }
      }
    },
  },
];

async function assertApart(stage: Stage, families: readonly (readonly string[])[]): Promise<void> {
  const [ann, bob] = await stage.directs(2);
  for (const keys of families) {
    const grants = [];
    for (const key of keys) grants.push(await ann.take(key));
    for (const key of keys) await bob.assertBusy(key);
    for (const grant of grants) {
      assert.equal(await ann.release(grant), 'released');
    }
    for (const key of keys) await bob.release(await bob.take(key));
  }
}
