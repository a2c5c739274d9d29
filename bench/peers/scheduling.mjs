// Scheduling packages that can run a job in a single instance, called as their users would. `start` schedules `job` for
// every second.
import { createRequire } from 'node:module';
import 'reflect-metadata';
import * as common from '@nestjs/common';
import * as core from '@nestjs/core';
import Redis5 from 'ioredis5';
import cron from 'node-cron';

const require = createRequire(import.meta.url);
const EACH_SECOND = '* * * * * *';
/** The lease of the locks that a package leaves to its user. */
const LEASE = 10_000;

/** The usual hand-written lock. */
const lockOf = (redis) => ({
  tryLock: async (key, lease = LEASE) => (await redis.set(key, process.pid, 'PX', lease, 'NX')) === 'OK',
  release: (key) => redis.del(key),
});

/** Starts a Nest application with this module and this class of jobs. */
async function startNest(imports, type) {
  common.Injectable()(type);
  class App {}
  common.Module({ imports, providers: [type] })(App);
  await core.NestFactory.createApplicationContext(App, { logger: false });
}

function decorate(type, method, decorator) {
  decorator(type.prototype, method, Object.getOwnPropertyDescriptor(type.prototype, method));
}

export const schedulers = [
  {
    name: 'node-cron',
    async start({ url, job }) {
      const { tryLock } = lockOf(new Redis5(url));
      const runCoordinator = { shouldRun: tryLock };
      cron.schedule(EACH_SECOND, job, { name: 'job', distributed: true, runCoordinator });
    },
  },
  {
    name: 'nestjs-schedule',
    start({ url, job }) {
      const { Cron, ScheduleModule } = require('nestjs-schedule');
      const { tryLock, release } = lockOf(new Redis5(url));
      class Locker {
        tryLock = (key) => tryLock(key);
        release = release;
      }
      class Jobs {
        run() {
          return job();
        }
      }
      // @UseLocker supports only Nest 11 and earlier: a Nest 12 application doesn't boot with it.
      decorate(Jobs, 'run', Cron(EACH_SECOND, { name: 'job' }));
      return startNest([ScheduleModule.forRoot({ useClass: Locker })], Jobs);
    },
  },
  {
    name: 'nest-schedule',
    start({ url, job }) {
      const { Cron, NestDistributedSchedule, ScheduleModule } = require('nest-schedule');
      const { tryLock, release } = lockOf(new Redis5(url));
      class Jobs extends NestDistributedSchedule {
        async tryLock(key) {
          return (await tryLock(key)) && (() => void release(key));
        }
        run() {
          return job();
        }
      }
      decorate(Jobs, 'run', Cron(EACH_SECOND, { key: 'job' }));
      return startNest([ScheduleModule.register({})], Jobs);
    },
  },
  {
    name: 'cron-cluster',
    async start({ url, job }) {
      const { CronJob } = require('cron-cluster')(new Redis5(url));
      new CronJob(EACH_SECOND, job).start();
    },
  },
];
