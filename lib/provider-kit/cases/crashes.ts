import assert from 'node:assert/strict';
import { cutOff, type CaseDefinition } from '../case-definition.js';

/** Processes that disappear without warning, and processes that shut down properly. */
export const crashCases: readonly CaseDefinition[] = [
  {
    id: '#37',
    title: 'a process that ends without a release frees its locks within a lease',
    async run(stage) {
      const [ann, bob] = await stage.directs(2);
      await ann.take('order', { lease: stage.lease });
      await ann.backend.close();
      const limit = stage.lease + stage.bounds.takeOver;
      await stage.within(limit, bob.take('order', { wait: 2 * limit }), 'taking over');
    },
  },
  {
    id: '#38',
    title: 'a process that is gone at once frees its locks within a lease',
    needs: [cutOff],
    async run(stage) {
      const [ann, bob] = await stage.directs(2);
      await ann.take('order', { lease: stage.lease });
      await stage.cutOff(ann);
      const limit = stage.lease + stage.bounds.takeOver;
      await stage.within(limit, bob.take('order', { wait: 2 * limit }), 'taking over');
    },
  },
  {
    id: '#39',
    title: 'a waiter whose process is gone does not block those behind it',
    needs: [cutOff],
    async run(stage) {
      const [ann, bob, cid] = await stage.processes(3);
      const held = await ann.locks.acquire('order');
      await stage.standInLine(bob, 'order', stage.shortLease);
      const behind = await stage.standInLine(cid, 'order');
      await stage.cutOff(bob);
      await held.release();
      await stage.within(stage.lease + stage.bounds.deadWaiter, behind.lock, 'the waiter behind');
    },
  },
  {
    id: '#42',
    title: 'a process that stops frees all its locks before it disconnects',
    async run(stage) {
      const [ann, bob] = await stage.processes(2);
      const locks = [await ann.locks.acquire('a'), await ann.locks.acquire('b')];
      await ann.locks.stop();
      for (const lock of locks) assert.equal(lock.isHeld(), false);
      for (const key of ['a', 'b']) assert.ok(await bob.tryAcquire(key), `"${key}" is free`);
    },
  },
];
