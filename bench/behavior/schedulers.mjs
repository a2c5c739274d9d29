// The scheduling packages that docs/comparisons.md compares: this package together with @nestjs/schedule, and others.
import 'reflect-metadata';
import { Injectable, Module } from '@nestjs/common';
import { NestFactory } from '@nestjs/core';
import { Cron, ScheduleModule } from '@nestjs/schedule';
import { DistributedLockModule, RunOnce } from 'nestjs-distributed-lock';
import { RedisLockProvider } from 'nestjs-distributed-lock/redis';
import { ensurePeers } from '../peers/ensure-peers.mjs';
import { decorateMethod } from './nest.mjs';

const ours = 'nestjs-distributed-lock';

async function start({ job, locks, decorators }) {
  class Jobs {
    run() {
      return job();
    }
  }
  decorateMethod(Jobs, 'run', [Cron('* * * * * *'), ...decorators]);
  Injectable()(Jobs);
  class App {}
  Module({ imports: [ScheduleModule.forRoot(), ...locks], providers: [Jobs] })(App);
  await NestFactory.createApplicationContext(App, { logger: false });
}

ensurePeers();
const { schedulers: peers } = await import('../peers/scheduling.mjs');

export const schedulers = [
  {
    name: ours,
    start: ({ url, job }) => {
      const options = { provider: new RedisLockProvider({ url }), defaults: { lease: '10s' } };
      return start({
        job,
        locks: [DistributedLockModule.forRoot(options)],
        decorators: [RunOnce('job')],
      });
    },
  },
  { name: '@nestjs/schedule', start: ({ job }) => start({ job, locks: [], decorators: [] }) },
  ...peers,
];

export function startOf(name) {
  return schedulers.find((each) => each.name === name).start;
}
