import { setTimeout as sleep } from 'node:timers/promises';
import { DataSource, EntitySchema } from 'typeorm';
import { LockManager } from '../../lib/core/lock-manager.js';
import type { LockOptions } from '../../lib/api/lock-options.js';
import type { Lock } from '../../lib/api/lock.js';
import { LockConfigError, LockLostError } from '../../lib/api/errors.js';
import { MemoryLockProvider } from '../../lib/providers/memory/memory-lock-provider.js';
import {
  entityManagerOf,
  type GuardColumn,
  RetryOnConflict,
  saveFenced,
  VersionConflictError,
} from '../../lib/providers/typeorm/index.js';
import { SqlBackend } from './sql-backend.js';

class Owner {
  id!: number;
}
class Account {
  branch!: number;
  id!: number;
  balance!: number;
  note?: string | null;
  name!: { first: string; last?: string | null };
  tags?: string[];
  owner?: Owner | null;
  fence?: string | number | null;
  fixedFence?: string | null;
}
/** With a version, and with a fence as a bigint. */
class Document {
  id!: number;
  text!: string;
  version!: number;
  fence?: bigint | null;
  words?: number;
  changedAt?: Date;
  deletedAt?: Date | null;
}

const OwnerTable = new EntitySchema<Owner>({
  name: 'owner',
  target: Owner,
  columns: { id: { type: Number, primary: true } },
});
const AccountTable = new EntitySchema<Account>({
  name: 'account',
  target: Account,
  columns: {
    branch: { type: Number, primary: true },
    id: { type: Number, primary: true },
    balance: { type: Number, name: 'the balance' },
    note: { type: String, nullable: true },
    tags: { type: 'simple-json', nullable: true },
    fence: { type: 'bigint', nullable: true, name: 'the fence' },
    fixedFence: { type: 'bigint', nullable: true, update: false },
  },
  embeddeds: {
    name: {
      schema: new EntitySchema({
        name: 'name',
        columns: { first: { type: String }, last: { type: String, nullable: true } },
      }),
    },
  },
  relations: { owner: { type: 'many-to-one', target: () => Owner, nullable: true } },
});
const DocumentTable = new EntitySchema<Document>({
  name: 'document',
  target: Document,
  columns: {
    id: { type: Number, primary: true },
    text: { type: String },
    version: { type: Number, version: true },
    words: { type: Number, default: 0 },
    fence: {
      type: 'bigint',
      nullable: true,
      transformer: {
        to: (value?: bigint | null) => value?.toString() ?? null,
        from: (value?: string | number | null) => (value === null || value === undefined ? null : BigInt(value)),
      },
    },
    changedAt: { type: Date, updateDate: true },
    deletedAt: { type: Date, deleteDate: true, nullable: true },
  },
});
/** With a two-column key. */
class Team {
  tenant!: number;
  id!: number;
}
/** With every kind of relation to a single other row. */
class Ticket {
  id!: number;
  version!: number;
  text!: string;
  twice?: number;
  secret?: string;
  fixed?: string;
  tenant?: number | null;
  ownerId?: number | null;
  helperId?: number | null;
  owner?: Owner | number | null;
  helper!: Promise<Owner | null>;
  tester!: Promise<Owner | null>;
  team?: Team | null;
  room?: Team | null;
}
const column = (type: typeof Number | typeof String, options = {}) => ({ type, nullable: true, ...options });
const toOwner = (name: string, options = {}) => ({
  type: 'many-to-one' as const,
  target: () => Owner,
  joinColumn: { name },
  nullable: true,
  ...options,
});
const toTeam = (tenant: string, id: string) => ({
  type: 'many-to-one' as const,
  target: () => Team,
  joinColumn: [
    { name: tenant, referencedColumnName: 'tenant' },
    { name: id, referencedColumnName: 'id' },
  ],
  nullable: true,
});
const TeamTable = new EntitySchema<Team>({
  name: 'team',
  target: Team,
  columns: { tenant: { type: Number, primary: true }, id: { type: Number, primary: true } },
});
const TicketTable = new EntitySchema<Ticket>({
  name: 'ticket',
  target: Ticket,
  columns: {
    id: { type: Number, primary: true },
    version: { type: Number, version: true },
    text: { type: String },
    twice: column(Number, { virtualProperty: true, query: () => 'SELECT 2' }),
    secret: column(String, { select: false }),
    fixed: column(String, { update: false }),
    tenant: column(Number),
    ownerId: column(Number),
    helperId: column(Number),
  },
  relations: {
    owner: toOwner('ownerId'),
    helper: toOwner('helperId', { lazy: true }),
    tester: toOwner('testerId', { lazy: true }),
    team: toTeam('teamTenant', 'teamId'),
    room: toTeam('tenant', 'roomId'),
  },
});
const entities = [OwnerTable, AccountTable, DocumentTable, TeamTable, TicketTable];

describe.each(['sqljs', 'mariadb', 'postgres'] as const)('saveFenced on %s', (type) => {
  let source: DataSource;
  let server: SqlBackend | undefined;
  const processes: LockManager[] = [];

  beforeAll(async () => {
    if (type !== 'sqljs') server = await SqlBackend.start(type);
    source = server
      ? server.source({ entities, synchronize: true })
      : new DataSource({ type: 'sqljs', entities, synchronize: true });
    await source.initialize();
  }, 60_000);
  afterEach(async () => {
    await Promise.all(processes.splice(0).map((process) => process.stop()));
    await source.manager.deleteAll(Account);
    await source.manager.deleteAll(Document);
    await source.manager.deleteAll(Ticket);
    await source.manager.deleteAll(Team);
    await source.manager.deleteAll(Owner);
  });
  afterAll(async () => {
    await source.destroy();
    await server?.stop();
  });

  /** Returns a lock of its own process, so only the token shows which of two holders is the later one. */
  async function holder(key: string | string[] = 'account:1', options?: LockOptions): Promise<Lock> {
    const process = new LockManager({
      providers: { own: new MemoryLockProvider() },
      namespace: 'test',
      shutdownGrace: 0,
    });
    processes.push(process);
    await process.start();
    // Tokens of one process grow by its counter, those of several processes only by the clock.
    for (const now = Date.now(); Date.now() === now;) await sleep(1);
    return process.acquire(key, options);
  }

  const account = (values: Partial<Account> = {}) =>
    source.manager.create(Account, { branch: 1, id: 1, balance: 0, name: { first: 'Ann' }, ...values });
  const stored = (id = 1) =>
    source.manager.findOneOrFail(Account, { where: { branch: 1, id }, relations: { owner: true } });
  const save = (entity: Account, lock: Lock) => saveFenced(source.manager, entity, lock, { column: 'fence' });
  const saveUnlocked = (document: Document, text: string) =>
    saveFenced(source.manager, Object.assign(document, { text }), { column: 'version' });

  it('writes every defined column, and stores the token in the row', async () => {
    await source.manager.save([Object.assign(new Owner(), { id: 0 }), Object.assign(new Owner(), { id: 7 })]);
    await source.manager.insert(Account, account({ note: 'old', name: { first: 'Ann', last: 'Lee' } }));
    await source.manager.insert(Account, account({ id: 2 }));
    const lock = await holder();
    const read = await stored();
    Object.assign(read, { balance: 5, note: undefined, tags: ['a', 'b'], owner: { id: 7 } });
    read.name.last = null;
    expect(await save(read, lock)).toBe(read);
    const written = await stored();
    expect(written).toMatchObject({ balance: 5, note: 'old', tags: ['a', 'b'], owner: { id: 7 } });
    expect(written.name).toEqual({ first: 'Ann', last: null });
    expect(BigInt(written.fence!)).toBe(lock.fencingToken);
    // The entity is as a new read of the row would find it.
    expect(read.fence).toBe(written.fence);
    await save(Object.assign(read, { owner: { id: 0 } }), lock);
    expect((await stored()).owner).toEqual({ id: 0 });
    await save(Object.assign(read, { owner: null }), lock);
    expect((await stored()).owner).toBeNull();
    expect(await stored(2)).toMatchObject({ balance: 0, fence: null });
  });

  it('a holder that was overtaken writes nothing, and its lock is lost', async () => {
    await source.manager.insert(Account, account());
    const [paused, later] = [await holder(), await holder()];
    const [stale, fresh] = [await stored(), await stored()];
    await save(Object.assign(stale, { balance: 1 }), paused);
    await save(Object.assign(fresh, { balance: 2 }), later);
    await save(Object.assign(fresh, { balance: 3 }), later);
    const write = save(Object.assign(stale, { balance: 4 }), paused);
    await expect(write).rejects.toThrow(LockLostError);
    await expect(write).rejects.toMatchObject({ key: 'account:1', provider: 'own', reason: 'expired' });
    expect((await stored()).balance).toBe(3);
    expect(BigInt((await stored()).fence!)).toBe(later.fencingToken);
  });

  it("compares tokens that a double can't tell apart", async () => {
    const lock = await holder();
    const at = (fencingToken: bigint) =>
      ({ key: lock.key, provider: lock.provider, assertHeld() {}, fencingToken }) as Partial<Lock> as Lock;
    await source.manager.insert(Account, account());
    const own = account();
    // Beyond 2^53, where doubles are even.
    await save(own, at(9_007_199_254_740_993n));
    await expect(save(account(), at(9_007_199_254_740_992n))).rejects.toThrow(LockLostError);
    await save(account({ balance: 8 }), at(9_007_199_254_740_993n));
    await expect(save(account(), at(999n))).rejects.toThrow(LockLostError);
    expect((await stored()).balance).toBe(8);
  });

  it('a missing row is a conflict, not a lost lock', async () => {
    const write = save(account(), await holder());
    await expect(write).rejects.toThrow(VersionConflictError);
    await expect(write).rejects.toMatchObject({ code: 'LOCK_VERSION_CONFLICT', key: 'account:1', provider: 'own' });
  });

  it('only one of two writers of the same version succeeds', async () => {
    await source.manager.insert(Document, { id: 1, text: '' });
    const locks = [await holder(), await holder()];
    const read = await Promise.all(locks.map(() => source.manager.findOneByOrFail(Document, { id: 1 })));
    const outcomes = await Promise.allSettled(
      read.map((document, index) =>
        saveFenced(source.manager, Object.assign(document, { text: String(index) }), locks[index]!, {
          column: 'version',
        }),
      ),
    );
    const [loser, ...others] = outcomes.filter((outcome) => outcome.status === 'rejected');
    expect(others).toEqual([]);
    expect(loser!.reason).toBeInstanceOf(VersionConflictError);
    const winner = outcomes.findIndex((outcome) => outcome.status === 'fulfilled');
    const written = await source.manager.findOneByOrFail(Document, { id: 1 });
    expect(written).toMatchObject({ text: String(winner), version: 2, fence: null });
    expect(read[winner]!.version).toBe(2);
    // The winner can keep using its entity.
    await saveFenced(source.manager, read[winner]!, locks[winner]!, { column: 'version' });
    expect(read[winner]!.version).toBe(3);
  });

  it('a version alongside a fence also stops a caller that writes without a lock', async () => {
    await source.manager.insert(Document, { id: 1, text: '' });
    const [paused, later] = [await holder(), await holder()];
    const [stale, fresh] = [await documentOf(1), await documentOf(1)];
    const fenced = (document: Document, lock: Lock) => saveFenced(source.manager, document, lock, { column: 'fence' });
    await source.manager.save(Document, { id: 1, text: 'unlocked' });
    await expect(fenced(fresh, later)).rejects.toThrow(VersionConflictError);
    const again = await documentOf(1);
    await fenced(again, later);
    expect(again.fence).toBe(later.fencingToken);
    await expect(fenced(stale, paused)).rejects.toThrow(LockLostError);
    await source.manager.softDelete(Document, { id: 1 });
    const gone = await source.manager.findOneOrFail(Document, { where: { id: 1 }, withDeleted: true });
    await expect(fenced(gone, paused)).rejects.toThrow(LockLostError);
  });

  it('@RetryOnConflict repeats the work of the writers that lost', async () => {
    await source.manager.insert(Document, { id: 1, text: '' });
    const lock = await holder();
    let runs = 0;
    class Documents {
      @RetryOnConflict({ attempts: 50 })
      async count(): Promise<void> {
        runs += 1;
        const document = await documentOf(1);
        document.words = (document.words ?? 0) + 1;
        await saveFenced(source.manager, document, lock, { column: 'version' });
      }
    }
    await Promise.all(Array.from({ length: 8 }, () => new Documents().count()));
    expect((await documentOf(1)).words).toBe(8);
    expect(runs).toBeGreaterThan(8);
  });

  it('without a lock, the version is enough and is incremented', async () => {
    await source.manager.insert(Document, { id: 1, text: '', fence: 7n });
    const read = await documentOf(1);
    expect(await saveUnlocked(read, 'first')).toBe(read);
    await saveUnlocked(read, 'second');
    expect(read.version).toBe(3);
    expect(await documentOf(1)).toMatchObject({ text: 'second', version: 3, fence: 7n });
  });

  it('without a lock, an entity read before another write is a conflict, and lowers no fence', async () => {
    await source.manager.insert(Document, { id: 1, text: '' });
    const lock = await holder();
    const [stale, fresh] = [await documentOf(1), await documentOf(1)];
    await saveFenced(source.manager, Object.assign(fresh, { text: 'locked' }), lock, { column: 'fence' });
    const write = saveUnlocked(stale, 'late');
    await expect(write).rejects.toThrow(VersionConflictError);
    await expect(write).rejects.toMatchObject({
      message:
        'Document has been written or deleted by another writer since it was read: read it again and redo the work, as @RetryOnConflict does.',
      key: null,
      provider: null,
    });
    expect(await documentOf(1)).toMatchObject({ text: 'locked', version: 2, fence: lock.fencingToken });
    await saveUnlocked(await documentOf(1), 'unlocked');
    expect(await documentOf(1)).toMatchObject({ text: 'unlocked', version: 3, fence: lock.fencingToken });
  });

  it('without a lock, a deleted row is a conflict', async () => {
    await source.manager.insert(Document, { id: 1, text: '' });
    const read = await documentOf(1);
    await source.manager.delete(Document, { id: 1 });
    await expect(saveUnlocked(read, 'late')).rejects.toThrow(VersionConflictError);
    expect(await source.manager.countBy(Document, { id: 1 })).toBe(0);
  });

  it('without a lock, @RetryOnConflict lets both of two concurrent increments succeed', async () => {
    await source.manager.insert(Document, { id: 1, text: '' });
    const sameVersion = [await documentOf(1), await documentOf(1)];
    let runs = 0;
    class Documents {
      @RetryOnConflict()
      async count(): Promise<void> {
        runs += 1;
        const document = sameVersion.pop() ?? (await documentOf(1));
        document.words = (document.words ?? 0) + 1;
        await saveFenced(source.manager, document, { column: 'version' });
      }
    }
    await Promise.all([new Documents().count(), new Documents().count()]);
    expect(await documentOf(1)).toMatchObject({ words: 2, version: 3 });
    expect(runs).toBe(3);
  });

  it('without a lock, rejects every column but the version, and an entity without it', async () => {
    await source.manager.insert(Document, { id: 1, text: '' });
    const misuse = async (write: Promise<unknown>, message: string) => {
      await expect(write).rejects.toThrow(LockConfigError);
      await expect(write).rejects.toMatchObject({ message, key: null, provider: null });
    };
    const isNoVersion =
      '"fence" is not the @VersionColumn, and a fence column needs a lock with a fencing token: pass such a lock, or name the @VersionColumn.';
    await misuse(
      saveFenced(source.manager, await documentOf(1), { column: 'fence' }),
      `saveFenced() of Document: ${isNoVersion}`,
    );
    await misuse(saveFenced(source.manager, account(), { column: 'fence' }), `saveFenced() of Account: ${isNoVersion}`);
    await misuse(
      saveUnlocked(Object.assign(new Document(), { id: 1 }), ''),
      'saveFenced() of Document: the entity has no "version": load the entity from its table first.',
    );
    expect(await documentOf(1)).toMatchObject({ text: '', version: 1 });
  });

  it('rejects a guard column or lock that guards nothing', async () => {
    await source.manager.insert(Document, { id: 1, text: '' });
    const lock = await holder();
    const misuse = async (entity: Account | Document, by: Lock, column: string, why: RegExp) => {
      const write = saveFenced(source.manager, entity, by, { column: column as GuardColumn<Account | Document> });
      await expect(write).rejects.toThrow(LockConfigError);
      await expect(write).rejects.toThrow(why);
    };
    await misuse(account(), lock, 'balance', /"balance" must be the @VersionColumn or a bigint column/);
    await misuse(account(), lock, 'nothing" = 1 --', /must be the @VersionColumn or a bigint column/);
    await misuse(account(), lock, 'fixedFence', /"fixedFence" has "update: false", so .* remove that option/);
    await misuse(account(), await holder(['a', 'b']), 'fence', /several keys/);
    await misuse(account(), await holder('report', { limit: 2 }), 'fence', /the lock is limited/);
    await misuse(Object.assign(new Account(), { balance: 1 }), lock, 'fence', /has no id/);
    await misuse(Object.assign(new Document(), { id: 1 }), lock, 'version', /has no "version": load/);
    await misuse(Object.assign({}, await documentOf(1)), lock, 'version', /instance of its class/);
    // A version needs no token.
    const several = await holder(['a', 'b']);
    await saveFenced(source.manager, await documentOf(1), several, { column: 'version' });
  });

  it('sends nothing to the database if the lock is known to be lost', async () => {
    await source.manager.insert(Account, account());
    const lock = await holder();
    await lock.release();
    await expect(save(account({ balance: 1 }), lock)).rejects.toThrow(LockLostError);
    expect((await stored()).balance).toBe(0);
  });

  describe('writes what save() writes', () => {
    const ownerOf = (id: number) => Object.assign(new Owner(), { id });
    const teamOf = (tenant: number, id: number) => Object.assign(new Team(), { tenant, id });
    const rowOf = async (id: number): Promise<object> => {
      const escape = (name: string) => source.createQueryBuilder().escape(name);
      const [row] = await source.query<object[]>(`SELECT * FROM ${escape('ticket')} WHERE ${escape('id')} = ${id}`);
      return { ...row, id: undefined };
    };

    it.each<[string, (ticket: Ticket) => unknown]>([
      ['nothing of a lazy relation that is not loaded', (ticket) => (ticket.text = 'b')],
      ['a lazy relation that was loaded', (ticket) => Promise.all([ticket.tester, ticket.helper])],
      ['null in a lazy relation', (ticket) => (ticket.tester = Promise.resolve(null))],
      ['null instead of a promise', (ticket) => Object.assign(ticket, { tester: null })],
      [
        'null in a lazy relation that was loaded',
        async (ticket) => {
          await ticket.tester;
          ticket.tester = Promise.resolve(null);
        },
      ],
      ['null in a lazy relation whose key is also a property', (ticket) => (ticket.helper = Promise.resolve(null))],
      ['an entity in a lazy relation', (ticket) => (ticket.tester = Promise.resolve(ownerOf(2)))],
      [
        'an entity in a lazy relation whose key is also a property',
        (ticket) => (ticket.helper = Promise.resolve(ownerOf(2))),
      ],
      ['the key property of a lazy relation', (ticket) => (ticket.helperId = 2)],
      ['null in a relation whose key is also a property', (ticket) => (ticket.owner = null)],
      ['null in such a relation and in its key', (ticket) => Object.assign(ticket, { owner: null, ownerId: null })],
      ['null in such a relation and another key', (ticket) => Object.assign(ticket, { owner: null, ownerId: 2 })],
      ['an entity in a relation whose key is also a property', (ticket) => (ticket.owner = ownerOf(2))],
      ['the key property of a relation', (ticket) => (ticket.ownerId = 2)],
      ['a relation with a two-column key', (ticket) => (ticket.team = teamOf(1, 8))],
      ['null in a relation with a two-column key', (ticket) => (ticket.team = null)],
      ['a relation with a key of which one column is also a property', (ticket) => (ticket.room = teamOf(1, 8))],
      ['a column that is not selected', (ticket) => (ticket.secret = 'b')],
      ['nothing of a column that is never updated', (ticket) => Object.assign(ticket, { text: 'b', fixed: 'b' })],
      ['nothing of a virtual column', (ticket) => Object.assign(ticket, { text: 'b', twice: 5 })],
    ])('%s', async (_, change) => {
      await source.manager.save([ownerOf(0), ownerOf(1), ownerOf(2), teamOf(1, 7), teamOf(1, 8)]);
      const written = { text: 'a', secret: 'a', fixed: 'a', ownerId: 1, helperId: 1, tenant: 1 };
      for (const id of [1, 2]) {
        await source.manager.insert(Ticket, { id, ...written, team: teamOf(1, 7), room: teamOf(1, 7) });
        await source
          .createQueryBuilder()
          .update(Ticket)
          .set({ tester: () => '1' })
          .where({ id })
          .execute();
      }
      const saved = await source.manager.findOneByOrFail(Ticket, { id: 1 });
      const fenced = await source.manager.findOneByOrFail(Ticket, { id: 2 });
      // The change may still be in a promise.
      await Promise.all([change(saved), change(fenced)].filter((changed) => changed instanceof Promise));
      await source.manager.save(saved);
      await saveFenced(source.manager, fenced, { column: 'version' });
      expect({ ...(await rowOf(2)), version: 0 }).toEqual({ ...(await rowOf(1)), version: 0 });
    });
  });

  it('writes a key that was set when its relation was loaded as null', async () => {
    await source.manager.save(Object.assign(new Owner(), { id: 2 }));
    await source.manager.insert(Ticket, { id: 1, text: '' });
    const read = await source.manager.findOneOrFail(Ticket, { where: { id: 1 }, relations: { owner: true } });
    expect(read.owner).toBeNull();
    await saveFenced(source.manager, Object.assign(read, { ownerId: 2 }), { column: 'version' });
    expect(await source.manager.findOneByOrFail(Ticket, { id: 1 })).toMatchObject({ ownerId: 2, version: 2 });
  });

  it('does not write back a key whose relation was set to null earlier', async () => {
    await source.manager.save(Object.assign(new Owner(), { id: 1 }));
    await source.manager.insert(Ticket, { id: 1, text: '', ownerId: 1 });
    const read = await source.manager.findOneByOrFail(Ticket, { id: 1 });
    await saveFenced(source.manager, Object.assign(read, { owner: null }), { column: 'version' });
    await saveFenced(source.manager, Object.assign(read, { text: 'later' }), { column: 'version' });
    expect(await source.manager.findOneByOrFail(Ticket, { id: 1 })).toMatchObject({ ownerId: null, text: 'later' });
  });

  it('waits for the promise in a lazy relation, and writes nothing if it rejects', async () => {
    await source.manager.save(Object.assign(new Owner(), { id: 1 }));
    await source.manager.insert(Ticket, { id: 1, text: '', helperId: 1 });
    const read = await source.manager.findOneByOrFail(Ticket, { id: 1 });
    read.tester = source.manager.findOneByOrFail(Owner, { id: 1 });
    await saveFenced(source.manager, read, { column: 'version' });
    expect(await source.manager.findOneOrFail(Ticket, { where: { id: 1, tester: { id: 1 } } })).toMatchObject({
      version: 2,
    });
    const fails = Promise.reject(new Error('not found'));
    Object.assign(read, { __promise_tester__: fails });
    await expect(saveFenced(source.manager, read, { column: 'version' })).rejects.toThrow('not found');
    expect((await source.manager.findOneByOrFail(Ticket, { id: 1 })).version).toBe(2);
  });

  it('rejects a relation to an entity that is not in its table', async () => {
    await source.manager.insert(Ticket, { id: 1, text: '' });
    const read = await source.manager.findOneByOrFail(Ticket, { id: 1 });
    const write = saveFenced(source.manager, Object.assign(read, { owner: new Owner() }), { column: 'version' });
    await expect(write).rejects.toThrow(LockConfigError);
    await expect(write).rejects.toThrow('its "owner" has no "id": insert that entity first');
    expect((await source.manager.findOneByOrFail(Ticket, { id: 1 })).version).toBe(1);
  });

  if (type !== 'sqljs') {
    it('writes in the transaction of a row lock, and is undone with it', async () => {
      await source.manager.insert(Account, account());
      const provider = await server!.provider({ dataSource: source, fencing: true });
      const locks = new LockManager({ providers: { sql: provider }, namespace: 'test' });
      processes.push(locks);
      await locks.start();
      const deposit = (fails: boolean) =>
        locks.withLock('account:1', async (lock) => {
          const manager = entityManagerOf(lock);
          const read = await manager.findOneByOrFail(Account, { branch: 1, id: 1 });
          read.balance += 1;
          await saveFenced(manager, read, lock, { column: 'fence' });
          if (fails) throw new Error('of the task');
        });
      await expect(deposit(true)).rejects.toThrow('of the task');
      expect(await stored()).toMatchObject({ balance: 0, fence: null });
      await deposit(false);
      expect((await stored()).balance).toBe(1);
    });
  }

  function documentOf(id: number): Promise<Document> {
    return source.manager.findOneByOrFail(Document, { id });
  }
});
