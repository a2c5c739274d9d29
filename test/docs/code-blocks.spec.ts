import { afterAll, beforeAll } from '@jest/globals';
import { Logger } from '@nestjs/common';
import ts from 'typescript';
import { compilerOptions, programOf } from '../compile.js';
import { codeBlocks } from './code-blocks.js';
import { missingServer, stopServers } from './page-servers.js';
import { blockFolder, removeFolder, runBlock } from './run-block.js';
import { itUnless } from '../unless.js';

const blocks = codeBlocks();

it('every block of TypeScript in the documentation compiles', () => {
  expect(blocks.length).toBeGreaterThan(70);
  const texts = new Map(blocks.map(({ file, text }) => [file, text]));
  const program = programOf(texts);
  const places = new Map(blocks.map(({ file, place }) => [file, place]));
  const problems = [...texts.keys()].flatMap((path) => {
    const file = program.getSourceFile(path);
    if (!file) return [`${path} was not read`];
    return [...program.getSyntacticDiagnostics(file), ...program.getSemanticDiagnostics(file)].map(
      ({ messageText, start = 0 }) =>
        `${places.get(path)}: ${ts.flattenDiagnosticMessageText(messageText, ' ')} | ${file.text.slice(start).split('\n', 1)[0]}`,
    );
  });
  expect(problems).toEqual([]);
});

describe('a block runs as a module, in a real application and on real servers', () => {
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

  it('few others say why they do not', () => {
    expect(blocks.length - run.length).toBeLessThan(blocks.length / 10);
  });
});
