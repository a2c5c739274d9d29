// A worker without an HTTP server or timers of its own that campaigns for leadership and prints what happens. After
// SIGTERM, it exits on its own once the application has closed. argv: the compiled library's folder, the provider's
// module and class, its options as JSON, and the campaign's options as JSON.
import 'reflect-metadata';
import process from 'node:process';
import { NestFactory } from '@nestjs/core';

const [, , folder, file, name, options, campaign] = process.argv;
const library = (path) => import(`${folder}/${path}.js`);
const { DistributedLockModule } = await library('nest/module/distributed-lock.module');
const { LockService } = await library('nest/service/lock.service');
const { [name]: Provider } = await library(file);

class AppModule {}
const provider = new Provider(JSON.parse(options));
const app = await NestFactory.createApplicationContext(
  { module: AppModule, imports: [DistributedLockModule.forRoot({ provider })] },
  { logger: false, abortOnError: false },
);
process.once('SIGTERM', () => void app.close());
const untilItsEnd = ({ signal }) => {
  console.log('leads');
  return new Promise((resolve) => signal.addEventListener('abort', resolve, { once: true }));
};
const locks = app.get(LockService);
locks.events.on('resigned', ({ reason }) => console.log(`resigned: ${reason}`));
void locks.runAsLeader('billing', untilItsEnd, JSON.parse(campaign));
