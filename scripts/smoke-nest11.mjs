// Installs the packed package alongside Nest 11 in a separate folder, and compiles and runs an application there: as an
// ES module, and as CommonJS, which loads the package by require(esm).
import { spawnSync } from 'node:child_process';
import { copyFileSync, mkdtempSync, rmSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { root } from './ensure-installed.mjs';
import { packInto } from './tarball.mjs';

const TIMEOUT = 60_000;
const PEERS = {
  typeorm: 'typeorm',
  terminus: '@nestjs/terminus',
  swagger: '@nestjs/swagger',
  opentelemetry: '@opentelemetry/api',
};
const tsc = join(root, 'node_modules/typescript/bin/tsc');
const folder = mkdtempSync(join(tmpdir(), 'nest11-'));

let failed = false;
try {
  smoke();
} catch (error) {
  console.error(error.message);
  failed = true;
} finally {
  rmSync(folder, { recursive: true, force: true });
}
console.log(failed ? 'Nest 11: FAILED' : 'Nest 11: works, by import and by require');
process.exit(failed ? 1 : 0);

function smoke() {
  const { tarball } = packInto(folder);
  writeFileSync(join(folder, 'package.json'), '{ "private": true }');
  const packages = [
    '@nestjs/common@11',
    '@nestjs/core@11',
    '@nestjs/microservices@11',
    '@nestjs/platform-express@11',
    'reflect-metadata@0.2',
    'rxjs@7',
  ];
  run('npm', [
    'install',
    '--prefer-offline',
    '--ignore-scripts',
    '--no-audit',
    '--no-fund',
    '--loglevel=error',
    tarball,
    ...packages,
  ]);
  const compilerOptions = {
    target: 'ES2023',
    lib: ['ES2023', 'ESNext.Disposable'],
    module: 'NodeNext',
    strict: true,
    experimentalDecorators: true,
    emitDecoratorMetadata: true,
    // Our declarations are checked against Nest 11, too.
    skipLibCheck: false,
    rootDir: '.',
    typeRoots: [join(root, 'node_modules/@types')],
    types: ['node'],
  };
  writeFileSync(join(folder, 'tsconfig.json'), JSON.stringify({ compilerOptions, files: ['app.mts', 'app.cts'] }));
  for (const file of ['app.mts', 'app.cts']) copyFileSync(join(root, 'test/nest/nest11-app.ts'), join(folder, file));
  run(process.execPath, [tsc, '-p', '.']);
  // Node fails before any of our code runs. Its message names the missing package and the entry that needs it.
  for (const [entry, peer] of Object.entries(PEERS)) {
    for (const load of [`import('nestjs-distributed-lock/${entry}')`, `require('nestjs-distributed-lock/${entry}')`]) {
      const { stderr } = spawnSync(process.execPath, ['--eval', load], { cwd: folder, encoding: 'utf8' });
      const expected = `Cannot find package '${peer}' imported from`;
      if (!stderr.includes(expected)) throw new Error(`${load} without its peer printed: ${stderr}`);
    }
  }
  // If an application doesn't exit on its own, something that we left open keeps it alive.
  for (const file of ['app.mjs', 'app.cjs']) run(process.execPath, [file]);
}

function run(command, args, options) {
  const { status, error, signal } = spawnSync(command, args, {
    cwd: folder,
    stdio: 'inherit',
    timeout: TIMEOUT,
    ...options,
  });
  if (error ?? status !== 0) throw new Error(`${command} ${args[0]} failed with ${error?.message ?? signal ?? status}`);
}
