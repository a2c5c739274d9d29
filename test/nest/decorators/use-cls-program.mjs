// Runs without Jest, which on Node 20 can't load CommonJS packages that require() Nest 12, such as nestjs-cls.
// argv: the folder of the compiled library. Sends the results to its parent.
import 'reflect-metadata';
import { Injectable, Module } from '@nestjs/common';
import { NestFactory } from '@nestjs/core';
import { ClsModule, ClsServiceManager, UseCls } from 'nestjs-cls';

const library = (file) => import(`${process.argv[2]}/nest/${file}.js`);
const { DistributedLock } = await library('decorators/distributed-lock.decorator');
const { DistributedLockModule } = await library('module/distributed-lock.module');
const { currentLock } = await library('service/current-lock');

const cls = ClsServiceManager.getClsService();
const inTenant = UseCls({ setup: (store) => store.set('tenant', 'acme') });

class Reports {
  async above() {
    return `${currentLock().key} for ${cls.get('tenant')}`;
  }
  async below() {
    return `${currentLock().key} for ${cls.get('tenant')}`;
  }
}
decorate('above', inTenant, DistributedLock('#{ctx.tenant}:#{method}'));
decorate('below', DistributedLock('all:#{method}'), inTenant);
Injectable()(Reports);

class AppModule {}
Module({
  imports: [ClsModule.forRoot(), DistributedLockModule.forRoot({ context: { tenant: () => cls.get('tenant') } })],
  providers: [Reports],
})(AppModule);

const app = await NestFactory.createApplicationContext(AppModule, { logger: false, abortOnError: false });
const reports = app.get(Reports);
process.send([await reports.above(), await reports.below()]);
await app.close();
process.disconnect();

/** Applies decorators given from top to bottom: the first one is applied last. */
function decorate(name, ...decorators) {
  const descriptor = Object.getOwnPropertyDescriptor(Reports.prototype, name);
  for (const decorator of decorators.reverse()) decorator(Reports.prototype, name, descriptor);
  Object.defineProperty(Reports.prototype, name, descriptor);
}
