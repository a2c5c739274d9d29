import { jest } from '@jest/globals';
import { once } from 'node:events';
import type { ServerResponse } from 'node:http';
import { connect, type IncomingHttpHeaders, type IncomingHttpStatusHeader } from 'node:http2';
import { text } from 'node:stream/consumers';
import {
  type INestApplication,
  type INestApplicationContext,
  type LoggerService,
  Module,
  type ModuleMetadata,
} from '@nestjs/common';
import { NestFactory } from '@nestjs/core';
import { FastifyAdapter } from '@nestjs/platform-fastify';
import { Observable } from 'rxjs';
import { DistributedLockModule, type DistributedLockModuleOptions } from '../../lib/index.js';

// An application normally boots within a second, but may need many on a busy machine.
jest.setTimeout(60_000);

/** The part of Express's response that the tests use. Express's types are not installed. */
export interface ExpressResponse extends ServerResponse {
  status(code: number): this;
  json(body: unknown): this;
}

/** A running application that tests call over HTTP. */
export interface HttpApp {
  readonly app: INestApplication;
  fetch(path: string, init?: RequestInit): Promise<Response>;
}

/** Whether this run is `npm run test:nest-11`. */
export const isNest11 = process.env['NESTJS'] !== undefined;

const running = new Set<INestApplicationContext>();

// A server left open by a failed test would keep Jest running.
afterEach(async () => {
  for (const app of running) await close(app);
});

export async function close(app: INestApplicationContext): Promise<void> {
  running.delete(app);
  await app.close();
}

// Many tests deliberately leave a lock held.
const NO_DRAIN = { shutdownGrace: 0 };

/** The options of the lock module, and the logger that receives what it reports. */
export type AppOptions = DistributedLockModuleOptions & { readonly logger?: LoggerService };

function rootModule(metadata: ModuleMetadata, options: AppOptions | null) {
  const imports = [...(metadata.imports ?? [])];
  if (options) {
    const ofModule = { ...NO_DRAIN, ...options };
    delete ofModule.logger;
    imports.unshift(DistributedLockModule.forRoot(ofModule));
  }
  @Module({ ...metadata, imports })
  class RootModule {}
  return RootModule;
}

function quiet(options: AppOptions | null) {
  return { logger: options?.logger ? onlyOfLocks(options.logger) : (false as const), abortOnError: false };
}

/** Passes on only what the lock module reports. */
function onlyOfLocks(logger: LoggerService): LoggerService {
  const on =
    (level: 'log' | 'warn' | 'error' | 'debug') =>
    (message: unknown, ...rest: unknown[]) => {
      if (rest.at(-1) === 'DistributedLock') logger[level]?.(message);
    };
  return { log: on('log'), warn: on('warn'), error: on('error'), debug: on('debug') };
}

/** Starts an application without a server. By default, its locks are in memory; `null` leaves the lock module out. */
export async function start(
  metadata: ModuleMetadata,
  options: AppOptions | null = {},
): Promise<INestApplicationContext> {
  const app = await NestFactory.createApplicationContext(rootModule(metadata, options), quiet(options));
  running.add(app);
  return app;
}

/** The HTTP platforms. */
export type Platform = 'Express' | 'Fastify' | 'Fastify over HTTP/2';

/** Starts an application on a free port. */
export async function serve(
  metadata: ModuleMetadata,
  options: AppOptions | null = {},
  prepare: (app: INestApplication) => unknown = () => undefined,
  platform: Platform = 'Express',
): Promise<HttpApp> {
  const module = rootModule(metadata, options);
  const appOptions = { ...quiet(options), forceCloseConnections: true };
  // Express is Nest's default.
  const app = await (platform === 'Express'
    ? NestFactory.create(module, appOptions)
    : NestFactory.create(
        module,
        // Fastify closes only HTTP/1 connections.
        platform === 'Fastify'
          ? new FastifyAdapter({ forceCloseConnections: true })
          : new FastifyAdapter({ http2: true }),
        appOptions,
      ));
  running.add(app);
  await prepare(app);
  await app.listen(0, '127.0.0.1');
  const url = await app.getUrl();
  return { app, fetch: (path, init) => (platform === 'Fastify over HTTP/2' ? fetchByHttp2 : fetch)(url + path, init) };
}

/** Node's fetch() doesn't speak HTTP/2 without TLS. Each request opens its own connection. */
async function fetchByHttp2(url: string, { signal }: RequestInit = {}): Promise<Response> {
  const { origin, pathname, search } = new URL(url);
  const session = connect(origin);
  try {
    const stream = session.request({ ':path': pathname + search }, { ...(signal && { signal }) });
    const [headers] = (await once(stream, 'response')) as [IncomingHttpHeaders & IncomingHttpStatusHeader];
    return new Response(await text(stream), { status: headers[':status'] ?? 0 });
  } finally {
    session.destroy();
  }
}

/** A promise that a test can resolve, to stop an operation halfway. */
export class Gate {
  open!: () => void;
  readonly opened = new Promise<void>((resolve) => (this.open = resolve));
}

/** Fails when the signal aborts, like an Observable that watches its lock. */
export function untilLost(signal: AbortSignal): Observable<never> {
  return new Observable((subscriber) => {
    const fail = () => subscriber.error(signal.reason);
    signal.addEventListener('abort', fail);
    return () => signal.removeEventListener('abort', fail);
  });
}

/** Polls until the condition holds, for conditions that have no promise to await. */
export async function until(condition: () => boolean): Promise<void> {
  for (let turn = 0; turn < 10_000; turn++) {
    if (condition()) return;
    await new Promise((resolve) => setTimeout(resolve, 1));
  }
  throw new Error(`Never became true: ${String(condition)}`);
}

export async function collect<T>(values: AsyncIterable<T>): Promise<T[]> {
  const all: T[] = [];
  for await (const value of values) all.push(value);
  return all;
}
