import { jest } from '@jest/globals';
import { runInNewContext } from 'node:vm';
import * as errors from '../../lib/api/errors.js';
import { LockError, LockBusyError, LockKeyError, LockLostError, LockUnavailableError } from '../../lib/api/errors.js';
import { startManager } from '../core/manager-rig.js';
import { safeCause, safeText } from '../../lib/api/cause.js';
import { printable } from '../../lib/api/printable.js';
import { textOf } from '../../lib/provider-kit/secrets.js';

type ErrorClass = new (message: string, details: object) => LockError;

/** Loads a second copy of the package and returns its errors. Each call loads another copy. */
async function copyOfErrors(): Promise<typeof errors> {
  let copy = errors;
  await jest.isolateModulesAsync(async () => {
    copy = await import('../../lib/api/errors.js');
  });
  return copy;
}

describe('lock errors', () => {
  it('have a code, a name, a key, a provider, and a cause', () => {
    const cause = new Error('beneath');
    const error = new LockBusyError('busy', { key: 'a', provider: 'main', cause });
    expect(error).toMatchObject({ name: 'LockBusyError', code: 'LOCK_BUSY', key: 'a', provider: 'main', cause });
    const bare = new LockBusyError('busy');
    expect([bare.key, bare.provider, 'cause' in bare]).toEqual([null, null, false]);
  });

  it('have stable codes', () => {
    const codes = Object.entries(errors)
      .filter(([name]) => name !== 'LockError' && name.endsWith('Error'))
      .map(([name, Type]) => [name, new (Type as ErrorClass)('x', {}).code]);
    expect(Object.fromEntries(codes)).toEqual({
      LockBusyError: 'LOCK_BUSY',
      LockLostError: 'LOCK_LOST',
      LockUnavailableError: 'LOCK_UNAVAILABLE',
      LockKeyError: 'LOCK_KEY',
      LockConfigError: 'LOCK_CONFIG',
      LockDeadlockError: 'LOCK_DEADLOCK',
      LockCapacityError: 'LOCK_CAPACITY',
      VersionConflictError: 'LOCK_VERSION_CONFLICT',
    });
  });

  it('support instanceof across two copies of the package', async () => {
    const otherCopy = await copyOfErrors();
    const kinds = Object.entries(errors).filter(([name]) => name !== 'LockError') as [
      keyof typeof errors,
      ErrorClass,
    ][];
    expect(otherCopy.LockError).not.toBe(LockError);
    for (const [name] of kinds) {
      const foreign = new (otherCopy[name] as ErrorClass)('From the other copy.', {});
      expect([LockError.is(foreign), foreign instanceof LockError, foreign instanceof Error]).toEqual([
        true,
        true,
        true,
      ]);
      expect(kinds.filter(([, Kind]) => foreign instanceof Kind).map(([kind]) => kind)).toEqual([name]);
    }
    for (const other of [new Error('no'), null, undefined, 'LockError', {}, { code: 'LOCK_BUSY' }]) {
      expect([LockError.is(other), other instanceof LockError, other instanceof LockBusyError]).toEqual(
        Array(3).fill(false),
      );
    }
  });

  it("an application's subclass does not match other errors with the same code", async () => {
    class StockBusyError extends LockBusyError {}
    const { LockBusyError: Foreign } = await copyOfErrors();
    expect(new StockBusyError('busy') instanceof LockBusyError).toBe(true);
    for (const Kind of [LockBusyError, Foreign]) expect(new Kind('busy') instanceof StockBusyError).toBe(false);
  });

  it('have only these enumerable properties in a log', () => {
    const keys = Object.keys(new LockBusyError('busy', { key: 'a', waited: 7 })).sort();
    expect(keys).toEqual(['code', 'key', 'name', 'provider', 'waited']);
  });

  it('name the key, the provider, the method, and the remedy', async () => {
    const { locks } = await startManager();
    const plan = locks.plan({ wait: 0 }, { method: 'OrderService.pay', template: 'order:#{id}' });
    await locks.acquire('order:42');
    await expect(async () => locks.acquirePlanned(plan, 'order:42')).rejects.toThrow(
      /^Lock "order:42" of OrderService.pay \(provider "main"\) was busy: instance "[^"]+" has held it for 0 ms\. .*within: lock.*lock\.run\(\)/,
    );
  });

  it('truncate a long key in the message', async () => {
    const { locks } = await startManager();
    const key = 'k'.repeat(1_000);
    await locks.acquire(key);
    const error: unknown = await locks.acquire(key, { wait: 0 }).catch((reason: unknown) => reason);
    expect(String(error).length).toBeLessThan(500);
    expect(error).toMatchObject({ key, waited: 0 });
  });
});

const ID = '0123456789abfeedfacefeedfacecafe';

/** Returns the cause that a lock error keeps. */
function causeOf(cause: unknown): Error & Record<string, unknown> {
  return new LockUnavailableError('It failed.', { cause }).cause as Error & Record<string, unknown>;
}

describe('the cause of a lock error', () => {
  it('keeps its class, name, message, code, stack, and other harmless properties', () => {
    class DriverError extends TypeError {
      override name = 'DriverError';
    }
    const given = {
      code: 'ER_DUP',
      errno: 1062,
      sqlState: '23000',
      syscall: 'connect',
      address: '10.0.0.1',
      port: 1,
      fatal: true,
    };
    const error = Object.assign(new DriverError('refused'), given);
    const cause = causeOf(error);
    expect(cause).toBeInstanceOf(DriverError);
    expect(cause).toMatchObject({ ...given, name: 'DriverError', message: 'refused' });
    expect(cause.stack).toBe(error.stack?.replace(/^.*/, 'DriverError: refused'));
  });

  it('drops other properties that drivers add', () => {
    const notes = {
      ...{ sql: `INSERT '${ID}'`, query: 'q', parameters: [ID], input: 'redis://:hunter2@[', command: { args: [ID] } },
      ...{ detail: `Key (${ID})`, where: `at ${ID}`, hint: 'hunter2', internalQuery: ID, cert: { raw: 'hunter2' } },
    };
    const error = Object.assign(new Error('failed'), notes, { [Symbol('x')]: 'hunter2' });
    Object.defineProperty(error, 'hidden', { value: 'hunter2', enumerable: false });
    expect(textOf(causeOf(error))).not.toMatch(/hunter2|feed|"q"/);
    expect(Object.keys(causeOf(error))).toEqual([]);
  });

  it('drops them at every level', () => {
    const lowest = Object.assign(new Error(`for ${ID}`), { sql: 'hunter2' });
    const several = new AggregateError([lowest], 'all failed', {
      cause: Object.assign(new Error('x'), { driverError: lowest }),
    });
    const wrapper = Object.assign(new Error('wrapper', { cause: several }), { lastNodeError: lowest });
    const cause = causeOf(wrapper);
    expect(textOf(cause)).not.toMatch(/hunter2|feed/);
    expect(cause.cause).toMatchObject({ message: 'all failed', errors: [{ message: 'for 0123456789ab…' }] });
    expect(cause.lastNodeError).toMatchObject({ message: 'for 0123456789ab…' });
  });

  it('is a single copy that leaves the original unchanged', () => {
    const error = Object.freeze(Object.assign(new Error('redis://:hunter2@h'), { sql: 'x' }));
    const cause = causeOf(error);
    expect(error).toMatchObject({ message: 'redis://:hunter2@h', sql: 'x' });
    expect(causeOf(error)).toBe(cause);
    expect(causeOf(cause)).toBe(cause);
  });

  it.each([
    ['text', 'redis://:hunter2@h', 'redis://***@h'],
    ['a number', 5, 5],
    ['null', null, null],
    ['a function', () => 'hunter2', undefined],
    ['an object', { message: 'token=hunter2', code: 'X', sql: 'hunter2' }, { message: 'token=***', code: 'X' }],
  ])('accepts %s', (_, thrown, shown) => {
    expect(causeOf(thrown)).toEqual(shown);
  });

  it('may be circular, have throwing getters, or come from another realm', () => {
    const circular = new Error('a');
    circular.cause = new Error('b', { cause: circular });
    expect(textOf(new LockUnavailableError('x', { cause: circular }))).toContain('b');
    const deep = Array.from({ length: 10_000 }).reduce<Error>((cause) => new Error('deep', { cause }), new Error('x'));
    expect(causeOf(deep).message).toBe('deep');
    const locked = Object.defineProperties(new Error('a'), {
      code: { get: () => 'X' },
      port: {
        get: () => {
          throw new Error('no');
        },
      },
    });
    expect(causeOf(locked)).toMatchObject({ message: 'a', code: 'X' });
    const foreign = runInNewContext("Object.assign(new Error('redis://:hunter2@h'), { code: 'X', sql: 'x' })") as Error;
    expect(causeOf(foreign)).toMatchObject({ message: 'redis://***@h', code: 'X' });
    expect(textOf(causeOf(foreign))).not.toContain('hunter2');
  });

  it('has a stack with only calls, below its own message', () => {
    const forged = new Error('redis://:\n    at hunter2 (hunter2)@h');
    const changed = new Error('token=hunter2');
    changed.message = 'other';
    for (const error of [forged, changed]) expect(causeOf(error).stack).not.toContain('hunter2');
    expect(causeOf(changed).stack).toMatch(/^Error: other\n {4}at .*errors\.spec/);
  });

  it("is not quoted with secrets in the lock error's message", () => {
    const cause = new Error(`getaddrinfo ENOTFOUND user:hunter2@h`);
    const error = new LockUnavailableError(`Not available: ${cause.message}. Check it. ${String(cause)}`, { cause });
    expect(error.message).toBe(
      'Not available: getaddrinfo ENOTFOUND ***@h. Check it. Error: getaddrinfo ENOTFOUND ***@h',
    );
    expect(textOf(error)).not.toContain('hunter2');
    const text = "token=hunter2 $& $'";
    expect(new LockUnavailableError(`Not available: ${text}.`, { cause: text }).message).toBe(
      "Not available: token=*** $& $'.",
    );
  });

  it('is not copied if the application or this package threw it', () => {
    const own = Object.assign(new Error('redis://:hunter2@h'), { status: 401 });
    expect(new LockKeyError('x', { cause: own }).cause).toBe(own);
    const busy = new LockBusyError('x');
    expect(new LockUnavailableError('x', { cause: busy }).cause).toBe(busy);
    expect(new LockLostError('x', { reason: 'expired', outcome: { status: 'rejected', reason: own } }).outcome).toEqual(
      {
        status: 'rejected',
        reason: own,
      },
    );
  });
});

describe('safeText()', () => {
  it.each([
    ['redis://user:p%5Bw@h:6379/0 failed', 'redis://***@h:6379/0 failed'],
    ['redis://:pw@h', 'redis://***@h'],
    ['rediss://p[w@[127.0.0.1:7999', 'rediss://***@[127.0.0.1:7999'],
    ['mysql://user:a b@c/d@h/x', 'mysql://***@h/x'],
    ['mysql://user:a?b@h/x', 'mysql://***'],
    ['redis://h?password=a@b', 'redis://***'],
    ['getaddrinfo ENOTFOUND user:p/w@h', 'getaddrinfo ENOTFOUND ***@h'],
    ["bad host 'user:pw@h'", "bad host '***@h'"],
    ['getaddrinfo ENOTFOUND user:a b c@h', 'getaddrinfo ENOTFOUND ***@h'],
    ['redis://h/?password=a b', 'redis://h/?***'],
    ['redis://h:6379/0?password=pw&family=4', 'redis://h:6379/0?***'],
    ['connect ENOENT /tmp/redis.sock?password=pw', 'connect ENOENT /tmp/redis.sock?***'],
    ['db.aws.com:3306/?Action=connect&X-Amz-Signature=pw', 'db.aws.com:3306/?***'],
    ['invalid password "pw x"', 'invalid password "***"'],
    ["password='pw'", "password='***'"],
    ['{"password":"pw","port":1}', '{"password":"***","port":1}'],
    ['token: pw', 'token: ***'],
    [
      "ERR unknown command 'AUTH', with args beginning with: 'pw' 'x'",
      "ERR unknown command 'AUTH', with args beginning with: ***",
    ],
    [
      'The "password" argument must be of type string. Received type number (4711)',
      'The "password" argument must be of type string. Received type number ***',
    ],
    ["Port should be < 65536. Received 'pw'.", 'Port should be < 65536. Received ***.'],
    [`Duplicate entry 'lock:${ID}' for key`, "Duplicate entry 'lock:0123456789ab…' for key"],
    ['a\nb\u001b[31m', 'a\\nb\\u001b[31m'],
  ])('masks %j as %j', (text, shown) => {
    expect(safeText(text)).toBe(shown);
  });

  it.each([
    "Access denied for user 'root'@'localhost' (using password: YES)",
    "Access denied for user 'ann@corp'@'10.0.0.1' (using password: NO)",
    'password authentication failed for user "ann"',
    'connect ECONNREFUSED 127.0.0.1:6379',
    'connect ECONNREFUSED ::1:6379',
    "Cannot find package 'pg' imported from file:///app/node_modules/@acme/locks/index.js",
    "Cannot find module 'C:/app/node_modules/.pnpm/pg@8/x.js'",
    'Unexpected token } in JSON',
    "NOPERM User alice has no permissions to run the 'evalsha' command",
  ])('leaves %j unchanged', (text) => {
    expect(safeText(text)).toBe(text);
  });

  it('truncates long texts quickly', () => {
    for (const part of ['a', '@', 'a:@', '?a', 'pass ', '://', '"password":"']) {
      expect(safeText(part.repeat(1_000_000)).length).toBeLessThan(10_000);
    }
  });
});

it('printable() escapes a text to a single printable line', () => {
  expect(printable('a\r\n\t\0\u001b[2J\u007f\u009b\u2028\u2029\u202eb"\\ü会😀')).toBe(
    String.raw`a\r\n\t\u0000\u001b[2J\u007f\u009b\u2028\u2029\u202eb"\ü会😀`,
  );
});

it('safeText() and safeCause() are idempotent', () => {
  const text = safeText('redis://:pw@h\n?password=x');
  expect(safeText(text)).toBe(text);
  expect(safeCause(undefined)).toBeUndefined();
});
