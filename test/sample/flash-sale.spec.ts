import { spawn } from 'node:child_process';
import { once } from 'node:events';
import { join } from 'node:path';
import { exploration } from '../exploration.js';

// Commands of the README, as a new user would run them.
const MYSQL = {
  in: 'mysql, by two processes',
  args: ['--provider', 'mysql', '--instances', '2'],
  says: /sold exactly 100/,
  mayLose: false,
};

const NO_TYPEORM = join(import.meta.dirname, 'without-typeorm.mjs');

describe('npm start -- --once', () => {
  it.each([
    { in: 'memory', args: [], says: /sold exactly 100/, mayLose: false },
    {
      in: 'Redis, which is killed, then MariaDB, by two processes',
      args: ['--provider', 'failover', '--instances', '2'],
      says: /Redis was killed when 50 were sold\. Orders stood still for [\d.]+ s, then went on/,
      // On a busy machine a process may confirm its locks too late. Then an order fails, and its item is not sold.
      mayLose: true,
    },
    {
      in: 'postgres, by two processes',
      args: ['--provider', 'postgres', '--instances', '2'],
      says: /locks in postgres[^]*sold exactly 100/,
      mayLose: false,
    },
    ...(exploration(0, 1) === 1 ? [MYSQL] : []),
  ])(
    'oversells without a lock, sells exactly what there is with one in $in, and ends',
    async ({ args, says, mayLose }) => {
      const script = join(import.meta.dirname, '../../sample-app/demo/start.mjs');
      const program = spawn(process.execPath, [script, '--once', ...args], {
        stdio: ['ignore', 'pipe', 'pipe'],
        // A server of its own. The SQL locks of the sample are those of a plain driver.
        env: { ...process.env, MYSQL_URL: undefined, POSTGRES_URL: undefined, NODE_OPTIONS: `--import ${NO_TYPEORM}` },
      });
      let output = '';
      program.stdout.on('data', (text: Buffer) => (output += text.toString()));
      program.stderr.on('data', (text: Buffer) => (output += text.toString()));
      const [code] = (await once(program, 'close')) as [number];

      expect(output).toMatch(/without a lock +sold +\d+ of 100 +OVERSOLD by \d+/);
      const sale = /@DistributedLock +sold +(\d+) of 100 .*sold out +(\d+) +failed +(\d+)/.exec(output);
      const [sold = NaN, soldOut = NaN, failed = NaN] = (sale ?? []).slice(1).map(Number);
      expect({ output, total: sold + soldOut + failed }).toMatchObject({ total: 500 });
      expect(sold).toBeLessThanOrEqual(100);
      expect(sold).toBeGreaterThanOrEqual(100 - (mayLose ? failed : 0));
      if (!mayLose) expect(failed).toBe(0);
      expect(output).toMatch(says);
      expect(code).toBe(failed > 0 ? 1 : 0);
    },
    // It takes half a minute, and minutes on a busy machine: it builds the sample and starts servers.
    600_000,
  );
});
