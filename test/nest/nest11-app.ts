// `npm run smoke:nest11` compiles this file against the packed package and Nest 11, as an ES module and as CommonJS,
// and runs it.
import 'reflect-metadata';
import { deepEqual, equal, match, rejects } from 'node:assert/strict';
import type { AddressInfo, Server } from 'node:net';
import {
  type ArgumentsHost,
  type CanActivate,
  Catch,
  Controller,
  type ExceptionFilter,
  Get,
  Headers,
  HttpException,
  Injectable,
  Module,
  Param,
  ParseIntPipe,
  Scope,
  StreamableFile,
  UseGuards,
} from '@nestjs/common';
import { APP_FILTER, NestFactory, REQUEST } from '@nestjs/core';
import { ClientProxyFactory, MessagePattern, Transport } from '@nestjs/microservices';
import {
  currentLock,
  DistributedLock,
  DistributedLockModule,
  LockAdmin,
  LockConfigError,
  LockService,
  LockBusyError,
  RunOnce,
} from 'nestjs-distributed-lock';
import { provideLockServiceStub } from 'nestjs-distributed-lock/testing';
import { firstValueFrom, Observable, of } from 'rxjs';

const keyHere = () => currentLock().key;
const symbol = Symbol('symbol');
const hooks: string[] = [];

abstract class Base {
  @DistributedLock('base:#{id}')
  async inherited(id: number) {
    return `${keyHere()} ${id}`;
  }
}

@Injectable()
class Orders extends Base {
  @DistributedLock('order:#{order.id}')
  async pay(order: { id: number }) {
    return `${keyHere()} ${order.id}`;
  }
  @DistributedLock('alias')
  override async inherited(id: number) {
    return `${keyHere()} > ${await super.inherited(id)}`;
  }
  @DistributedLock('symbol')
  async [symbol]() {
    return keyHere();
  }
  @DistributedLock('observable')
  observe(): Observable<string> {
    return of(keyHere());
  }
  @DistributedLock('rows')
  async *rows(): AsyncGenerator<string> {
    yield keyHere();
    yield keyHere();
  }
  @DistributedLock('busy', { wait: 0 })
  async busy() {}
  @RunOnce('busy', { minHold: 0 })
  async once() {
    throw new Error('ran');
  }
  @DistributedLock('#{method}')
  async onModuleInit() {
    hooks.push(keyHere());
  }
  @DistributedLock('#{method}')
  async onApplicationShutdown() {
    hooks.push(keyHere());
  }
}

@Injectable({ scope: Scope.REQUEST })
class PerRequest {
  @DistributedLock('tenant:#{host}')
  async run(host: string) {
    return `${keyHere()} for ${host}`;
  }
}

@Injectable()
class BusyGuard implements CanActivate {
  @DistributedLock('busy', { wait: 0 })
  async canActivate() {
    return true;
  }
}

@Controller()
class Handlers {
  constructor(private readonly perRequest: PerRequest) {}

  @Get('above/:id')
  @DistributedLock('item:#{id}')
  async above(@Param('id', ParseIntPipe) id: number) {
    return { id, key: keyHere() };
  }
  @DistributedLock('item:#{id}')
  @Get('below/:id')
  async below(@Param('id', ParseIntPipe) id: number) {
    return { id, key: keyHere() };
  }
  @Get('request')
  @DistributedLock('outer:#{request.headers.host}')
  async request(@Headers('host') host: string) {
    return `${keyHere()} ${await this.perRequest.run(host)}`;
  }
  @Get('around/:id')
  @DistributedLock('around:#{request.params.id}', { around: 'request' })
  async around(@Param('id', ParseIntPipe) id: number) {
    return new StreamableFile(Buffer.from(`${keyHere()} ${id}`));
  }
  @Get('busy')
  @DistributedLock('busy', { wait: 0 })
  async busy() {}
  @Get('guarded')
  @UseGuards(BusyGuard)
  guarded() {}
  @MessagePattern('rpc')
  @DistributedLock('rpc:#{request.data.id}')
  async rpc() {
    return keyHere();
  }
  @MessagePattern('busy')
  @UseGuards(BusyGuard)
  async busyRpc() {}
  @Get('skipped')
  @DistributedLock('busy', { around: 'request', onBusy: 'skip' })
  async skipped() {}
}

@Module({
  imports: [DistributedLockModule.forRoot({ shutdownGrace: 0 })],
  controllers: [Handlers],
  providers: [
    Orders,
    PerRequest,
    { provide: 'made', useFactory: () => new Orders() },
    { provide: 'value', useValue: new Orders() },
  ],
})
class AppModule {}

@Catch(HttpException)
class OwnFilter implements ExceptionFilter {
  catch(error: HttpException, host: ArgumentsHost) {
    host
      .switchToHttp()
      .getResponse<{ status(code: number): { send(text: string): void } }>()
      .status(418)
      .send(error.message);
  }
}
@Module({
  imports: [DistributedLockModule.forRoot({ shutdownGrace: 0 })],
  controllers: [Handlers],
  providers: [PerRequest, { provide: APP_FILTER, useClass: OwnFilter }],
})
class WithFilter {}

@Module({ providers: [Orders] })
class WithoutLocks {}

class Wrong {
  @DistributedLock('#{nobody}', { provider: 'redis' })
  async run() {}
}
@Module({ imports: [DistributedLockModule.forRoot()], providers: [Wrong] })
class WithMistakes {}

@Module({
  imports: [DistributedLockModule.forRootAsync({ inject: [REQUEST], useFactory: () => ({}) })],
  providers: [Orders],
})
class PerRequestLocks {}

const QUIET = { logger: false, abortOnError: false } as const;

async function main(): Promise<number> {
  const app = await NestFactory.create(AppModule, QUIET);
  // A second application with the same classes makes every instance ambiguous without injection.
  const other = await NestFactory.createApplicationContext(AppModule, QUIET);
  const options = { host: '127.0.0.1', port: 0 };
  const service = app.connectMicroservice({ transport: Transport.TCP, options }, { inheritAppConfig: true });
  await app.startAllMicroservices();
  const { port } = service.unwrap<Server>().address() as AddressInfo;
  const client = ClientProxyFactory.create({ transport: Transport.TCP, options: { ...options, port } });
  await app.listen(0, '127.0.0.1');
  const url = await app.getUrl();
  const text = async (path: string) => (await fetch(url + path)).text();
  const boot = (module: typeof AppModule) => NestFactory.createApplicationContext(module, QUIET);
  const [orders, locks, admin] = [app.get(Orders), app.get(LockService), app.get(LockAdmin)];
  const held = await locks.acquire('busy');

  const checks: Record<string, () => unknown> = {
    'a method': async () => equal(await orders.pay({ id: 1 }), 'order:1 1'),
    'override and super': async () => equal(await orders.inherited(1), 'alias > base:1 1'),
    'a symbol': async () => equal(await orders[symbol](), 'symbol'),
    'an Observable': async () => equal(await firstValueFrom(orders.observe()), 'observable'),
    'an async generator': async () => {
      for await (const row of orders.rows()) equal(row, 'rows');
      deepEqual(
        admin.held().map(({ key }) => key),
        ['busy'],
      );
    },
    useFactory: async () => equal(await app.get<Orders>('made').pay({ id: 1 }), 'order:1 1'),
    useValue: async () => equal(await app.get<Orders>('value').pay({ id: 1 }), 'order:1 1'),
    busy: () => rejects(orders.busy(), LockBusyError),
    skipped: () => orders.once(),
    'another application': () => other.get(Orders).busy(),
    'lifecycle hooks': () => equal(hooks.includes('onModuleInit'), true),
    'no trace': () => deepEqual(Object.keys(orders), []),
    'above @Get': async () => equal(await text('/above/7'), '{"id":7,"key":"item:7"}'),
    'below @Get': async () => equal(await text('/below/7'), '{"id":7,"key":"item:7"}'),
    pipes: async () => equal((await fetch(`${url}/above/x`)).status, 400),
    'request scope and #{request}': async () =>
      match(await text('/request'), /^outer:127\.0\.0\.1%3A\d+ tenant:127\.0\.0\.1%3A\d+ for 127/),
    'around the request': async () => equal(await text('/around/7'), 'around:7 7'),
    '423': async () => {
      for (const path of ['/busy', '/guarded']) {
        const response = await fetch(url + path);
        equal(response.status, 423);
        equal(response.headers.get('retry-after'), '1');
        match(String(response.headers.get('content-type')), /^application\/problem\+json/);
        match(await response.text(), /"title":"Locked","status":423,"detail":".+","code":"LOCK_BUSY"/);
      }
    },
    "the application's own filter": async () => {
      const filtered = await NestFactory.create(WithFilter, QUIET);
      const blocking = await filtered.get(LockService).acquire('busy');
      await filtered.listen(0, '127.0.0.1');
      const url = await filtered.getUrl();
      equal((await fetch(`${url}/busy`)).status, 418);
      // A guard throws the LockError itself, which isn't an HttpException.
      equal((await fetch(`${url}/guarded`)).status, 423);
      await blocking.release();
      await filtered.close();
    },
    RPC: async () => {
      equal(await firstValueFrom(client.send('rpc', { id: 7 })), 'rpc:7');
      await rejects(firstValueFrom(client.send('busy', {})), ({ code }: { code: string }) => code === 'LOCK_BUSY');
    },
    'a skipped request': async () => equal(await text('/skipped'), ''),
    'a missing module': () => rejects(boot(WithoutLocks), /import DistributedLockModule\.forRoot\(\)/),
    mistakes: () =>
      rejects(boot(WithMistakes), (error: Error) => {
        match(error.message, /Wrong\.run.*nobody/);
        match(error.message, /Wrong\.run: There is no lock provider "redis"/);
        return error instanceof LockConfigError;
      }),
    'request-scoped options': () => rejects(boot(PerRequestLocks), /request-scoped/),
    'the stub': async () => {
      const stub = provideLockServiceStub();
      @Module({ providers: [Orders, stub] })
      class Stubbed {}
      const stubbed = await boot(Stubbed);
      equal(await stubbed.get(Orders).pay({ id: 2 }), 'order:2 2');
      deepEqual(stub.acquired, ['onModuleInit', 'order:2']);
      await stubbed.close();
    },
  };
  const problems: string[] = [];
  for (const [name, check] of Object.entries(checks)) {
    try {
      await check();
    } catch (error) {
      problems.push(`${name}: ${String(error)}`);
    }
  }
  await held.release();
  client.close();
  await app.close();
  await other.close();
  if (!hooks.includes('onApplicationShutdown')) problems.push('no lock at shutdown');
  for (const problem of problems) console.error(problem);
  console.log(`${Object.keys(checks).length} checks, ${problems.length} failed`);
  return problems.length;
}

// Stays until main() ends: if a promise never settled, the process would otherwise exit with success.
process.exitCode = 1;
main().then(
  (failed) => (process.exitCode = failed === 0 ? 0 : 1),
  (error: unknown) => {
    console.error(error);
    process.exitCode = 1;
  },
);
