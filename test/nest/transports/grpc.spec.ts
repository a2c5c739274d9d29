import { once } from 'node:events';
import { join } from 'node:path';
import {
  type ChannelOptions,
  type ClientDuplexStream,
  type ClientReadableStream,
  type ClientWritableStream,
  credentials,
  loadPackageDefinition,
  type requestCallback,
  type ServerDuplexStream,
  type ServerReadableStream,
  type ServiceError,
  status,
} from '@grpc/grpc-js';
import { loadSync } from '@grpc/proto-loader';
import { type CanActivate, Catch, Controller, type ExceptionFilter, Injectable, UseGuards } from '@nestjs/common';
import { APP_FILTER } from '@nestjs/core';
import { GrpcMethod, GrpcStreamCall, GrpcStreamMethod, Payload, Transport } from '@nestjs/microservices';
import { concat, map, Observable, of, reduce, throwError } from 'rxjs';
import {
  currentLock,
  DistributedLock,
  type DistributedLockModuleOptions,
  LockAdmin,
  LockBusyError,
  LockCapacityError,
  type LockError,
  LockKeyError,
  LockLostError,
  LockService,
  LockUnavailableError,
} from '../../../lib/index.js';
import { VersionConflictError } from '../../../lib/providers/typeorm/index.js';
import { freePort } from '../../servers/server-process.mjs';
import { serve, until, untilLost } from '../apps.js';

const protoPath = join(import.meta.dirname, 'shop.proto');

interface Order {
  readonly id: string;
}

interface Client {
  ship(order: Order, callback: requestCallback<Order>): unknown;
  around(order: Order, callback: requestCallback<Order>): unknown;
  guarded(order: Order, callback: requestCallback<Order>): unknown;
  fail(order: Order, callback: requestCallback<Order>): unknown;
  watch(order: Order): ClientReadableStream<Order>;
  store(callback: requestCallback<Order>): ClientWritableStream<Order>;
  chat(): ClientDuplexStream<Order, Order>;
  storeByCall(callback: requestCallback<Order>): ClientWritableStream<Order>;
  chatByCall(): ClientDuplexStream<Order, Order>;
  close(): void;
}

/** What `Fail` throws, by order id. */
const FAILURES: Record<string, () => LockError> = {
  unavailable: () => new LockUnavailableError('No answer from 10.0.0.1.', { key: 'order:7' }),
  capacity: () => new LockCapacityError('1000 callers wait for order:7.', { key: 'order:7' }),
  lost: () => new LockLostError('order:7 is gone.', { reason: 'revoked', key: 'order:7' }),
  conflict: () => new VersionConflictError('The Order 7 was written since.'),
  misuse: () => new LockKeyError('order:#{order.id} has no value.'),
};

@Injectable()
class BusyGuard implements CanActivate {
  @DistributedLock('order:7', { wait: 0 })
  async canActivate() {
    return true;
  }
}

@Controller()
class ShopController {
  failures = 0;

  @GrpcMethod('Shop', 'Ship')
  @DistributedLock('order:#{order.id}', { wait: 0 })
  async ship(@Payload() order: Order) {
    return order;
  }
  @GrpcMethod('Shop', 'Around')
  @DistributedLock('order:#{request.data.id}', { wait: 0, around: 'request' })
  async around(order: Order) {
    return order;
  }
  @GrpcMethod('Shop', 'Guarded')
  @UseGuards(BusyGuard)
  guarded(order: Order) {
    return order;
  }
  @GrpcMethod('Shop', 'Fail')
  async fail({ id }: Order) {
    this.failures += 1;
    throw FAILURES[id]!();
  }
  @GrpcMethod('Shop', 'Watch')
  @DistributedLock('order:#{order.id}', { wait: 0 })
  watch(@Payload() order: Order): Observable<Order> {
    return order.id === 'unavailable'
      ? concat(of(order), throwError(FAILURES[order.id]!))
      : concat(of(order), untilLost(currentLock().signal));
  }
  @GrpcStreamMethod('Shop', 'Store')
  @DistributedLock('order:7', { wait: 0, around: 'request' })
  store(orders: Observable<Order>): Observable<Order> {
    return orders.pipe(
      reduce((count) => count + 1, 0),
      map((count) => ({ id: String(count) })),
    );
  }
  @GrpcStreamMethod('Shop', 'Chat')
  @DistributedLock('order:7', { wait: 0, around: 'request' })
  chat(orders: Observable<Order>): Observable<Order> {
    return orders;
  }
  @GrpcStreamCall('Shop', 'StoreByCall')
  @DistributedLock('order:7', { wait: 0 })
  async storeByCall(call: ServerReadableStream<Order, Order>, callback: (error: null, order: Order) => void) {
    let count = 0;
    call.on('data', () => (count += 1));
    await once(call, 'end');
    callback(null, { id: String(count) });
  }
  @GrpcStreamCall('Shop', 'ChatByCall')
  @DistributedLock('order:7', { wait: 0 })
  async chatByCall(call: ServerDuplexStream<Order, Order>) {
    call.on('data', (order: Order) => call.write(order));
    await once(call, 'end');
    call.end();
  }
}

const clients = new Set<Client>();
afterEach(() => {
  for (const client of clients) client.close();
  clients.clear();
});

/** Starts an application with a gRPC server, and a client. `isBusy` holds `order:7`. */
async function connect(
  isBusy: boolean,
  { mapErrors, filter }: Pick<DistributedLockModuleOptions, 'mapErrors'> & { filter?: ExceptionFilter } = {},
  channel: ChannelOptions = {},
) {
  const url = `127.0.0.1:${await freePort()}`;
  const { app } = await serve(
    { controllers: [ShopController], providers: filter ? [{ provide: APP_FILTER, useValue: filter }] : [] },
    { mapErrors },
    async (hybrid) => {
      const options = { package: 'shop', protoPath, url };
      hybrid.connectMicroservice({ transport: Transport.GRPC, options }, { inheritAppConfig: true });
      await hybrid.startAllMicroservices();
    },
  );
  if (isBusy) await app.get(LockService).acquire('order:7');
  const { shop } = loadPackageDefinition(loadSync(protoPath)) as unknown as {
    shop: { Shop: new (address: string, security: unknown, options: ChannelOptions) => Client };
  };
  const client = new shop.Shop(url, credentials.createInsecure(), channel);
  clients.add(client);
  return { app, client };
}

const ORDERS = ['1', '2', '3'];

/** A call of each kind, which resolves to the values that the client gets. */
const CALLS: Record<string, (client: Client, id: string) => Promise<string[]>> = {
  ...Object.fromEntries(
    (['ship', 'around', 'guarded', 'fail'] as const).map((method) => [
      method,
      (client: Client, id: string) => unary((callback) => client[method]({ id }, callback)),
    ]),
  ),
  watch: (client, id) => all(client.watch({ id })),
  store: (client) => unary((callback) => send(client.store(callback))),
  chat: (client) => all(send(client.chat())),
  storeByCall: (client) => unary((callback) => send(client.storeByCall(callback))),
  chatByCall: (client) => all(send(client.chatByCall())),
};

function unary(call: (callback: requestCallback<Order>) => unknown): Promise<string[]> {
  return new Promise((resolve, reject) => {
    call((error, order) => {
      if (error) reject(error);
      else resolve([order!.id]);
    });
  });
}

function send<S extends ClientWritableStream<Order>>(stream: S): S {
  for (const id of ORDERS) stream.write({ id });
  stream.end();
  return stream;
}

function all(stream: ClientReadableStream<Order>): Promise<string[]> {
  const ids: string[] = [];
  return new Promise((resolve, reject) => {
    stream.on('data', ({ id }: Order) => ids.push(id));
    stream.on('error', reject);
    stream.on('end', () => resolve(ids));
  });
}

/** Returns the status, text and metadata of a failed call. */
async function failure(call: Promise<unknown>) {
  const error = await call.then(
    (value) => Promise.reject(new Error(`It gave ${JSON.stringify(value)}`)),
    (reason: unknown) => reason as ServiceError,
  );
  const { metadata } = error;
  metadata.remove('date');
  metadata.remove('content-type');
  return { status: status[error.code], text: error.details, metadata: metadata.getMap() };
}

const BUSY = {
  status: 'RESOURCE_EXHAUSTED',
  text: 'The resource is in use by another request. Try again later.',
  metadata: { 'lock-code': 'LOCK_BUSY', 'retry-after': '1' },
};

describe('a gRPC server', () => {
  const values: Record<string, string[]> = {
    ...{ ship: ['7'], around: ['7'], guarded: ['7'], store: ['3'], storeByCall: ['3'] },
    ...{ chat: ORDERS, chatByCall: ORDERS },
  };

  it.each(Object.keys(values))('serves a call under a free lock (%s)', async (method) => {
    const { client } = await connect(false);
    expect(await CALLS[method]!(client, '7')).toEqual(values[method]);
  });

  it.each([...Object.keys(values), 'watch'])(
    'reports a busy lock with a status that a client may retry (%s)',
    async (method) => {
      const { client } = await connect(true);
      expect(await failure(CALLS[method]!(client, '7'))).toEqual(BUSY);
      // The server still works.
      expect(await CALLS['ship']!(client, '8')).toEqual(['8']);
    },
  );

  it.each([
    ['unavailable', 'UNAVAILABLE', { 'lock-code': 'LOCK_UNAVAILABLE', 'retry-after': '1' }],
    ['capacity', 'UNAVAILABLE', { 'lock-code': 'LOCK_CAPACITY', 'retry-after': '1' }],
    ['lost', 'ABORTED', { 'lock-code': 'LOCK_LOST', 'grpc-retry-pushback-ms': '-1' }],
    ['conflict', 'ABORTED', { 'lock-code': 'LOCK_VERSION_CONFLICT', 'grpc-retry-pushback-ms': '-1' }],
    ['misuse', 'INTERNAL', {}],
  ])('reports %s as %s, without internals of the server', async (id, expected, metadata) => {
    const { client } = await connect(false);
    const failed = await failure(CALLS['fail']!(client, id));
    expect(failed).toMatchObject({ status: expected, metadata });
    expect(failed.metadata).toEqual(metadata);
    expect(failed.text).not.toMatch(/7|1000|10\.0\.0\.1|\{/);
  });

  it('reports an error and a lost lock in the middle of a stream', async () => {
    const { app, client } = await connect(false);
    expect(await failure(all(client.watch({ id: 'unavailable' })))).toMatchObject({ status: 'UNAVAILABLE' });
    const stream = client.watch({ id: '7' });
    stream.once('data', () => void app.get(LockAdmin).forceRelease('order:7'));
    expect(await failure(all(stream))).toMatchObject({ status: 'ABORTED', metadata: { 'lock-code': 'LOCK_LOST' } });
    await until(() => app.get(LockAdmin).held().length === 0);
  });

  it("lets a client's retry policy repeat a busy call, but never a lost one, whatever codes the policy names", async () => {
    const retryPolicy = {
      maxAttempts: 5,
      initialBackoff: '0.01s',
      maxBackoff: '0.01s',
      backoffMultiplier: 1,
      retryableStatusCodes: ['RESOURCE_EXHAUSTED', 'UNAVAILABLE', 'ABORTED'],
    };
    const serviceConfig = {
      loadBalancingConfig: [],
      methodConfig: [{ name: [{ service: 'shop.Shop' }], retryPolicy }],
    };
    const { app, client } = await connect(false, {}, { 'grpc.service_config': JSON.stringify(serviceConfig) });
    const controller = app.get(ShopController);
    await failure(CALLS['fail']!(client, 'unavailable'));
    expect(controller.failures).toBe(5);
    controller.failures = 0;
    await failure(CALLS['fail']!(client, 'lost'));
    await failure(CALLS['fail']!(client, 'conflict'));
    expect(controller.failures).toBe(2);
    const locks = app.get(LockService);
    const held = await locks.acquire('order:7');
    locks.events.once('busy', () => void held.release());
    expect(await CALLS['ship']!(client, '7')).toEqual(['7']);
  });

  it("leaves lock errors to the application's own filter, and to Nest with mapErrors: false", async () => {
    @Catch(LockBusyError)
    class Own implements ExceptionFilter {
      catch() {
        return throwError(() => ({ code: status.FAILED_PRECONDITION, message: 'mine' }));
      }
    }
    const own = await connect(true, { filter: new Own() });
    expect(await failure(CALLS['ship']!(own.client, '7'))).toMatchObject({
      status: 'FAILED_PRECONDITION',
      text: 'mine',
    });
    const bare = await connect(true, { mapErrors: false });
    expect(await failure(CALLS['ship']!(bare.client, '7'))).toMatchObject({ status: 'UNKNOWN' });
  });
});
