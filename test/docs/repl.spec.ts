import { spawn } from 'node:child_process';
import { once } from 'node:events';
import { mkdir, readFile, writeFile } from 'node:fs/promises';
import { join } from 'node:path';
import ts from 'typescript';
import { LockManager } from '../../lib/core/lock-manager.js';
import { RedisLockProvider } from '../../lib/providers/redis/index.js';
import { type CompiledLibrary, compileLibrary } from '../servers/compiled-library.js';
import { type RedisServer, startRedisServer } from '../servers/redis-server.mjs';

const PAGE = join(import.meta.dirname, '../../docs/operate/cli.md');

let library: CompiledLibrary;
let server: RedisServer;
let shop: LockManager;

beforeAll(async () => {
  [library, server] = await Promise.all([compileLibrary(), startRedisServer()]);
  const providers = { default: new RedisLockProvider({ url: server.url }) };
  shop = new LockManager({ providers, namespace: 'shop', instance: 'shop-7d9f:17' });
  await shop.start();
}, 60_000);

afterAll(async () => {
  await shop.stop();
  await Promise.all([library.remove(), server.stop()]);
});

it('the documented commands print the documented output, and the former holder is notified', async () => {
  const page = await readFile(PAGE, 'utf8');
  const [, code = ''] = /```ts\n(.*?)```/s.exec(page) ?? [];
  const [, session = ''] = /```text\n(.*?)```/s.exec(page) ?? [];
  const shown = Array.from(session.matchAll(/^> (.*)\n([^>]*)/gm), ([, command = '', answer = '']) => ({
    command,
    answer,
  }));
  const lost = new Promise((resolve) => shop.events.once('lost', resolve));
  await shop.acquire('order:42', { lease: '3s' }); // it notices the loss at its next renewal
  const next = shop.acquire('order:42', { wait: '10m' });
  await (await shop.acquire('order:77', { minHold: '1m' })).release();
  await shop.acquire('invoice:1');
  await shop.acquire('prices');

  const prompt = await openPrompt(code);
  const typed = [];
  for (const { command } of shown.slice(0, -1)) typed.push({ command, answer: await prompt.type(command) });

  expect(await prompt.type(shown.at(-1)?.command)).toBe('exit 0');
  expect(typed.map(comparable)).toEqual(shown.slice(0, -1).map(comparable));
  expect(typed).toHaveLength(4);
  expect((await next).isHeld()).toBe(true);
  expect(await lost).toMatchObject({ key: 'order:42', reason: 'revoked' });
}, 60_000);

/** Replaces what differs each time: numbers, the user, the local time, and the order of a list. */
function comparable({ command, answer }: { command: string; answer: string }) {
  const lines = answer
    .replaceAll(/\d+/g, '0')
    .replace(/by: '.*'/, "by: 'somebody'")
    .replace(/^.* WARN /, 'WARN ')
    .trim()
    .split('\n');
  return { command, lines: command.includes('.list(') ? lines.sort() : lines };
}

/** Runs the page's code, which opens a prompt. */
async function openPrompt(code: string) {
  const { outputText } = ts.transpileModule(code, {
    compilerOptions: {
      module: ts.ModuleKind.ESNext,
      target: ts.ScriptTarget.ES2022,
      experimentalDecorators: true,
      emitDecoratorMetadata: true,
    },
  });
  const file = join(library.folder, 'page', 'repl.js');
  await mkdir(join(library.folder, 'page'), { recursive: true });
  const own = outputText
    .replaceAll(/'nestjs-distributed-lock(\/redis)?'/g, (_, redis) =>
      redis === undefined ? "'../index.js'" : "'../providers/redis/index.js'",
    )
    .replace('redis://localhost:6379', server.url);
  await writeFile(file, own);
  const child = spawn(process.execPath, [file], {
    env: { ...process.env, NO_COLOR: '1' },
    stdio: ['pipe', 'pipe', 'inherit'],
  });
  let output = '';
  child.stdout.setEncoding('utf8').on('data', (text: string) => (output += text));
  const ended = once(child, 'close').then(([status]) => (output = `exit ${status}> `));
  const answer = async () => {
    while (!output.endsWith('> ')) await Promise.race([once(child.stdout, 'data'), ended]);
    const text = output.slice(0, -2);
    output = '';
    return text;
  };
  await answer(); // the boot log
  return {
    type(command = '') {
      child.stdin.write(`${command}\n`);
      return answer();
    },
  };
}
