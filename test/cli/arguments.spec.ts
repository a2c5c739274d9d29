import { readArguments } from '../../lib/cli/arguments.js';
import { Misuse } from '../../lib/cli/exit-code.js';

const LIST = { subject: 'prefix' } as const;
const FREE = { subject: 'key', asks: true } as const;
const REDIS = ['--url', 'redis://host:6379'];

function read(args: readonly string[], shape: Parameters<typeof readArguments>[1] = LIST, LOCK_URL?: string) {
  const answer = readArguments(args, shape, { LOCK_URL });
  if (answer === 'help') throw new Error('It was taken for a request for help.');
  return answer;
}

it('the scheme of --url or LOCK_URL says which server it is', () => {
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

it('a key, a prefix and options', () => {
  expect(read(['order:', ...REDIS])).toMatchObject({
    subject: 'order:',
    json: false,
    yes: false,
    namespace: undefined,
  });
  expect(read(['--prefix', 'order:', ...REDIS, '--json', '--namespace=shop'])).toMatchObject({
    ...{ subject: 'order:', json: true, namespace: 'shop' },
  });
  expect(read(['-y', ...REDIS, '--', '--odd key'], FREE)).toMatchObject({ subject: '--odd key', yes: true });
  expect(read(['--url', 'postgres://h/db', '--table', 'app.locks']).source).toMatchObject({ table: 'app.locks' });
  for (const help of ['--help', '-h']) expect(readArguments([help], FREE, {})).toBe('help');
});

it.each([
  [[], LIST, 'No server is named: use --url or --config, or set'],
  [['--url', ''], LIST, 'No server is named'],
  [[...REDIS, '--config', 'a.mjs'], LIST, '--url and --config were given'],
  [[...REDIS, '--table', 't'], LIST, '--table is for SQL.'],
  [['--config', 'a.mjs', '--table', 't'], LIST, '--table is for SQL.'],
  [['--url'], LIST, "Option '--url <value>' argument missing."],
  [[...REDIS, '--jsn'], LIST, "Unknown option '--jsn'."],
  [REDIS, FREE, 'The key is missing.'],
  [['a', 'b', ...REDIS], FREE, 'There must be one key'],
  [['a', ...REDIS], {}, 'takes options only'],
  [['a', '--prefix', 'b', ...REDIS], LIST, 'There must be one prefix'],
  [['a', '--prefix', 'b', ...REDIS], FREE, '--prefix is for list.'],
  [['--yes', ...REDIS], LIST, '--yes is for free.'],
] as const)('%j is refused', (args, shape, message) => {
  expect(() => read(args, shape)).toThrow(Misuse);
  expect(() => read(args, shape)).toThrow(message);
});

it.each(['http://user:hunter2@host', 'host:hunter2', 'constructor://hunter2'])(
  'an address with another scheme is refused, and never shown: %s',
  (url) => {
    const message = 'must begin with one of redis://, rediss://, postgres://, postgresql://, mysql://, mariadb://, zoo';
    expect(() => read([], LIST, url)).toThrow(`LOCK_URL ${message}`);
    expect(() => read(['--url', url])).toThrow(`--url ${message}`);
    expect(() => read(['--url', url])).not.toThrow('hunter2');
  },
);

it('an address with a password in an argument is noticed, and one in LOCK_URL is right', () => {
  const shown = [
    ['--url', 'redis://:hunter2@host'],
    ['--url', 'redis://user:hunter2@host:6379'],
    ['--url', 'postgres://user:p@ss/word@host/shop'],
    ['--url', 'postgres://host/shop?user=a&password=hunter2'],
    ['redis://:hunter2@host', ...REDIS],
  ];
  for (const args of shown) expect(read(args)).toMatchObject({ showsPassword: true });
  for (const args of [REDIS, ['--url', 'redis://user@host'], ['--url', 'zookeeper://a:1,b:2/c'], ['a@b:c', ...REDIS]]) {
    expect(read(args)).toMatchObject({ showsPassword: false });
  }
  expect(read([], LIST, 'redis://:hunter2@host')).toMatchObject({ showsPassword: false });
});
