import assert from 'node:assert/strict';
import { LockConfigError, LockUnavailableError } from '../../api/errors.js';
import type { RecordStore } from '../../api/lock-provider.js';
import { type CaseDefinition, cutOff, ownClock, records, refusal } from '../case-definition.js';
import type { DirectCaller } from '../direct-caller.js';
import { rejectsWith } from '../expectations.js';
import { WrongClock } from '../wrong-clock.js';
import { HOSTILE } from './names.js';

const DAY = 86_400_000;
const WRITERS = 4;
const WRITES = 10;
// More than one page on any backend.
const MANY = 600;
const IN_FLIGHT = 50;
const LOST_REPLIES = 3;

const STEM = 'x'.repeat(299);
const NAMES = [
  ...new Set([
    ...Object.values(HOSTILE).flat(),
    ...['order', 'Order', 'ORDER', 'report:daily', 'report:daily:', 'a#b', 'a#'],
    ...[`${STEM}a`, `${STEM}b`, `a${STEM}`, STEM, 'é'.repeat(300), 'x'.repeat(1_000), `${'x'.repeat(999)}y`],
  ]),
];
const VALUES = ['', ' ', '0', 'null', '"\'\\`%_$1', 'ü€😀\0\n\u2028', 'x'.repeat(4_096), '😀'.repeat(1_000)];

/** Job records, alongside the jobs' locks. */
export const recordCases: readonly CaseDefinition[] = [
  {
    id: '#60',
    title: 'a backend has records where its harness says so, and nowhere else',
    async run(stage) {
      const { backend } = await stage.direct();
      assert.equal(backend.records !== undefined, stage.harness.records ?? false);
    },
  },
  {
    id: '#60a',
    title: 'records: nothing at first; written only over what was expected; a repeated write finds itself',
    needs: [records],
    async run(stage) {
      const [ann, bob] = await stage.directs(2);
      const [store, other] = [recordsOf(ann), recordsOf(bob)];
      const assertStored = async (value: string | null) => {
        for (const each of [store, other]) assert.equal((await each.read('job')).value, value);
      };
      const replace = async (by: RecordStore, expected: string | null, next: string) =>
        (await by.replace('job', expected, next)).value;
      await assertStored(null);
      assert.equal(await replace(store, 'a', 'b'), null, 'nothing is there');
      await assertStored(null);
      assert.equal(await replace(store, null, 'a'), 'a');
      assert.equal(await replace(store, null, 'a'), 'a', 'again');
      await assertStored('a');
      for (const expected of [null, 'A', 'a ', '']) {
        assert.equal(await replace(other, expected, 'b'), 'a', `something else is there than ${String(expected)}`);
      }
      await assertStored('a');
      assert.equal(await replace(other, 'a', 'b'), 'b');
      assert.equal(await replace(other, 'a', 'b'), 'b', 'again');
      assert.equal(await replace(store, 'a', 'c'), 'b', 'it has changed');
      assert.equal(await replace(store, null, 'c'), 'b', 'it has changed');
      await assertStored('b');
    },
  },
  {
    id: '#60b',
    title: 'records: of writers that contend from the first write on, one wins each time',
    needs: [records],
    async run(stage) {
      const writers = (await stage.directs(WRITERS)).map(recordsOf);
      const successors = new Map<string | null, string>();
      const write = async (store: RecordStore, writer: number) => {
        let known: string | null = null;
        for (let done = 0; done < WRITES;) {
          const next = `${writer}:${done}`;
          const { value }: { readonly value: string | null } = await store.replace('job', known, next);
          if (value === next) {
            assert.ok(!successors.has(known), `two writers have replaced ${String(known)}`);
            successors.set(known, next);
            done += 1;
          }
          known = value;
        }
      };
      await Promise.all(writers.map(write));
      let length = 0;
      for (let value = successors.get(null); value !== undefined; value = successors.get(value)) length += 1;
      assert.equal(length, WRITERS * WRITES, 'one history');
    },
  },
  {
    id: '#60c',
    title: 'records: hostile names are different records, and are listed as they were given',
    needs: [records],
    async run(stage) {
      const [ann, bob] = await stage.directs(2);
      const [store, other] = [recordsOf(ann), recordsOf(bob)];
      const all = NAMES.map((name) => ({ name, value: `of ${JSON.stringify(name)}` }));
      for (const { name, value } of all) assert.equal((await store.replace(name, null, value)).value, value);
      for (const { name, value } of all) assert.equal((await other.read(name)).value, value);
      assert.deepEqual(await listOf(other), sorted(all));
    },
  },
  {
    id: '#60d',
    title: 'records: texts are kept as they are, up to 4 KB',
    needs: [records],
    async run(stage) {
      const store = recordsOf(await stage.direct());
      let before: string | null = null;
      for (const value of VALUES) {
        assert.equal((await store.replace('job', before, value)).value, value);
        assert.equal((await store.read('job')).value, value);
        assert.deepEqual(await listOf(store), [{ name: 'job', value }]);
        before = value;
      }
    },
  },
  {
    id: '#60e',
    title: 'records: a list has all of the namespace, each once, and none of another one',
    needs: [records],
    async run(stage) {
      const { namespace, clock } = stage;
      const store = recordsOf(await stage.direct());
      for (const other of [`${namespace}-x`, `${namespace}.`, namespace.slice(0, -1)]) {
        const stranger = recordsOf(await stage.direct(clock, other));
        assert.equal((await stranger.replace('job', null, 'of another namespace')).value, 'of another namespace');
      }
      assert.equal((await store.read('job')).value, null);
      assert.deepEqual(await listOf(store), []);
      const all = Array.from({ length: stage.rounds(MANY) }, (_, index) => ({
        name: `job:${index}`,
        value: `${index}`,
      }));
      for (let at = 0; at < all.length; at += IN_FLIGHT) {
        await Promise.all(all.slice(at, at + IN_FLIGHT).map(({ name, value }) => store.replace(name, null, value)));
      }
      assert.deepEqual(await listOf(store), sorted(all));
    },
  },
  {
    id: '#60f',
    title: 'records: a record and the lock of its name are apart, also for operators',
    needs: [records],
    async run(stage) {
      const { list, forceRelease } = stage.capabilities;
      const [ann, bob] = await stage.directs(2);
      const store = recordsOf(ann);
      await store.replace('job', null, 'a');
      assert.equal(await ann.release(await ann.take('job')), 'released');
      const grant = await ann.take('job');
      await bob.assertBusy('job');
      assert.equal((await store.replace('job', 'a', 'b')).value, 'b');
      await ann.assertRenewable(grant);
      await ann.backend.register?.();
      if (list) {
        const keys: string[] = [];
        for await (const { key } of ann.backend.list?.({ prefix: '' }) ?? []) keys.push(key);
        assert.deepEqual(keys, ['job'], 'the list of locks');
      }
      if (forceRelease) assert.equal(await bob.backend.forceRelease?.('job'), true);
      else assert.equal(await ann.release(grant), 'released');
      assert.equal((await store.read('job')).value, 'b');
      if (forceRelease) assert.equal(await bob.backend.forceRelease?.('job'), false, 'a record is no lock');
      await stage.assertFree(bob, 'job');
      assert.deepEqual(await listOf(store), [{ name: 'job', value: 'b' }]);
    },
  },
  {
    id: '#60g',
    title: "records: the time is the server's, also for a process whose wall clock is a day fast or slow",
    needs: [records, ownClock],
    alone: true,
    async run(stage) {
      await stage.direct();
      for (const error of [DAY, -DAY]) {
        const clock = new WrongClock(stage.clock, error);
        const store = recordsOf(await stage.direct(clock));
        const name = `job ${error}`;
        const answers = await clock.during(async () => [
          await store.read(name),
          await store.replace(name, null, 'a'),
          await store.read(name),
          await store.replace(name, 'a', 'b'),
          await store.replace(name, 'a', 'c'),
          await store.replace(name, 'b', 'b'),
        ]);
        assert.deepEqual(
          answers.map(({ value }) => value),
          [null, 'a', 'a', 'b', 'b', 'b'],
        );
        const now = stage.clock.wallTime();
        for (const { serverTime } of answers) {
          const isRight = Math.abs(serverTime - now) < DAY / 2;
          assert.ok(isRight, `the server's time in ms since 1970 is about ${now}, and not ${serverTime}`);
        }
      }
    },
  },
  {
    id: '#60h',
    title:
      'records: without an answer there is LockUnavailableError, soon; a write that was sent then is done or not done',
    needs: [records, cutOff],
    async run(stage) {
      const { noAnswer, recovery } = stage.bounds;
      const [ann, bob] = await stage.directs(2);
      const [store, other] = [recordsOf(ann), recordsOf(bob)];
      let before: string | null = null;
      for (let round = 0; round < LOST_REPLIES; round += 1) {
        const next = `round ${round}`;
        const write = async () => (await store.replace('job', before, next)).value;
        const sent = write().catch((error: unknown) => error);
        await stage.cutOff(ann);
        const outcome = await stage.within(noAnswer, sent, 'a write that is cut off');
        assert.ok(
          outcome === next || outcome instanceof LockUnavailableError,
          `done or unknown, not ${String(outcome)}`,
        );
        for (const ask of [() => store.read('job'), () => store.replace('job', 'nobody', 'never')]) {
          const answer = stage.within(noAnswer, ask(), 'an answer');
          stage.secrets.overheard(await rejectsWith(LockUnavailableError, answer, 'cut off'));
        }
        const { value } = await other.read('job');
        assert.ok(value === before || value === next, `as it was or was to be, not ${String(value)}`);
        await stage.restore(ann);
        const isWritten = async () => {
          const again = await write().catch((error: unknown) => error);
          if (again instanceof LockUnavailableError) return false;
          assert.equal(again, next, 'a repeated write finds itself');
          return true;
        };
        await stage.eventually(recovery, isWritten, 'recovery');
        assert.equal((await other.read('job')).value, next);
        before = next;
      }
    },
  },
  {
    id: '#60i',
    title: 'records: what the server refuses is LockConfigError, and works when the server allows it',
    needs: [records, refusal],
    async run(stage) {
      const ann = await stage.direct();
      const store = recordsOf(ann);
      await stage.refuse(ann);
      const write = async () => (await store.replace('job', null, 'a')).value;
      const answer = stage.within(stage.bounds.noAnswer, write(), 'a refusal');
      const error = await rejectsWith(LockConfigError, answer, 'a write that the server refuses');
      assert.equal(error.refused, true, 'it says that the server refuses it, and not the options');
      stage.secrets.overheard(error);
      await stage.restore(ann);
      const isWritten = async () => (await write().catch(() => 'refused')) === 'a';
      await stage.eventually(stage.bounds.recovery, isWritten, 'recovery');
    },
  },
];

function recordsOf({ backend }: DirectCaller): RecordStore {
  return backend.records ?? assert.fail('the harness says that it has records, and it has none');
}

async function listOf(store: RecordStore): Promise<Entry[]> {
  const found: Entry[] = [];
  for await (const { name, value } of store.list()) found.push({ name, value });
  return sorted(found);
}

function sorted(found: readonly Entry[]): Entry[] {
  return [...found].sort((one, other) => (one.name < other.name ? -1 : 1));
}

interface Entry {
  readonly name: string;
  readonly value: string;
}
