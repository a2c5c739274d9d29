import { describe, expect, it } from '@jest/globals';
import { createPool } from 'mysql2';
import pg from 'pg';
import { LockConfigError } from '../../lib/api/errors.js';
import { SqlAdvisoryLockProvider, SqlRowLockProvider, SqlVersionLockProvider } from '../../lib/providers/sql/index.js';

describe.each([SqlRowLockProvider, SqlVersionLockProvider, SqlAdvisoryLockProvider])('%p', (Provider) => {
  const make = (options: unknown) => () => new Provider(options as never);

  it.each([
    [undefined],
    [null],
    [{}],
    [{ url: 'postgres://h/d', postgres: {} }],
    [{ postgres: {}, mysql: {} }],
    [{ dataSource: {} }],
  ])('needs exactly one server: %j', (options) => {
    expect(make(options)).toThrow(LockConfigError);
    expect(make(options)).toThrow(/exactly one of "url", "postgres" and "mysql"/);
  });

  it.each(['redis://u:secret@h/d', 'postgres', '', 5, 'http://u:secret@h'])(
    'names the schemes of "url", and not the address, which may have a password: %p',
    (url) => {
      expect(make({ url })).toThrow(/must begin with postgres:\/\//);
      expect(make({ url })).not.toThrow(/secret/);
    },
  );

  it('refuses the pools of the application, whose waiters would block it', async () => {
    const [postgres, mysql] = [new pg.Pool(), createPool({})];
    for (const options of [{ postgres }, { mysql }]) expect(make(options)).toThrow(/not a pool or a connection/);
    await postgres.end();
    mysql.end();
  });
});
