import { spawn } from 'node:child_process';
import { once } from 'node:events';
import { join } from 'node:path';

// Commands of the README, as a new user would run them.
describe('npm start -- --once', () => {
  it.each([
    { in: 'memory', args: [], says: /sold exactly 100/ },
    { in: 'mysql, by two processes', args: ['--provider', 'mysql', '--instances', '2'], says: /sold exactly 100/ },
    {
      in: 'Redis, which is killed, then MariaDB, by two processes',
      args: ['--provider', 'failover', '--instances', '2'],
      says: /Redis was killed when 50 were sold\. Orders stood still for [\d.]+ s, then went on/,
    },
  ])(
    'oversells without a lock, sells exactly what there is with one in $in, and ends',
    async ({ args, says }) => {
      const script = join(import.meta.dirname, '../../scripts/start.mjs');
      const program = spawn(process.execPath, [script, '--once', ...args], {
        stdio: ['ignore', 'pipe', 'pipe'],
        // A server of its own.
        env: { ...process.env, MYSQL_URL: undefined },
      });
      let output = '';
      program.stdout.on('data', (text: Buffer) => (output += text.toString()));
      program.stderr.on('data', (text: Buffer) => (output += text.toString()));
      const [code] = (await once(program, 'close')) as [number];

      expect(output).toMatch(/without a lock +sold +\d+ of 100 +OVERSOLD by \d+/);
      expect(output).toMatch(/@DistributedLock +sold 100 of 100 +exact +sold out 400 +failed 0/);
      expect(output).toMatch(says);
      expect(code).toBe(0);
    },
    180_000,
  );
});
