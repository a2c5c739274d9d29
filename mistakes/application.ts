import 'reflect-metadata';
import { inspect } from 'node:util';
import { type INestApplicationContext, type LoggerService, Module, type Type } from '@nestjs/common';
import * as common from '@nestjs/common';
import { NestFactory } from '@nestjs/core';
import * as schedule from '@nestjs/schedule';
import * as terminus from '@nestjs/terminus';
import { transformSync } from '@swc/core';
import { Observable } from 'rxjs';
import { DataSource } from 'typeorm';
import { DistributedLockModule, type DistributedLockModuleOptions } from '../lib/index.js';
import * as library from '../lib/index.js';
import * as composite from '../lib/composite.js';
import * as memcached from '../lib/providers/memcached/index.js';
import * as redis from '../lib/providers/redis/index.js';
import * as redlock from '../lib/providers/redlock/index.js';
import * as sql from '../lib/providers/sql/index.js';
import * as typeorm from '../lib/providers/typeorm/index.js';
import * as zookeeper from '../lib/providers/zookeeper/index.js';
import * as opentelemetry from '../lib/integrations/opentelemetry/index.js';
import * as swagger from '../lib/integrations/swagger/index.js';
import * as health from '../lib/integrations/terminus/index.js';
import * as testing from '../lib/testing/index.js';
import { Test } from '@nestjs/testing';
import { type Mistake, WRAPPED } from './mistake.js';

/** What a user can import. */
const IMPORTS: object = {
  ...{ ...common, ...schedule, ...terminus, NestFactory, Test, DataSource, Observable },
  ...{ ...library, ...composite, ...memcached, ...redis, ...redlock, ...sql, ...typeorm, ...zookeeper },
  ...{ ...opentelemetry, ...swagger, ...health, ...testing },
};

/** Collects the warnings and errors that the application's user sees. */
class Report implements LoggerService {
  readonly lines: string[] = [];

  log(): void {
    // What an application logs during normal operation doesn't explain a mistake.
  }

  warn(message: unknown): void {
    this.lines.push(String(message));
  }

  error(message: unknown): void {
    this.lines.push(String(message));
  }
}

/**
 * Makes the mistake in a separate application, and returns the message that the user sees: the message of the error
 * that the boot or the call throws, or otherwise what the application logs. Empty if there is none.
 *
 * @param places what the code knows about the servers
 */
export async function messageOf(mistake: Mistake, places: Readonly<Record<string, unknown>> = {}): Promise<string> {
  const report = new Report();
  const applications: INestApplicationContext[] = [];
  const boot = async (
    options: DistributedLockModuleOptions | Parameters<typeof DistributedLockModule.forRootAsync>[0] | undefined,
    ...classes: Type[]
  ) => {
    const isAsync = typeof options === 'object' && 'useFactory' in options;
    const locks = isAsync
      ? DistributedLockModule.forRootAsync(options)
      : DistributedLockModule.forRoot(options as DistributedLockModuleOptions | undefined);
    const controllers = classes.filter((each) => Reflect.hasMetadata('path', each));
    const providers = classes.filter((each) => !controllers.includes(each));
    @Module({ imports: [locks], controllers, providers })
    class AppModule {}
    const terms = { logger: report, abortOnError: false } as const;
    const app = await (controllers.length > 0
      ? NestFactory.create(AppModule, terms)
      : NestFactory.createApplicationContext(AppModule, terms));
    applications.push(app);
    await app.init();
    return app;
  };
  const scope = { ...IMPORTS, ...places, boot, report, process: { env: mistake.env ?? {} } };
  const run = compiled(WRAPPED[mistake.how](mistake), Object.keys(scope));
  let thrown: unknown;
  try {
    await run(...Object.values(scope));
  } catch (error) {
    thrown = error;
  } finally {
    for (const app of applications) await app.close();
  }
  if (thrown === undefined) return report.lines.join('\n').trim();
  // The code throws text if it shows what a client of the application sees.
  return thrown instanceof Error ? thrown.message : inspect(thrown);
}

/** Compiles the code like an application's, with the names in `scope` as its imports. */
function compiled(code: string, scope: readonly string[]): (...values: unknown[]) => Promise<unknown> {
  const { code: compiledCode } = transformSync(`const main = async () => { ${code} };`, {
    swcrc: false,
    isModule: false,
    jsc: {
      parser: { syntax: 'typescript', decorators: true },
      transform: { legacyDecorator: true, decoratorMetadata: true },
      target: 'es2022',
    },
  });
  // Messages that name the place in the code contain this file name.
  const source = `${compiledCode}; return main();\n//# sourceURL=orders.ts`;
  // eslint-disable-next-line @typescript-eslint/no-implied-eval -- the user's code is data here
  return new Function(...scope, source) as (...values: unknown[]) => Promise<unknown>;
}
