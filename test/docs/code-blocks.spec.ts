import { Logger } from '@nestjs/common';
import ts from 'typescript';
import { compilerOptions, programOf } from '../compile.js';
import { type CodeBlock, codeBlocks } from './code-blocks.js';
import { missingServer, stopServers, blockFolder, removeFolder, runBlock } from './run-block.js';
import { itUnless } from '../unless.js';

const blocks = codeBlocks();

describe('every TypeScript block in the documentation', () => {
  const files = blocks.flatMap(({ imported }) => [...imported.values()]);
  const texts = new Map([...blocks, ...files].map(({ file, text }) => [file, text]));
  const visible = new Map(blocks.map((block) => [visibleFile(block), block.visible]));
  const program = programOf(new Map([...texts, ...visible]));

  it('compiles', () => {
    expect(blocks.length).toBeGreaterThan(70);
    expect([...blocks, ...files].flatMap(({ file, place }) => problemsOf(program, file, place))).toEqual([]);
  });

  it('compiles as copied by a reader', () => {
    expect(blocks.flatMap((block) => problemsOf(program, visibleFile(block), block.place))).toEqual([]);
  });
});

/** Returns the file name for the visible part of a block. */
function visibleFile({ file }: CodeBlock): string {
  return file.replace(/\.ts$/, '-visible.ts');
}

function problemsOf(program: ts.Program, path: string, place: string): string[] {
  const file = program.getSourceFile(path);
  if (!file) return [`${path} is missing`];
  return [...program.getSyntacticDiagnostics(file), ...program.getSemanticDiagnostics(file)].map(
    ({ messageText, start = 0 }) =>
      `${place}: ${ts.flattenDiagnosticMessageText(messageText, ' ')} | ${file.text.slice(start).split('\n', 1)[0]}`,
  );
}

describe('running each block as a module, in a real application and on real servers', () => {
  const run = blocks.filter(({ notRun }) => notRun === undefined);
  let folder: string;

  beforeAll(async () => {
    folder = await blockFolder();
    Logger.overrideLogger(false);
  });
  afterAll(async () => {
    Logger.overrideLogger(['error', 'warn', 'log']);
    await stopServers();
    await removeFolder(folder);
  });

  for (const block of run) {
    itUnless(missingServer(block.text))(block.place, () => runBlock(block, compilerOptions(), folder), 120_000);
  }

  it('the end-to-end test reports why the application failed to boot', async () => {
    const block = blocks.find(({ text }) => text.includes('.overrideProvider(LockManager)'))!;
    const file = block.file.replace(/\.ts$/, '-without-boot.ts');
    const text = block.text.replace('imports: [AppModule]', 'imports: [AppModule, undefined as never]');
    await expect(runBlock({ ...block, file, text }, compilerOptions(), folder)).rejects.toThrow('Nest cannot create');
  });

  it('less than a tenth of the blocks are not run', () => {
    expect(blocks.length - run.length).toBeLessThan(blocks.length / 10);
  });
});
