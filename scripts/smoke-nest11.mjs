// Packs the package as it would be published, installs it beside Nest 11 in a folder of its own, and compiles and runs an
// application there: as an ES module and as CommonJS, which gets the package by require(esm).
import { spawnSync } from 'node:child_process';
import { copyFileSync, mkdtempSync, readdirSync, rmSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { ensureInstalled, root, runTool } from './ensure-installed.mjs';

const PATIENCE = 60_000;
const tsc = join(root, 'node_modules/typescript/bin/tsc');
const folder = mkdtempSync(join(tmpdir(), 'nest11-'));

ensureInstalled();
runTool('typescript/bin/tsc', ['-p', 'tsconfig.build.json']);
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
  run('npm', ['pack', '--ignore-scripts', '--silent', '--pack-destination', folder], { cwd: root });
  const tarball = readdirSync(folder).find((file) => file.endsWith('.tgz'));
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
    `./${tarball}`,
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
  // An application that does not end by itself was kept alive by something that we left open.
  for (const file of ['app.mjs', 'app.cjs']) run(process.execPath, [file]);
}

function run(command, args, options) {
  const { status, error, signal } = spawnSync(command, args, {
    cwd: folder,
    stdio: 'inherit',
    timeout: PATIENCE,
    ...options,
  });
  if (error ?? status !== 0) throw new Error(`${command} ${args[0]} ended with ${error?.message ?? signal ?? status}`);
}
