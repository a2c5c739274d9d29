import { type ChildProcess, spawn } from 'node:child_process';
import { once } from 'node:events';
import { existsSync, readFileSync } from 'node:fs';
import { mkdtemp, readdir, readFile, rm, writeFile } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { setTimeout as sleep } from 'node:timers/promises';

const ROOT = join(import.meta.dirname, '../..');
const CONFIG = 'test/scripts/fixture/jest.config.mjs';

describe('npm test', () => {
  let folder: string;
  let marker: string;
  let records: string;

  beforeAll(async () => {
    folder = await mkdtemp(join(tmpdir(), 'lock-runner-'));
    marker = join(folder, 'marker');
    records = join(folder, 'records');
  });
  afterAll(() => rm(folder, { recursive: true, force: true }));

  function start(...files: readonly string[]): { readonly child: ChildProcess; output(): string } {
    const options = ['--unit', '--config', CONFIG, '--records', records];
    const args = ['scripts/test.mjs', ...options, ...files.map((file) => `fixture/${file}`)];
    const child = spawn(process.execPath, args, { cwd: ROOT, env: { ...process.env, FIXTURE_MARKER: marker } });
    let output = '';
    for (const stream of [child.stdout, child.stderr]) stream.on('data', (text) => (output += String(text)));
    return { child, output: () => output };
  }

  async function run(
    ...files: readonly string[]
  ): Promise<{ code: unknown; lines: readonly string[]; output: string }> {
    const { child, output } = start(...files);
    const [code] = (await once(child, 'close')) as unknown[];
    return { code, output: output(), lines: output().trimEnd().split('\n') };
  }

  it('ends with a summary line, and repeats a failed file', async () => {
    const { code, lines, output } = await run('green', 'red');
    expect({ code, output }).toMatchObject({ code: 1 });
    expect(lines.at(-1)).toBe('1 passed, 1 failed');
    expect(lines.filter((line) => line.startsWith('Once more, alone'))).toHaveLength(1);
    expect(output).not.toContain('unstable:');
  });

  it('reports a file that failed once as unstable with its first error, and passes', async () => {
    const { code, lines, output } = await run('unstable');
    expect({ code, output }).toMatchObject({ code: 0 });
    expect(lines.at(-1)).toBe('1 passed, 0 failed');
    expect(output).toMatch(
      /^unstable: test\/scripts\/fixture\/unstable.test.mjs: fails the first time\nError: red once/m,
    );
  });

  it('lists a file that was unstable three times in the last month', async () => {
    const file = 'test/scripts/fixture/unstable.test.mjs';
    const days = (ago: number) => `${JSON.stringify({ at: new Date(Date.now() - ago * 86_400_000), file })}\n`;
    await writeFile(records, days(40) + days(20));
    await rm(marker, { force: true });
    expect((await run('unstable')).output).not.toContain('times in 31 days');
    await rm(marker);
    const { code, lines } = await run('unstable');
    expect(code).toBe(0);
    expect(lines).toContain(`unstable 3 times in 31 days: ${file}`);
    // Even if the file passes in this run.
    expect((await run('green')).lines).toContain(`unstable 3 times in 31 days: ${file}`);
  });

  it('lists skipped tests with their reasons, and fails if a skipped test has none', async () => {
    const { code, lines, output } = await run('skipping', 'green');
    expect({ code, output }).toMatchObject({ code: 1 });
    expect(output).toContain('1 skipped: there is none\n');
    expect(output).toContain('skipped without a reason: test/scripts/fixture/skipping.test.mjs');
    expect(lines.at(-1)).toBe('2 passed, 1 failed, 2 skipped');
  });

  it('fails if a test leaves a folder or a process behind, and removes both', async () => {
    const { code, output } = await run('litter');
    expect({ code, output }).toMatchObject({ code: 1 });
    const [, left] = /left behind: file (\S+litter-\S+)/.exec(output) ?? [];
    expect(existsSync(left ?? '/')).toBe(false);
    // Only Linux can list the processes that belong to a run.
    if (process.platform !== 'linux') return;
    const [, pid] = /left behind: process (\d+): sleep 1000/.exec(output) ?? [];
    expect(isAlive(Number(pid))).toBe(false);
  });

  it('removes its folder even if Jest itself fails', async () => {
    const own = await mkdtemp(join(folder, 'own-'));
    const args = ['scripts/test.mjs', '--unit', '--config', 'missing.config.mjs', 'green'];
    const child = spawn(process.execPath, args, { cwd: ROOT, env: { ...process.env, TMPDIR: own }, stdio: 'ignore' });
    const [code] = (await once(child, 'close')) as unknown[];
    expect({ code, left: await readdir(own) }).toEqual({ code: 1, left: [] });
  });

  it.each(['SIGINT', 'SIGTERM'] as const)(
    'leaves no server, folder, or process behind after %s',
    async (signal) => {
      await rm(marker, { force: true });
      const { child, output } = start('hanging');
      while (!existsSync(marker)) {
        if (child.exitCode !== null) throw new Error(`The run ended early: ${output()}`);
        await sleep(50);
      }
      const servers = JSON.parse(await readFile(marker, 'utf8')) as { pid: number; folder: string }[];
      expect(servers.map(({ pid }) => isAlive(pid))).toEqual([true, true]);
      child.kill(signal);
      const [code] = (await once(child, 'close')) as unknown[];
      expect(code).toBe(signal === 'SIGINT' ? 130 : 143);
      expect(servers.filter(({ pid, folder: own }) => isAlive(pid) || existsSync(own))).toEqual([]);
    },
    120_000,
  );
});

/** Whether the process is running. A zombie has exited, but its parent hasn't read the exit code yet. */
function isAlive(pid: number): boolean {
  try {
    process.kill(pid, 0);
    return !existsSync('/proc') || !/^State:\tZ/m.test(readFileSync(`/proc/${pid}/status`, 'utf8'));
  } catch {
    return false;
  }
}
