import { type INestApplication, type ModuleMetadata, type Type } from '@nestjs/common';
import { NestFactory } from '@nestjs/core';
import { TypeOrmModule } from '@nestjs/typeorm';
import { DistributedLockModule } from '../../lib/index.js';
import { MemoryLockProvider } from '../../lib/providers/memory/memory-lock-provider.js';

const started: INestApplication[] = [];

/** Boots an application with this module, or with these parts beside locks in memory. It is closed after the block. */
export async function start(what: Type | ModuleMetadata): Promise<INestApplication> {
  const module = typeof what === 'function' ? what : withLocks(what);
  const app = await NestFactory.create(module, { abortOnError: false });
  started.push(app);
  return app.init();
}

function withLocks({ imports = [], ...parts }: ModuleMetadata) {
  const locks = DistributedLockModule.forRoot({ provider: new MemoryLockProvider() });
  return { module: class BlockModule {}, imports: [...imports, locks], ...parts };
}

export async function closeAll(): Promise<void> {
  await Promise.all(started.splice(0).map((app) => app.close()));
}

/** A database in the memory of this process, with the tables of these entities. */
export function sqlite(...entities: Type[]) {
  return TypeOrmModule.forRoot({ type: 'sqljs', entities, synchronize: true });
}

/** Requests to hosts of documentation, which nobody answers but this stub. */
export const stub = {
  requests: [] as string[],
  fetch: globalThis.fetch,
  install(): void {
    globalThis.fetch = (input, init) => {
      const url = new URL(input instanceof Request ? input.url : input);
      if (!url.hostname.endsWith('.example')) return this.fetch(input, init);
      this.requests.push(`${init?.method ?? 'GET'} ${url.href}`);
      return Promise.resolve(new Response());
    };
  },
  remove(): void {
    globalThis.fetch = this.fetch;
    this.requests.length = 0;
  },
};
