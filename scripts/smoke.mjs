// Installs the packed package into the starters that `nest new` creates, adds the README's quick start, and runs the
// starters' commands: build, unit tests, and end-to-end tests. Their configuration stays unchanged. Also runs the
// README's module on Bun.
import { spawnSync } from 'node:child_process';
import { mkdirSync, mkdtempSync, readFileSync, rmSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { startRedisServer } from '../test/servers/redis-server.mjs';
import { commandLine, refuse } from './command-line.mjs';
import { root } from './ensure-installed.mjs';
import { packInto } from './tarball.mjs';

const MANAGERS = {
  npm: ['npm'],
  // pnpm fails if one of the starter's packages has a build script that hasn't been approved.
  pnpm: ['npm', 'exec', '--yes', '--package=pnpm@12', '--', 'pnpm', '--config.strict-dep-builds=false'],
};
const ADD = { npm: 'install', pnpm: 'add' };
const NEST_VERSIONS = ['11', '12'];
const TIMEOUT = 600_000;
const BUN = 'bun';
/** What an application on Bun needs in addition to the package. */
const BUN_PACKAGES = ['bun@1', '@nestjs/common@12', '@nestjs/core@12', 'ioredis', 'reflect-metadata', 'rxjs'];
const ONE_COPY = `
  const required = require('nestjs-distributed-lock');
  import('nestjs-distributed-lock').then((imported) => {
    if (required.LockService !== imported.LockService) throw new Error('Two copies of the package are loaded.');
  });`;

const { positionals } = commandLine(
  `Usage: npm run smoke [-- <starter> …]

Starters: ${starters().join(', ')}. Default: all.`,
  { allowPositionals: true },
);
for (const name of positionals) if (!starters().includes(name)) refuse(`There is no starter "${name}".`);

const folder = mkdtempSync(join(tmpdir(), 'smoke-'));
process.on('exit', () => rmSync(folder, { recursive: true, force: true }));
const { tarball } = packInto(folder);
const redis = await startRedisServer();
// Jest and npm leave caches in the temporary folder.
const env = { ...process.env, TMPDIR: folder, REDIS_URL: redis.url, DO_NOT_TRACK: '1' };
let failed = 0;
for (const name of positionals.length > 0 ? positionals : starters()) {
  const startedAt = Date.now();
  try {
    if (name === BUN) smokeBun();
    else smoke(name);
    console.log(`${name}: works (${seconds(startedAt)})`);
  } catch (error) {
    failed += 1;
    console.error(`${error.message}\n${name}: FAILED`);
  }
}
await redis.stop();
process.exit(failed);

function starters() {
  const names = NEST_VERSIONS.flatMap((version) =>
    Object.keys(MANAGERS).map((manager) => `nest-${version}-${manager}`),
  );
  return [...names, BUN];
}

function smoke(name) {
  const [, version, manager] = name.split('-');
  const app = join(folder, name);
  const options = ['--skip-git', '--skip-install', '--package-manager', manager];
  run(folder, ['npm', 'exec', '--yes', `--package=@nestjs/cli@${version}`, '--', 'nest', 'new', name, ...options]);
  const inApp = (...args) => run(app, [...MANAGERS[manager], ...args]);
  inApp('install');
  const added = inApp(ADD[manager], tarball, 'ioredis');
  // A starter may have its own conflicts. A conflict that we cause names our package.
  const conflicts = manager === 'pnpm' ? run(app, [...MANAGERS.pnpm, 'peers', 'check'], { mayFail: true }) : added;
  if (conflicts.includes('nestjs-distributed-lock'))
    throw new Error(`The installation reports a conflict:\n${conflicts}`);

  addQuickStart(app, version);
  inApp('run', 'build');
  inApp('run', 'test');
  inApp('run', 'test:e2e');
  // In Node itself, there is one copy of the package, however it was loaded.
  run(app, ['node', '--eval', ONE_COPY]);
}

/** Adds the README's first steps, and a service with a unit test and an end-to-end test. */
function addQuickStart(app, version) {
  const file = (path) => join(app, path);
  // The ES modules of Nest 12 import files with their extension, which Jest can't resolve in the Nest 11 starter.
  const extension = version === '11' ? '' : '.js';
  const write = (path, text) => writeFileSync(file(path), text.replace(/(from '\.[^']*)\.js'/g, `$1${extension}'`));
  for (const path of [
    'src/stock.service.ts',
    'src/stock.module.ts',
    'src/stock.service.test.ts',
    'test/stock.e2e.test.ts',
  ])
    write(
      path.replace('.e2e.test', '.e2e-spec').replace('.test', '.spec'),
      readFileSync(join(root, 'test/package/starter', path), 'utf8'),
    );

  mkdirSync(file('src/quick-start'));
  for (const [name, text] of filesOfReadme()) write(`src/quick-start/${name}`, text);
  const module = readFileSync(file('src/app.module.ts'), 'utf8').replace('imports: [', 'imports: [QuickStart');
  write('src/app.module.ts', `import { AppModule as QuickStart } from './quick-start/app.module.js';\n${module}`);
  // The starter's second test starts the application again.
  const test = readFileSync(file('test/app.e2e-spec.ts'), 'utf8');
  write(
    'test/app.e2e-spec.ts',
    test.replace(/^ {2}it\(.*?^ {2}\}\);\n/ms, (it) => it + it.replace("('", "('again ")),
  );
}

/** The names and texts of the files in the README, with the URL of our Redis. */
function filesOfReadme() {
  const readme = readFileSync(join(root, 'README.md'), 'utf8');
  const files = Array.from(readme.matchAll(/```ts\n\/\/ (\S+\.ts)\n(.*?)```/gs), ([, name, text]) => [name, text]);
  if (!files.some(([name]) => name === 'app.module.ts')) throw new Error('The README has no block of app.module.ts.');
  return files.map(([name, text]) => [name, text.replaceAll('redis://localhost:6379', redis.url)]);
}

/** Runs the README's module on Bun, with its locks in Redis and in memory. */
function smokeBun() {
  const app = join(folder, BUN);
  mkdirSync(app);
  const write = (path, text) => writeFileSync(join(app, path), text);
  const compilerOptions = { experimentalDecorators: true, emitDecoratorMetadata: true };
  write('package.json', JSON.stringify({ private: true, type: 'module' }));
  write('tsconfig.json', JSON.stringify({ compilerOptions }));
  for (const [name, text] of filesOfReadme()) write(name, text);
  write('main.mjs', readFileSync(join(root, 'test/package/bun/main.mjs'), 'utf8'));
  run(app, ['npm', 'install', ...BUN_PACKAGES, tarball]);
  run(app, ['npm', 'exec', '--', 'bun', 'main.mjs']);
}

/** Runs a command to completion, and returns its output. */
function run(cwd, [command, ...args], { mayFail = false } = {}) {
  const startedAt = Date.now();
  const child = { cwd, env, encoding: 'utf8', timeout: TIMEOUT, stdio: ['ignore', 'pipe', 'pipe'] };
  const { status, signal, error, stdout, stderr } = spawnSync(command, args, child);
  const called = [command, ...args].join(' ').split(' -- ').at(-1).replace(tarball, 'the tarball');
  if (error ?? (status !== 0 && !mayFail))
    throw new Error(`${called}: ${error?.message ?? signal ?? status}\n${stdout}${stderr}`);
  console.log(`  ${seconds(startedAt).padStart(7)}  ${called.split('\n')[0]}`);
  return stdout + stderr;
}

function seconds(since) {
  return `${((Date.now() - since) / 1_000).toFixed(1)} s`;
}
