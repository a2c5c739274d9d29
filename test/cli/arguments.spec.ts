import { readArguments } from '../../lib/cli/arguments.js';
import { Misuse } from '../../lib/cli/exit-code.js';

const LIST = { subject: 'prefix' } as const;
const FREE = { subject: 'key', asks: true } as const;
const REDIS = ['--redis', 'redis://host:6379'];

function read(args: readonly string[], shape: Parameters<typeof readArguments>[1] = LIST, LOCK_URL?: string) {
  const answer = readArguments(args, shape, { LOCK_URL });
  if (answer === 'help') throw new Error('It was taken for a request for help.');
  return answer;
}

it('each server is named by an option, or by LOCK_URL', () => {
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
    expect(read([`--${kind}`, url]).source).toEqual({ kind, url });
    expect(read([], LIST, url).source).toEqual({ kind, url });
  }
  expect(read(['--zookeeper', 'zk1:2181']).source).toEqual({ kind: 'zookeeper', url: 'zk1:2181' });
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
  expect(read(['--postgres', 'postgres://h/db', '--table', 'app.locks']).source).toMatchObject({ table: 'app.locks' });
  for (const help of ['--help', '-h']) expect(readArguments([help], FREE, {})).toBe('help');
});

it.each([
  [[], LIST, 'No server is named: use --redis, --postgres, --mysql, --zookeeper or --config, or put'],
  [['--redis', 'mysql://h'], LIST, 'begins with mysql://, and must begin with redis:// or rediss://.'],
  [[...REDIS, '--mysql', 'mysql://h'], LIST, '--redis and --mysql were given'],
  [[...REDIS, '--config', 'a.mjs'], LIST, '--redis and --config were given'],
  [[...REDIS, '--table', 't'], LIST, '--table is for --postgres and --mysql.'],
  [['--config', 'a.mjs', '--table', 't'], LIST, '--table is for --postgres and --mysql.'],
  [['--redis'], LIST, "Option '--redis <value>' argument missing."],
  [[...REDIS, '--jsn'], LIST, "Unknown option '--jsn'."],
  [REDIS, FREE, 'The key is missing.'],
  [['a', 'b', ...REDIS], FREE, 'There must be one key'],
  [['a', ...REDIS], {}, 'takes options only'],
  [['a', '--prefix', 'b', ...REDIS], LIST, 'There must be one prefix'],
  [['a', '--prefix', 'b', ...REDIS], FREE, '--prefix is for list and watch.'],
  [['--yes', ...REDIS], LIST, '--yes is for free.'],
] as const)('%j is refused', (args, shape, message) => {
  expect(() => read(args, shape)).toThrow(Misuse);
  expect(() => read(args, shape)).toThrow(message);
});

it('LOCK_URL of another kind is refused, and never shown', () => {
  expect(() => read([], LIST, 'http://user:hunter2@host')).toThrow(
    /^LOCK_URL must begin with redis:\/\/ or rediss:\/\/,/,
  );
  expect(() => read([], LIST, 'hunter2')).toThrow(/^(?!.*hunter2)LOCK_URL must begin with/);
});

it('an address with a password in an argument is noticed, and one in LOCK_URL is right', () => {
  const shown = [
    ['--redis', 'redis://:hunter2@host'],
    ['--redis', 'redis://user:hunter2@host:6379'],
    ['--postgres', 'postgres://user:p@ss/word@host/shop'],
    ['--postgres', 'postgres://host/shop?user=a&password=hunter2'],
    ['redis://:hunter2@host', ...REDIS],
  ];
  for (const args of shown) expect(read(args)).toMatchObject({ showsPassword: true });
  for (const args of [REDIS, ['--redis', 'redis://user@host'], ['--zookeeper', 'a:1,b:2/c'], ['a@b:c', ...REDIS]]) {
    expect(read(args)).toMatchObject({ showsPassword: false });
  }
  expect(read([], LIST, 'redis://:hunter2@host')).toMatchObject({ showsPassword: false });
});
