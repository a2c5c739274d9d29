import { spawnSync } from 'node:child_process';
import { readFileSync } from 'node:fs';
import { mkdir, rm, writeFile } from 'node:fs/promises';
import { join } from 'node:path';
import ts from 'typescript';
import { compilerOptions } from '../compile.js';
import { type CompiledLibrary, compileLibrary } from '../servers/compiled-library.js';
import { type CodeBlock, codeBlocks } from './code-blocks.js';
import { stopServers, blockFolder, removeFolder, runBlock } from './run-block.js';

const blocks = codeBlocks();
/** Finds the block of a page that starts with this file name. */
const fileOn = (page: string, name: string) =>
  blocks.find(({ place, text }) => place.startsWith(`docs/${page}:`) && text.includes(`// ${name}\n`))!;

describe('the docs/fencing.md test of a rejected late write', () => {
  const FENCE = ' AND (fence IS NULL OR fence <= $2)';
  const service = fileOn('fencing.md', 'stock.service.ts');
  const test = fileOn('fencing.md', 'stock.service.spec.ts');
  let folder: string;

  beforeAll(async () => {
    folder = await blockFolder();
  });
  afterAll(async () => {
    await stopServers();
    await removeFolder(folder);
  });

  /**
   * Copies the blocks of the page with changed text. The copies have their own paths, because Node caches modules by
   * path.
   */
  const changed = (suffix: string, change: (text: string) => string): CodeBlock => {
    const copy = (block: CodeBlock): CodeBlock => ({
      ...block,
      file: block.file.replace(/\.ts$/, `-${suffix}.ts`),
      text: change(block.text),
    });
    return { ...copy(test), imported: new Map(Array.from(test.imported.keys(), (name) => [name, copy(service)])) };
  };
  const withoutFence = (text: string) => text.replace(FENCE, '');
  const onRealProvider = (text: string) =>
    text
      .replace(
        'DistributedLockTestingModule.forRoot()',
        `DistributedLockModule.forRoot({ provider: new RedisLockProvider({ url: 'redis://localhost:6379' }) })`,
      )
      .replace('const locks = module.get(TestLocks);', '')
      .replace('locks.lose(', 'module.get(LockAdmin).forceRelease(')
      .replace(
        /import \{ DistributedLockTestingModule.*\n/,
        `import { DistributedLockModule, LockAdmin } from 'nestjs-distributed-lock';
         import { RedisLockProvider } from 'nestjs-distributed-lock/redis';\n`,
      );
  const run = (block: CodeBlock) => runBlock(block, compilerOptions(), folder);

  it('contains the fence and the testing module that these tests replace', () => {
    expect(service.text).toContain(FENCE);
    expect(onRealProvider(test.text)).not.toMatch(/TestLocks|TestingModule\b.*forRoot/);
  });

  it('also passes with a real provider', async () => {
    await run(changed('redis', onRealProvider));
  }, 60_000);

  it.each([
    ['in memory', 'unfenced', withoutFence],
    ['with a real provider', 'unfenced-redis', (text: string) => onRealProvider(withoutFence(text))],
  ])(
    'fails without the fence because of the row, %s: the late call rejects either way',
    async (_, suffix, change) => {
      // The assertion about LockLostError precedes the one about the row.
      await expect(run(changed(suffix, change))).rejects.toThrow(/"amount": 2(.|\n)*"amount": 1/);
    },
    60_000,
  );
});

describe('the files of docs/get-started.md', () => {
  const page = readFileSync(join(import.meta.dirname, '../../docs/get-started.md'), 'utf8');
  const files = new Map(
    Array.from(page.matchAll(/```ts\n\/\/ (\S+)\.ts\n(.*?)```/gs), ([, name = '', text = '']) => [name, text]),
  );
  const [service, controller, module] = ['order.service', 'order.controller', 'app.module'].map((name) =>
    files.get(name)!,
  ) as [string, string, string];
  let library: CompiledLibrary;

  beforeAll(async () => {
    library = await compileLibrary();
  }, 60_000);
  afterAll(() => library.remove());

  /** Starts an application with these files in a separate process, as a reader would. */
  async function start(texts: Readonly<Record<string, string>>) {
    const folder = join(library.folder, 'src');
    await rm(folder, { recursive: true, force: true });
    await mkdir(folder);
    const main = `import { NestFactory } from '@nestjs/core';
      import { AppModule } from './app.module.js';
      const app = await NestFactory.createApplicationContext(AppModule, { logger: ['error'] });
      await app.close();`;
    for (const [name, text] of Object.entries({ ...texts, main })) {
      const options = { ...compilerOptions(), module: ts.ModuleKind.ESNext };
      const { outputText } = ts.transpileModule(text, { compilerOptions: options });
      const own = outputText
        .replaceAll(`'nestjs-distributed-lock'`, `'../index.js'`)
        .replaceAll(/new RedisLockProvider\(.*\)/g, 'new MemoryLockProvider()')
        .replaceAll(
          /import .* from 'nestjs-distributed-lock\/redis';/g,
          `import { MemoryLockProvider } from '../index.js';`,
        );
      await writeFile(join(folder, `${name}.js`), own);
    }
    return spawnSync(process.execPath, [join(folder, 'main.js')], { encoding: 'utf8' });
  }

  it('start, and fail with the documented error if the module declares the service', async () => {
    const whole = await start({ 'order.service': service, 'order.controller': controller, 'app.module': module });
    expect([whole.status, whole.stderr]).toEqual([0, '']);
    const oneFile = await start({
      'order.controller': controller.replace('./order.service.js', './app.module.js'),
      'app.module': service + module.replace(/import \{ OrderService \}.*\n/, ''),
    });
    expect(oneFile.status).toBe(1);
    const [, error = ''] = /`(ReferenceError: [^`]+)`/.exec(page) ?? [];
    expect(error).toContain('OrderService');
    expect(oneFile.stderr).toContain(error);
  }, 60_000);
});
