import { spawn } from 'node:child_process';
import { once } from 'node:events';
import { join } from 'node:path';

// The first of the two commands of the README, as a new user would run it.
describe('npm start -- --once', () => {
  it('oversells without a lock, sells exactly what there is with one, and ends', async () => {
    const script = join(import.meta.dirname, '../../scripts/start.mjs');
    const program = spawn(process.execPath, [script, '--once'], { stdio: ['ignore', 'pipe', 'pipe'] });
    let output = '';
    program.stdout.on('data', (text: Buffer) => (output += text.toString()));
    program.stderr.on('data', (text: Buffer) => (output += text.toString()));
    const [code] = (await once(program, 'close')) as [number];

    expect(output).toMatch(/without a lock +sold +\d+ of 100 +OVERSOLD by \d+/);
    expect(output).toMatch(/@DistributedLock +sold 100 of 100 +exact +sold out 400 +failed 0/);
    expect(code).toBe(0);
  }, 60_000);
});
