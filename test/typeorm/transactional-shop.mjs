// @DistributedLock with @Transactional of nestjs-cls. A separate program, since Jest can't load CommonJS packages that
// require Nest 12. with-transactional.spec.ts starts it and receives its report.
import 'reflect-metadata';
import { join } from 'node:path';
import { Injectable, Module } from '@nestjs/common';
import { NestFactory } from '@nestjs/core';
import { Transactional, ClsPluginTransactional, TransactionHost } from '@nestjs-cls/transactional';
import { TransactionalAdapterTypeOrm } from '@nestjs-cls/transactional-adapter-typeorm';
import { ClsModule, UseCls } from 'nestjs-cls';
import { DataSource, EntitySchema } from 'typeorm';

const [library, url] = process.argv.slice(2);
const { DistributedLock, DistributedLockModule, LockService } = await import(join(library, 'index.js'));
const { RetryOnConflict, TypeOrmRowLockProvider, VersionConflictError } = await import(
  join(library, 'providers/typeorm/index.js')
);

const Stock = new EntitySchema({
  name: 'stock',
  columns: { item: { type: String, primary: true }, left: { type: Number } },
});
const dataSource = await new DataSource({ type: 'mysql', url, entities: [Stock], synchronize: true }).initialize();

/**
 * Stops the application's commits, so that the test can observe what others see between the last write and the commit.
 */
const gate = { reached: undefined, opened: Promise.resolve() };
dataSource.subscribers.push({
  async beforeTransactionCommit({ queryRunner }) {
    // The lock's own transactions pass.
    if (queryRunner.manager.dataSource !== dataSource) return;
    gate.reached?.();
    await gate.opened;
  },
});
function closeGate() {
  let open;
  const reached = new Promise((resolve) => (gate.reached = resolve));
  gate.opened = new Promise((resolve) => (open = resolve));
  return { reached, open };
}

class Shop {
  runs = 0;
  constructor(transactions) {
    this.transactions = transactions;
  }
  async lockOutside(item) {
    return this.sell(item);
  }
  async lockInside(item) {
    return this.sell(item);
  }
  async fails(item) {
    await this.sell(item);
    throw new Error('of the method');
  }
  async retried(item) {
    const left = await this.sell(item);
    this.runs += 1;
    if (this.runs < 3) throw new VersionConflictError('written by another caller');
    return left;
  }
  async sell(item) {
    const { tx } = this.transactions;
    const { left } = await tx.findOneByOrFail(Stock, { item });
    await tx.update(Stock, { item }, { left: left - 1 });
    return left - 1;
  }
}
/** Applies decorators listed from top to bottom, as in TypeScript: the last one is applied first. */
function decorate(type, method, ...decorators) {
  const descriptor = Object.getOwnPropertyDescriptor(type.prototype, method);
  for (const each of decorators.reverse()) each(type.prototype, method, descriptor);
  Object.defineProperty(type.prototype, method, descriptor);
}
Injectable()(Shop);
Reflect.defineMetadata('design:paramtypes', [TransactionHost], Shop);
decorate(Shop, 'lockOutside', DistributedLock('stock:#{item}'), Transactional());
decorate(Shop, 'lockInside', Transactional(), DistributedLock('stock:#{item}'));
decorate(Shop, 'fails', DistributedLock('stock:#{item}'), Transactional());
decorate(Shop, 'retried', DistributedLock('stock:#{item}'), RetryOnConflict(), Transactional());

/** Without transactions of nestjs-cls, its other decorator is no mistake. */
class Report {
  async run() {}
}
Injectable()(Report);
decorate(Report, 'run', UseCls(), DistributedLock('report'));

class Database {}
Module({ providers: [{ provide: DataSource, useValue: dataSource }], exports: [DataSource] })(Database);

async function start(type, plugins, warnings) {
  class App {}
  const provider = new TypeOrmRowLockProvider({ dataSource, synchronize: true });
  Module({
    imports: [ClsModule.forRoot({ global: true, plugins }), DistributedLockModule.forRoot({ provider })],
    providers: [type],
  })(App);
  const silent = { log() {}, error: console.error, warn: (message) => warnings.push(message) };
  return NestFactory.createApplicationContext(App, { logger: silent });
}
const adapter = new TransactionalAdapterTypeOrm({ dataSourceToken: DataSource });
const warnings = [];
const app = await start(Shop, [new ClsPluginTransactional({ imports: [Database], adapter })], warnings);
const reportWarnings = [];
const other = await start(Report, [], reportWarnings);
const shop = app.get(Shop);
const elsewhere = other.get(LockService);

const left = async () => (await dataSource.manager.findOneByOrFail(Stock, { item: 'lamp' })).left;
const restock = () => dataSource.manager.save(Stock, { item: 'lamp', left: 10 });

/** Returns what another process finds while the sale is about to commit, and what it reads once it has the lock. */
async function watched(method) {
  await restock();
  const { reached, open } = closeGate();
  const sale = shop[method]('lamp');
  await reached;
  const early = await elsewhere.tryAcquire('stock:lamp');
  const leftBeforeCommit = await left();
  await early?.release();
  const next = elsewhere.withLock('stock:lamp', left);
  open();
  const answer = await sale;
  return { isFreeBeforeCommit: early !== null, leftBeforeCommit, answer, nextReads: await next };
}
const lockOutside = await watched('lockOutside');
const { isFreeBeforeCommit, leftBeforeCommit } = await watched('lockInside');

await restock();
const error = await shop.fails('lamp').catch(({ message }) => message);
const failed = { error, nextReads: await elsewhere.withLock('stock:lamp', left, { wait: 0 }) };

await restock();
const retried = { answer: await shop.retried('lamp'), runs: shop.runs, nextReads: await left() };

await app.close();
await other.close();
await dataSource.destroy();
process.send({
  warnings,
  reportWarnings,
  lockOutside,
  lockInside: { isFreeBeforeCommit, leftBeforeCommit },
  failed,
  retried,
});
// Anything that keeps this process alive from here on was left open.
process.disconnect();
