import type { LockInfo } from '../../lib/api/lock-info.js';
import { detailsOf, rowOf } from '../../lib/cli/lock-text.js';
import { tableLines } from '../../lib/cli/table.js';

const NOW = Date.parse('2026-11-23T11:30:04.113Z');
const LOCK: LockInfo = {
  ...{ key: 'order:42', state: 'held', mode: 'exclusive', holders: 1, waiters: 3, expiresIn: 24_108 },
  ...{ fencingToken: 17n, instances: ['shop-1'], since: new Date(NOW - 600_000) },
};

it('columns are as wide as their widest cell, in characters, and a later part follows the earlier ones', () => {
  const widths: number[] = [];
  expect(
    tableLines(
      [
        ['KEY', 'STATE'],
        ['é🔒', 'held'],
        ['long:key', ''],
      ],
      widths,
    ),
  ).toEqual(['KEY       STATE', 'é🔒        held', 'long:key']);
  expect(tableLines([['a', 'held']], widths)).toEqual(['a         held']);
  expect(tableLines([['longer:key', 'b']], widths)).toEqual(['longer:key  b']);
});

it('a row and the details of each kind of lock', () => {
  expect(rowOf(LOCK)).toEqual(['order:42', 'held', 'shop-1', '2026-11-23 11:20:04Z', '24s', '3', '17']);
  expect(detailsOf(LOCK, NOW)).toEqual([
    ['key', 'order:42'],
    ['state', 'held'],
    ['held by', 'shop-1'],
    ['since', '2026-11-23 11:20:04Z (10m ago)'],
    ['ends', 'in 24s, unless it is renewed'],
    ['waiting', '3'],
    ['token', '17'],
  ]);
  const instances = ['a', 'b', 'c', 'd', 'e'];
  const unknown = { since: null, fencingToken: null, waiters: null, expiresIn: null };
  const shared: LockInfo = { ...LOCK, ...unknown, mode: 'shared', holders: 5, instances };
  expect(rowOf(shared)).toEqual(['order:42', 'shared by 5', 'a, b, c, and 2 more', '-', '-', '-', '-']);
  expect(detailsOf(shared, NOW)).toContainEqual(['ends', "with the holder's session"]);
  expect(rowOf({ ...LOCK, mode: 'limited', limit: 4, used: 3 })[1]).toBe('held, 3 of 4');
  const retained: LockInfo = { ...LOCK, state: 'retained', holders: 0, instances: [] };
  expect(rowOf(retained).slice(1, 3)).toEqual(['retained', '-']);
  expect(detailsOf(retained, NOW)).toContainEqual(['ends', 'in 24s']);
});

it('no key and no instance can write to the terminal, and a clock that is behind shows no age', () => {
  const lock = { ...LOCK, key: 'a\u001b[2J\nb', instances: ['\u009bx'] };
  expect([...rowOf(lock), ...detailsOf(lock, NOW - 3_600_000).flat()].join('')).not.toMatch(/\p{Cc}|\bago\b/u);
  expect(rowOf(lock)[0]).toBe('a\\u001b[2J\\nb');
});
