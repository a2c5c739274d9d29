import assert from 'node:assert/strict';
import { LockConfigError, LockError, LockUnavailableError } from '../../api/errors.js';
import { cutOff, refusal, silence, type CaseDefinition } from '../case-definition.js';
import { rejection, rejectsWith } from '../expectations.js';

/** An unreachable backend isn't reported as busy, and is used again once it recovers. */
export const failureCases: readonly CaseDefinition[] = [
  {
    id: '#53',
    title: 'a backend that does not answer is an error, soon, and never busy, never held',
    needs: [cutOff],
    async run(stage) {
      const [ann, bob] = await stage.processes(2);
      await bob.locks.acquire('busy');
      await stage.cutOff(ann);
      for (const key of ['free', 'busy']) {
        const limit = 300 + stage.bounds.noAnswer;
        const attempt = stage.within(limit, ann.locks.acquire(key, { wait: 300 }), 'an answer');
        stage.secrets.overheard(await rejectsWith(LockUnavailableError, attempt, key));
        const single = stage.within(stage.bounds.noAnswer, ann.locks.tryAcquire(key), 'an answer');
        await rejectsWith(LockUnavailableError, single, `${key}, tried once`);
      }
    },
  },
  {
    id: '#53b',
    title: 'renewals and releases of a process that is cut off are answered soon, with unknown',
    needs: [cutOff],
    async run(stage) {
      const ann = await stage.direct();
      const grant = await ann.take('order');
      await stage.cutOff(ann);
      const cutAt = stage.clock.now();
      const { noAnswer } = stage.bounds;
      const renewal = () => stage.within(noAnswer, ann.renew(grant), 'the renewal');
      let outcome = await renewal();
      if (typeof outcome === 'object') {
        // A confirmation from before the cut may cover several locks, but this one only at its next renewal.
        assert.ok(outcome.validUntil <= cutAt + grant.lease, 'nothing was confirmed after the cut');
        outcome = await renewal();
      }
      assert.equal(outcome, 'unknown');
      const release = await stage.within(noAnswer, ann.release(grant), 'the release');
      // If the session has been abandoned, its locks are gone too.
      if (stage.capabilities.lease !== 'session' || release !== 'lost') assert.equal(release, 'unknown');
    },
  },
  {
    id: '#53c',
    title: 'connect without a server fails with LockUnavailableError, and close ends the backend',
    needs: [cutOff],
    async run(stage) {
      const provider = await stage.harness.create();
      await stage.cutOff({ provider });
      const { backend } = stage.caller(provider);
      await rejectsWith(
        LockUnavailableError,
        stage.within(2 * stage.bounds.noAnswer, backend.connect(), 'connect'),
        'connect without a server',
      );
      await stage.within(stage.bounds.noAnswer, backend.close(), 'close');
    },
  },
  {
    id: '#53d',
    title:
      'a waiter whose backend has been silent for most of its wait gets LockUnavailableError, and not LockBusyError',
    needs: [silence],
    async run(stage) {
      const [ann, bob] = await stage.processes(2);
      await ann.locks.acquire('order');
      const waiter = await stage.standInLine(bob, 'order', { wait: 6_000 });
      await stage.silence(bob);
      stage.secrets.overheard(await rejectsWith(LockUnavailableError, waiter.lock, 'the waiter'));
    },
  },
  {
    id: '#53e',
    title: 'what the server refuses is LockConfigError, soon, and works when the server allows it',
    needs: [refusal],
    async run(stage) {
      const ann = await stage.process();
      await (await ann.locks.acquire('first')).release();
      await stage.refuse(ann);
      const attempt = ann.locks.acquire('order', { wait: 10 * stage.bounds.noAnswer });
      const error = await stage.within(
        stage.bounds.noAnswer,
        rejectsWith(LockConfigError, attempt, 'a request that the server refuses'),
        'a refusal',
      );
      assert.equal(error.refused, true, 'it says that the server refuses it, and not the options');
      assert.deepEqual([error.key, error.provider], ['order', 'kit']);
      stage.secrets.overheard(error);
      await stage.restore(ann);
      await stage.eventually(stage.bounds.recovery, () => isGranted(ann.locks.tryAcquire('order')), 'recovery');
    },
  },
  {
    id: '#54',
    title: 'when the backend is back, the same process works again',
    needs: [cutOff],
    async run(stage) {
      const ann = await stage.process();
      await (await ann.locks.acquire('order')).release();
      await stage.cutOff(ann);
      await rejectsWith(LockUnavailableError, ann.locks.tryAcquire('order'), 'cut off');
      await stage.restore(ann);
      await stage.eventually(stage.bounds.recovery, () => isReachable(ann.locks.tryAcquire('order')), 'recovery');
    },
  },
  {
    id: '#54b',
    title: 'an attempt that waits through an outage is served after it',
    needs: [cutOff],
    async run(stage) {
      const [ann, bob] = await stage.processes(2);
      const held = await ann.locks.acquire('order');
      const waiter = await stage.standInLine(bob, 'order');
      await stage.cutOff(bob);
      await stage.sleep(200);
      await stage.restore(bob);
      await stage.sleep(200);
      await held.release();
      const lock = await stage.within(stage.bounds.recovery, waiter.lock, 'the waiter');
      assert.ok(lock.isHeld(), 'served after the outage');
    },
  },
  {
    id: '#56',
    title: 'a task that throws still releases, and its error is the one that is thrown',
    async run(stage) {
      const [ann, bob] = await stage.processes(2);
      const error = new Error('of the task');
      const task = ann.locks.withLock('order', () => {
        throw error;
      });
      assert.equal(await rejection(task, 'a failing task'), error);
      assert.ok(await bob.locks.tryAcquire('order'), 'released after the failure');
    },
  },
  {
    id: '#56b',
    title: 'a release that fails does not hide the value or the error of the task',
    needs: [cutOff],
    async run(stage) {
      const ann = await stage.process();
      const value = await ann.locks.withLock('order', async () => {
        await stage.cutOff(ann);
        return 'done';
      });
      assert.equal(value, 'done');
      await stage.restore(ann);
      const error = new Error('of the task');
      await stage.eventually(stage.bounds.recovery, () => isReachable(ann.locks.tryAcquire('probe')), 'recovery');
      const task = ann.locks.withLock('other', async () => {
        await stage.cutOff(ann);
        throw error;
      });
      assert.equal(await rejection(task, 'a failing task'), error);
    },
  },
];

async function isGranted(attempt: Promise<unknown>): Promise<boolean> {
  try {
    return (await attempt) !== null;
  } catch (error) {
    if (LockError.is(error)) return false;
    throw error;
  }
}

async function isReachable(attempt: Promise<unknown>): Promise<boolean> {
  try {
    await attempt;
    return true;
  } catch (error) {
    if (error instanceof LockUnavailableError) return false;
    throw error;
  }
}
