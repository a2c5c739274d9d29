import { type Arguments, readArguments } from '../../lib/cli/arguments.js';
import { doctor as DOCTOR } from '../../lib/cli/commands/doctor.js';
import { free as FREE } from '../../lib/cli/commands/free.js';
import { list as LIST } from '../../lib/cli/commands/list.js';
import { UsageError } from '../../lib/cli/exit-code.js';
import { hasPassword, type Source, sourceOf } from '../../lib/cli/source.js';

const REDIS = ['--url', 'redis://host:6379'];

function read(args: readonly string[], command = LIST, LOCK_URL?: string): Arguments & { readonly source: Source } {
  const read = readArguments(args, command);
  return { ...read, source: sourceOf(read, { LOCK_URL }) };
}

it('the scheme of --url or LOCK_URL selects the server', () => {
  const sources = [
    ['redis', 'redis://host'],
    ['redis', 'rediss://host'],
    ['postgres', 'postgres://host/shop'],
    ['postgres', 'postgresql://host/shop'],
    ['mysql', 'mysql://host/shop'],
    ['mysql', 'mariadb://host/shop'],
    ['zookeeper', 'zookeeper://zk1:2181,zk2:2181/locks'],
  ] as const;
  for (const [kind, url] of sources) {
    expect(read(['--url', url]).source).toEqual({ kind, url });
    expect(read([], LIST, url).source).toEqual({ kind, url });
  }
  expect(read(['--config', 'lock.config.mjs']).source).toEqual({ kind: 'config', file: 'lock.config.mjs' });
  expect(read(REDIS, LIST, 'postgres://other/shop').source).toMatchObject({ kind: 'redis' });
});

it('reads a key, a prefix, and options', () => {
  expect(read(['order:', ...REDIS])).toEqual({
    ...{ subject: 'order:', url: 'redis://host:6379', source: { kind: 'redis', url: 'redis://host:6379' } },
  });
  expect(read(['--prefix', 'order:', ...REDIS, '--json', '--namespace=shop'])).toMatchObject({
    ...{ subject: 'order:', json: true, namespace: 'shop' },
  });
  expect(read(['-y', ...REDIS, '--', '--odd key'], FREE)).toMatchObject({ subject: '--odd key', yes: true });
  expect(read(['--url', 'postgres://h/db', '--table', 'app.locks']).source).toMatchObject({ table: 'app.locks' });
  for (const help of ['--help', '-h']) expect(readArguments([help], FREE)).toMatchObject({ help: true });
});

it.each([
  [[], LIST, 'No server specified. Use --url or --config, or set'],
  [['--url', ''], LIST, 'No server specified'],
  [[...REDIS, '--config', 'a.mjs'], LIST, 'Use either --url or --config, not both.'],
  [[...REDIS, '--table', 't'], LIST, '--table is only for SQL.'],
  [['--config', 'a.mjs', '--table', 't'], LIST, '--table cannot be combined with --config.'],
  [['--url'], LIST, "Option '--url <value>' argument missing."],
  [[...REDIS, '--jsn'], LIST, "Unknown option '--jsn'."],
  [REDIS, FREE, 'The key is missing.'],
  [['a', 'b', ...REDIS], FREE, 'pass one key'],
  [['a', ...REDIS], DOCTOR, 'takes options only'],
  [['a', '--prefix', 'b', ...REDIS], LIST, 'pass one prefix'],
  [['a', '--prefix', 'b', ...REDIS], FREE, "Unknown option '--prefix'."],
  [['--yes', ...REDIS], LIST, "Unknown option '--yes'."],
] as const)('rejects %j', (args, shape, message) => {
  expect(() => read(args, shape)).toThrow(UsageError);
  expect(() => read(args, shape)).toThrow(message);
});

it.each(['http://user:hunter2@host', 'host:hunter2', 'constructor://hunter2'])(
  'rejects an address with an unknown scheme without printing it: %s',
  (url) => {
    const message = 'must begin with one of redis://, rediss://, postgres://, postgresql://, mysql://, mariadb://, zoo';
    expect(() => read([], LIST, url)).toThrow(`LOCK_URL ${message}`);
    expect(() => read(['--url', url])).toThrow(`--url ${message}`);
    expect(() => read(['--url', url])).not.toThrow('hunter2');
  },
);

it.each([
  ['redis://:hunter2@host', true],
  ['redis://user:hunter2@host:6379', true],
  ['postgres://user:p@ss/word@host/shop', true],
  ['postgres://host/shop?user=a&password=hunter2', true],
  ['redis://host:6379', false],
  ['redis://user@host', false],
  ['zookeeper://a:1,b:2/c', false],
  ['a@b:c', false],
])('detects whether %s has a password: %j', (address, expected) => {
  expect(hasPassword(address)).toBe(expected);
});
