import { spawnSync } from 'node:child_process';
import { mkdir, rm, writeFile } from 'node:fs/promises';
import { join } from 'node:path';
import { afterAll, beforeAll, describe, expect, it } from '@jest/globals';
import ts from 'typescript';
import { compilerOptions } from '../compile.js';
import { type CompiledLibrary, compileLibrary } from '../servers/compiled-library.js';
import { type CodeBlock, codeBlocks } from './code-blocks.js';
import { stopServers } from './page-servers.js';
import { blockFolder, removeFolder, runBlock } from './run-block.js';

const blocks = codeBlocks();
const blocksOf = (page: string) => blocks.filter(({ place }) => place.startsWith(`docs/recipes/${page}:`));

describe('the test that a late writer is refused', () => {
  const FENCE = ' AND (fence IS NULL OR fence <= $2)';
  const [service, test] = blocksOf('late-writer-test.md') as [CodeBlock, CodeBlock];
  let folder: string;

  beforeAll(async () => {
    folder = await blockFolder();
  });
  afterAll(async () => {
    await stopServers();
    await removeFolder(folder);
  });

  /** The blocks of the page with other texts. Node keeps a module by its path, so they have paths of their own. */
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

  it('is found by the fence that it changes', () => {
    expect(service.text).toContain(FENCE);
    expect(onRealProvider(test.text)).not.toMatch(/TestLocks|TestingModule\b.*forRoot/);
  });

  it('passes on a real provider as well', async () => {
    await run(changed('redis', onRealProvider));
  }, 60_000);

  it.each([
    ['in memory', 'unfenced', withoutFence],
    ['on a real provider', 'unfenced-redis', (text: string) => onRealProvider(withoutFence(text))],
  ])(
    'without the fence only the row shows it, %s: the late call rejects all the same',
    async (_, suffix, change) => {
      // The assertion of LockLostError comes before that of the row.
      await expect(run(changed(suffix, change))).rejects.toThrow(/"amount": 2(.|\n)*"amount": 1/);
    },
    60_000,
  );
});

describe('the quick start in two files', () => {
  const [service, module, controller] = blocksOf('two-files.md') as [CodeBlock, CodeBlock, CodeBlock];
  let library: CompiledLibrary;

  beforeAll(async () => {
    library = await compileLibrary();
  }, 60_000);
  afterAll(() => library.remove());

  /** Starts an application of these files in a process of its own, as their user would. */
  async function start(files: Readonly<Record<string, string>>) {
    const folder = join(library.folder, 'src');
    await rm(folder, { recursive: true, force: true });
    await mkdir(folder);
    const main = `import { NestFactory } from '@nestjs/core';
      import { AppModule } from './app.module.js';
      const app = await NestFactory.createApplicationContext(AppModule, { logger: ['error'] });
      await app.close();`;
    for (const [name, text] of Object.entries({ ...files, main })) {
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

  /** What a reader copies. */
  const shown = ({ text, imported }: CodeBlock) =>
    [...imported].reduce(
      (code, [specifier, from]) => code.replace(specifier, `./${/^\/\/ (.*)\.ts$/m.exec(from.text)![1]!}.js`),
      text.slice(text.indexOf('\n// ') + 1).split('\nconst app =')[0]!,
    );

  it('starts with the controller, and ends at its start if the service is in the file of the module', async () => {
    const withController = shown(module).replace('providers:', 'controllers: [OrderController], providers:');
    const importController = `import { OrderController } from './order.controller.js';\n`;
    const controllerText = shown(controller).split('\nimport { Module }')[0]!;
    const two = await start({
      'order.service': shown(service),
      'app.module': importController + withController,
      'order.controller': controllerText,
    });
    expect([two.status, two.stderr]).toEqual([0, '']);
    const serviceHere = shown(service).replace(
      /import \{ Injectable \}.*\n/,
      `import { Injectable } from '@nestjs/common';\n`,
    );
    const one = await start({
      'app.module': importController + serviceHere + withController.replace(/import \{ OrderService \}.*\n/, ''),
      'order.controller': controllerText.replace('./order.service.js', './app.module.js'),
    });
    expect(one.status).toBe(1);
    expect(one.stderr).toContain(`ReferenceError: Cannot access 'OrderService' before initialization`);
  }, 60_000);
});
