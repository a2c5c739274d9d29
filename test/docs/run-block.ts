import { mkdtemp, rm, symlink, writeFile } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { basename, join } from 'node:path';
import type { Type } from '@nestjs/common';
import ts from 'typescript';
import type { CodeBlock } from './code-blocks.js';
import { declaredTests } from './declared-tests.js';
import { closeAll, start, stub } from './stage.js';
import { startMemcached } from '../servers/memcached-server.mjs';
import { hasRabbitmq, startRabbitmq } from '../servers/rabbitmq-server.mjs';
import { startRedisServer } from '../servers/redis-server.mjs';
import { startMariaDb, startPostgres } from '../servers/sql-server.mjs';
import { startZooKeeper } from '../servers/zookeeper-server.mjs';

const root = join(import.meta.dirname, '../..');
const CONTROLLER = '__controller__';

/** Creates a folder from which the blocks' imports resolve as they do from the repository. */
export async function blockFolder(): Promise<string> {
  const folder = await mkdtemp(join(tmpdir(), 'lock-blocks-'));
  await symlink(join(root, 'node_modules'), join(folder, 'node_modules'));
  return folder;
}

export const removeFolder = (folder: string) => rm(folder, { recursive: true, force: true });

/**
 * Runs a block as a module, and then its tests. If it has no tests and no code that uses it, boots an application with
 * its modules, or with its other classes and an in-memory lock provider.
 */
export async function runBlock(block: CodeBlock, options: ts.CompilerOptions, folder: string): Promise<void> {
  const file = await writeModule(block, options, folder);
  stub.install();
  try {
    const exported = (await import(file)) as Record<string, unknown>;
    if (declaredTests.size > 0) {
      await declaredTests.run();
      // Only the stub responds to such a request. In a reader's application it would fail.
      if (stub.requests.length > 0) throw new Error(`The test on the page calls ${stub.requests.join(', ')}.`);
    } else if (!block.isUsed) await boot(Object.values(exported).filter(isClass));
  } finally {
    declaredTests.forget();
    await closeAll();
    stub.remove();
  }
}

/** Writes the block as JavaScript, along with the blocks it borrows from or imports. */
async function writeModule(block: CodeBlock, options: ts.CompilerOptions, folder: string): Promise<string> {
  const imports = [declaredTests.header];
  for (const [name, from] of block.borrowed) {
    imports.push(`import { ${name} } from '${await writeModule(from, options, folder)}';`);
  }
  let code = resolved(await withRunningServers(transpiled(block.text, options)), options);
  for (const [specifier, from] of block.imported) {
    code = code.replaceAll(`'${specifier}'`, `'${await writeModule(from, options, folder)}'`);
  }
  const file = join(folder, basename(block.file).replace(/\.ts$/, '.mjs'));
  await writeFile(file, [...imports, code].join('\n'));
  return file;
}

function transpiled(text: string, options: ts.CompilerOptions): string {
  return ts.transpileModule(text, { compilerOptions: { ...options, module: ts.ModuleKind.ESNext } }).outputText;
}

async function boot(classes: readonly Type[]): Promise<void> {
  const modules = classes.filter(({ name }) => name.endsWith('Module'));
  for (const module of modules) await start(module);
  if (modules.length > 0 || classes.length === 0) return;
  const isController = (each: Type) => Reflect.hasMetadata(CONTROLLER, each);
  await start({ controllers: classes.filter(isController), providers: classes.filter((each) => !isController(each)) });
}

function isClass(value: unknown): value is Type {
  return typeof value === 'function' && value.toString().startsWith('class');
}

/** Replaces imports of the package and of these tests by paths. */
function resolved(code: string, { paths = {} }: ts.CompilerOptions): string {
  return code.replaceAll(/(?<=\bfrom ')(?:(nestjs-distributed-lock[^']*)|(\.\/test\/[^']*))(?=')/g, (_, own, helper) =>
    join(root, own === undefined ? String(helper).replace(/\.js$/, '.ts') : paths[String(own)]![0]!),
  );
}

interface PageServer {
  readonly address: string;
  stop(): Promise<void>;
}

/** The servers named on the pages, and how to start each of them. */
const NAMED: readonly { readonly address: RegExp; start(): Promise<PageServer> }[] = [
  { address: /amqp:\/\/rabbitmq:5672/g, start: async () => addressed(await startRabbitmq(), ({ url }) => url) },
  { address: /redis:\/\/[a-z]+:6379/g, start: async () => addressed(await startRedisServer(), ({ url }) => url) },
  { address: /postgres:\/\/[^']+:5432\/\w+/g, start: async () => addressed(await startPostgres(), ({ url }) => url) },
  { address: /mysql:\/\/[^']+:3306\/\w+/g, start: async () => addressed(await startMariaDb(), ({ url }) => url) },
  { address: /cache:11211/g, start: async () => addressed(await startMemcached(), (server) => server.address) },
  {
    address: /zk1:2181,zk2:2181,zk3:2181/g,
    start: async () => addressed(await startZooKeeper(), ({ connectString }) => connectString),
  },
];

function addressed<S extends { stop(): Promise<void> }>(server: S, addressOf: (server: S) => string): PageServer {
  return { address: addressOf(server), stop: () => server.stop() };
}

/** Returns why a block cannot run here, if it names an optional server. */
export function missingServer(code: string): string | undefined {
  return code.includes('amqp://') && !hasRabbitmq
    ? 'it needs RabbitMQ, which npm run test:all installs as root'
    : undefined;
}

const running = new Map<string, Promise<PageServer>>();

/** Replaces the addresses on the pages by those of running servers, one per address. */
export async function withRunningServers(code: string): Promise<string> {
  let text = code;
  for (const { address, start } of NAMED) {
    for (const [name] of code.matchAll(address)) {
      if (!running.has(name)) running.set(name, start());
      text = text.replaceAll(name, (await running.get(name)!).address);
    }
  }
  // Any free port.
  return text.replaceAll('listen(3000)', 'listen(0)');
}

export async function stopServers(): Promise<void> {
  await Promise.all([...running.values()].map(async (server) => (await server).stop()));
}
