import { jest } from '@jest/globals';
import type { ServerResponse } from 'node:http';
import { type INestApplication, type INestApplicationContext, Module, type ModuleMetadata } from '@nestjs/common';
import { NestFactory } from '@nestjs/core';
import { FastifyAdapter } from '@nestjs/platform-fastify';
import { DistributedLockModule, type DistributedLockModuleOptions } from '../../lib/index.js';

// An application boots within a second, and within many on a busy machine.
jest.setTimeout(60_000);

/** As much of Express's response as the tests use: its types are not installed. */
export interface ExpressResponse extends ServerResponse {
  status(code: number): this;
  json(body: unknown): this;
}

/** A running application, as far as its tests talk to it over HTTP. */
export interface HttpApp {
  readonly app: INestApplication;
  fetch(path: string, init?: RequestInit): Promise<Response>;
}

/** Whether this run is `npm run test:nest-11`. */
export const isNest11 = process.env['NESTJS'] !== undefined;

const running = new Set<INestApplicationContext>();

// A server that a failed test left open would keep Jest from ending.
afterEach(async () => {
  for (const app of running) await close(app);
});

export async function close(app: INestApplicationContext): Promise<void> {
  running.delete(app);
  await app.close();
}

// Many tests leave a lock held on purpose.
const NO_DRAIN = { shutdownGrace: 0 };

function rootModule(metadata: ModuleMetadata, options: DistributedLockModuleOptions | null) {
  const imports = [...(metadata.imports ?? [])];
  if (options) imports.unshift(DistributedLockModule.forRoot({ ...NO_DRAIN, ...options }));
  @Module({ ...metadata, imports })
  class RootModule {}
  return RootModule;
}

const QUIET = { logger: false, abortOnError: false } as const;

/** Starts an application without a server, on locks in memory unless told otherwise; `null` leaves the lock module out. */
export async function start(
  metadata: ModuleMetadata,
  options: DistributedLockModuleOptions | null = {},
): Promise<INestApplicationContext> {
  const app = await NestFactory.createApplicationContext(rootModule(metadata, options), QUIET);
  running.add(app);
  return app;
}

/** The platforms of HTTP. */
export type Platform = 'Express' | 'Fastify';

/** Starts an application at a free port. */
export async function serve(
  metadata: ModuleMetadata,
  options: DistributedLockModuleOptions | null = {},
  prepare: (app: INestApplication) => unknown = () => undefined,
  platform: Platform = 'Express',
): Promise<HttpApp> {
  const module = rootModule(metadata, options);
  const appOptions = { ...QUIET, forceCloseConnections: true };
  // Express is what Nest takes by itself.
  const app = await (platform === 'Express'
    ? NestFactory.create(module, appOptions)
    : NestFactory.create(module, new FastifyAdapter({ forceCloseConnections: true }), appOptions));
  running.add(app);
  await prepare(app);
  await app.listen(0, '127.0.0.1');
  const url = await app.getUrl();
  return { app, fetch: (path, init) => fetch(url + path, init) };
}

/** A promise, and the means to settle it: for tests that have to stop something half-way. */
export class Gate {
  open!: () => void;
  readonly opened = new Promise<void>((resolve) => (this.open = resolve));
}

/** Waits until it is so. The events that are waited for have no promise of their own. */
export async function until(condition: () => boolean): Promise<void> {
  for (let turn = 0; turn < 10_000; turn++) {
    if (condition()) return;
    await new Promise((resolve) => setTimeout(resolve, 1));
  }
  throw new Error(`Never became true: ${String(condition)}`);
}
