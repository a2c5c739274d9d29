import { setTimeout as sleep } from 'node:timers/promises';
import { SqlBackend, type SqlType } from './sql-backend.js';

const databases: readonly SqlType[] = ['mariadb', 'postgres'];

// The fault "server paused" of the chaos program needs the processes that serve open connections to be stopped too.
describe.each(databases)('a server of %s that is stopped', (type) => {
  let backend: SqlBackend;

  beforeAll(async () => {
    backend = await SqlBackend.start(type);
  }, 60_000);
  afterAll(() => backend.stop());

  it('answers nothing on an open connection, and answers again when it goes on', async () => {
    const connection = backend.admin.createQueryRunner();
    const ask = () => connection.query('SELECT 1 AS one').then(() => 'an answer');
    expect(await ask()).toBe('an answer');
    backend.server.signal('SIGSTOP');
    try {
      let answer = ask();
      const heard = () => Promise.race([answer, sleep(500, 'silence')]);
      // On a busy machine a signal takes a moment to reach all threads.
      for (let tries = 0; tries < 20 && (await heard()) !== 'silence'; tries += 1) answer = ask();
      expect(await heard()).toBe('silence');
      backend.server.signal('SIGCONT');
      expect(await answer).toBe('an answer');
    } finally {
      backend.server.signal('SIGCONT');
      await connection.release();
    }
  });
});
