import { join } from 'node:path';
import { afterAll, beforeAll } from '@jest/globals';
import { Logger } from '@nestjs/common';
import ts from 'typescript';
import { codeBlocks } from './code-blocks.js';
import { stopServers } from './page-servers.js';
import { blockFolder, removeFolder, runBlock } from './run-block.js';

const root = join(import.meta.dirname, '../..');
const blocks = codeBlocks();
const { config } = ts.readConfigFile(join(root, 'tsconfig.json'), (path) => ts.sys.readFile(path)) as {
  config: object;
};
const { options } = ts.parseJsonConfigFileContent(config, ts.sys, root);

it('every block of TypeScript in the documentation compiles', () => {
  expect(blocks.length).toBeGreaterThan(70);
  const texts = new Map(blocks.map(({ file, text }) => [file, text]));
  const host = ts.createCompilerHost(options);
  const { readFile, fileExists, getSourceFile } = host;
  host.readFile = (path) => texts.get(path) ?? readFile.call(host, path);
  host.fileExists = (path) => texts.has(path) || fileExists.call(host, path);
  host.getSourceFile = (path, languageVersion, ...rest) => {
    const text = texts.get(path);
    if (text === undefined) return getSourceFile.call(host, path, languageVersion, ...rest);
    return ts.createSourceFile(path, text, languageVersion);
  };
  const program = ts.createProgram([...texts.keys()], options, host);
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

  it.each(run.map((block) => [block.place, block] as const))(
    '%s',
    (_, block) => runBlock(block, options, folder),
    60_000,
  );

  it('few others say why they do not', () => {
    expect(blocks.length - run.length).toBeLessThan(blocks.length / 10);
  });
});
