import type {
  DataSource,
  EntityManager,
  EntityMetadata,
  EntityTarget,
  ObjectLiteral,
  Repository,
  UpdateQueryBuilder,
} from 'typeorm';
import { LockConfigError, LockLostError, VersionConflictError } from '../../../api/errors.js';
import type { Lock } from '../../../api/lock.js';
import { propertyOf } from '../../sql/connection/answer.js';

type ColumnMetadata = EntityMetadata['columns'][number];

/** The properties of an entity that can store a fencing token or a version. */
export type GuardColumn<E> = {
  [K in keyof E & string]-?: E[K] extends string | number | bigint | null | undefined ? K : never;
}[keyof E & string];

export interface SaveFencedOptions<E> {
  /**
   * The property that guards the write: the `@VersionColumn`, or a `bigint` column that keeps the largest fencing
   * token.
   */
  readonly column: GuardColumn<E>;
}

/**
 * Writes an entity that already exists in its table with a single guarded UPDATE, so a holder paused for longer than
 * its lease can't overwrite what later holders wrote.
 *
 * - A fence column refuses a fencing token smaller than its current one, and stores a larger one. Equal tokens pass,
 *   because one hold may write many times; `null` counts as smaller than any token. If the entity also has a
 *   `@VersionColumn`, both checks must pass.
 * - A `@VersionColumn` refuses the write if anyone has written the row since the entity was read, with or without a
 *   lock. In this case, the lock doesn't need a token.
 *
 * All columns whose property is not `undefined` are written, including embedded ones and to-one relation keys. A lazy
 * relation set to a promise is awaited. Nothing cascades, and no other table is written; listeners and subscribers run
 * only as for any query builder UPDATE. The entity gets its new version and token;
 * database-computed values (`@UpdateDateColumn`) are not read back.
 *
 * The guard fails if anything else writes the fence column, including `manager.save()` with an entity read earlier, or
 * if mysql2's `-FOUND_ROWS` flag is set, which makes a write that changes nothing count as refused.
 *
 * @param manager the application's own manager, a transaction's, or the one from {@link entityManagerOf}
 * @returns the entity
 * @throws LockLostError when the lock is lost, or the row has a larger token.
 * @throws VersionConflictError if the row has been written since then, or does not exist. Nothing was written.
 * @throws LockConfigError for a column that is not a guard, a lock without a token, or an entity without its id or
 * version.
 */
export function saveFenced<E extends ObjectLiteral>(
  manager: EntityManager,
  entity: E,
  lock: Lock,
  options: SaveFencedOptions<E>,
): Promise<E>;
/**
 * The same write without a lock, guarded by the `@VersionColumn` alone, which refuses the write if anyone has written
 * the row since the entity was read. A fence column keeps its token, because it is written back as read. So read the
 * whole entity, and reread it after a rollback.
 *
 * @returns the entity
 * @throws VersionConflictError if the row has been written since then, or does not exist. Nothing was written; `key`
 * and `provider` are `null`.
 * @throws LockConfigError for any other column, or an entity without its id or version.
 */
export function saveFenced<E extends ObjectLiteral>(
  manager: EntityManager,
  entity: E,
  options: SaveFencedOptions<E>,
): Promise<E>;
export async function saveFenced<E extends ObjectLiteral>(
  manager: EntityManager,
  entity: E,
  ...guard: [Lock, SaveFencedOptions<E>] | [SaveFencedOptions<E>]
): Promise<E> {
  const [lock, { column }] = guard.length === 2 ? guard : [undefined, ...guard];
  const row = new GuardedRow(manager, entity, lock, column);
  await row.relationsLoaded();
  lock?.assertHeld();
  const { affected } = await row.update().execute();
  if (affected !== 1) throw await row.refusal();
  await row.refresh();
  return entity;
}

/** An entity and its row's guard. */
class GuardedRow<E extends ObjectLiteral> {
  readonly #repository: Repository<E>;
  readonly #id: ObjectLiteral;
  readonly #fence: { readonly column: ColumnMetadata; readonly token: bigint } | undefined;
  readonly #version: { readonly column: ColumnMetadata; readonly value: number | string } | undefined;
  /** Key columns whose relation is null but whose own property is not. */
  readonly #disputed: ColumnMetadata[] = [];

  constructor(
    manager: EntityManager,
    private readonly entity: E,
    private readonly lock: Lock | undefined,
    private readonly property: string,
  ) {
    const target = entity.constructor as EntityTarget<E>;
    if ((target as unknown) === Object) {
      throw this.#misuse('the entity must be an instance of its class, as returned by a repository');
    }
    this.#repository = manager.getRepository(target);
    const { metadata } = this.#repository;
    const id = metadata.getEntityIdMap(entity);
    if (!id) throw this.#misuse('the entity has no id: insert it first');
    this.#id = id;
    const column = metadata.findColumnWithPropertyPath(property);
    this.#fence = column && column === metadata.versionColumn ? undefined : this.#fenceOf(column);
    this.#version = this.#versionOf(metadata.versionColumn);
  }

  /** A lazy relation set to a promise gets its value when the promise is fulfilled. */
  async relationsLoaded(): Promise<void> {
    for (const { isLazy, propertyName } of this.#repository.metadata.relationsWithJoinColumns) {
      // Reading the property itself would load the relation.
      if (isLazy) await propertyOf(this.entity, `__promise_${propertyName}__`);
    }
  }

  update(): UpdateQueryBuilder<E> {
    const query = this.#repository.createQueryBuilder().update();
    const values = this.#values();
    for (const [index, column] of this.#disputed.entries()) {
      const value: unknown = column.getEntityValue(this.entity);
      const parameter = `disputed${index}`;
      query.setParameter(parameter, this.#driver.preparePersistentValue(value, column));
      // As in save(), a value that differs from the row counts as changed. If the relation differs too, the property is
      // written.
      assign(values, column.propertyPath, () => `NULLIF(:${parameter}, ${query.escape(column.databaseName)})`);
    }
    query.whereInIds([this.#id]);
    if (this.#fence) {
      const { column, token } = this.#fence;
      const fence = query.escape(column.databaseName);
      // Sent as text, because drivers never round text.
      query.andWhere(`(${fence} IS NULL OR ${fence} <= :fencingToken)`, { fencingToken: String(token) });
      assign(values, column.propertyPath, () => ':fencingToken');
    }
    if (this.#version) {
      const { column, value } = this.#version;
      query.andWhere(`${query.escape(column.databaseName)} = :readVersion`, { readVersion: value });
    }
    // TypeORM itself increments the version and sets the update date.
    return query.set(values as Parameters<typeof query.set>[0]);
  }

  /**
   * Finds out why no row was written. The check runs afterward, so if there are two reasons, it may find the later one.
   */
  async refusal(): Promise<LockLostError | VersionConflictError> {
    const name = this.#repository.metadata.name;
    if (this.#fence && this.lock) {
      const seen = (await this.#stored(this.#fence.column)) as string | number | null | undefined;
      const isStale = BigInt(seen ?? 0) > this.#fence.token;
      if (isStale || (seen !== undefined && !this.#version)) {
        const { key, provider } = this.lock;
        return new LockLostError(
          `Lock "${key}" of provider "${provider}" was lost before ${name} was saved: a later holder has written the row, so this write was rejected.`,
          { key, provider, reason: 'expired' },
        );
      }
    }
    return new VersionConflictError(
      `${name} has been written or deleted by another writer since it was read${this.#underLock}: read it again and redo the work, as @RetryOnConflict does.`,
      this.lock,
    );
  }

  /** Copies any other written values to the entity. Otherwise, the next save would undo them. */
  async refresh(): Promise<void> {
    if (this.#fence) {
      const { column, token } = this.#fence;
      const driver = this.#driver;
      const raw = NUMBERS.includes(driver.options.type) ? Number(token) : String(token);
      column.setEntityValue(this.entity, driver.prepareHydratedValue(raw, column));
    }
    if (this.#version) {
      const { column, value } = this.#version;
      column.setEntityValue(this.entity, typeof value === 'number' ? value + 1 : String(BigInt(value) + 1n));
    }
    for (const column of this.#disputed) {
      if ((await this.#stored(column)) === null) column.setEntityValue(this.entity, null);
    }
  }

  /** The value in the row; undefined if there is no row. */
  async #stored(column: ColumnMetadata): Promise<unknown> {
    const query = this.#repository.createQueryBuilder('entity').withDeleted().whereInIds([this.#id]);
    return propertyOf(await query.select(`entity.${column.propertyPath}`, 'value').getRawOne(), 'value');
  }

  get #driver(): DataSource['driver'] {
    // eslint-disable-next-line @typescript-eslint/no-deprecated -- its new name is unknown to TypeORM 0.3
    return this.#repository.manager.connection.driver;
  }

  get #underLock(): string {
    return this.lock ? ` under lock "${this.lock.key}"` : '';
  }

  #fenceOf(column: ColumnMetadata | undefined): { column: ColumnMetadata; token: bigint } {
    if (!this.lock) {
      throw this.#misuse(
        `"${this.property}" is not the @VersionColumn, and a fence column needs a lock with a fencing token: pass such a lock, or name the @VersionColumn`,
      );
    }
    // 32 bits are too few for a token, and text doesn't sort like numbers.
    if (!column || !/bigint|int8|unsigned big int/.test(this.#driver.normalizeType(column))) {
      throw this.#misuse(`"${this.property}" must be the @VersionColumn or a bigint column`);
    }
    if (!column.isUpdate) {
      throw this.#misuse(
        `"${this.property}" has "update: false", so TypeORM would never store the token: remove that option`,
      );
    }
    const { fencingToken: token, keys, mode } = this.lock;
    // A resource that refuses tokens smaller than the largest it has seen would refuse concurrent holders.
    if (mode === 'limited') {
      throw this.#misuse('the lock is limited, so it can have several holders: guard with a @VersionColumn');
    }
    if (token !== null) return { column, token };
    throw this.#misuse(
      keys.length > 1
        ? 'a lock on several keys has no single fencing token: lock one key, or guard with a @VersionColumn'
        : 'the lock has no fencing token: enable "fencing" if the provider has this option, or guard with a @VersionColumn',
    );
  }

  #versionOf(column: ColumnMetadata | undefined): { column: ColumnMetadata; value: number | string } | undefined {
    if (!column) return undefined;
    const value = column.getEntityValue(this.entity) as number | string | null | undefined;
    if (value !== undefined && value !== null) return { column, value };
    if (this.#fence) return undefined;
    throw this.#misuse(`the entity has no "${this.property}": load the entity from its table first`);
  }

  #values(): ObjectLiteral {
    const { metadata } = this.#repository;
    const { versionColumn, updateDateColumn, columns, relationsWithJoinColumns } = metadata;
    const values = {};
    // This includes a fence column that does not guard this write. The version proves that nobody has written the row
    // since the read, so the token read is still current.
    for (const column of columns) {
      if (column === versionColumn || column === updateDateColumn) continue;
      if (column.isPrimary || column.isDiscriminator || column.asExpression) continue;
      const value = this.#valueOf(column);
      if (value !== undefined) assign(values, column.propertyPath, value);
    }
    // For a multi-column key, the query builder takes all columns from the relation, even those with their own
    // properties.
    for (const relation of relationsWithJoinColumns) {
      if (relation.isLazy) continue;
      const [written, related] = [values, this.entity].map((from): unknown => relation.getEntityValue(from));
      if (isEntity(written) && isEntity(related)) Object.assign(written, relation.getRelationIdMap(related));
    }
    return values;
  }

  /** The value that save() compares with the row's; undefined to skip the column. */
  #valueOf(column: ColumnMetadata): unknown {
    const { relationMetadata: relation, referencedColumn } = column;
    const own: unknown = column.isVirtual ? undefined : column.getEntityValue(this.entity);
    if (!relation?.persistenceEnabled || !referencedColumn) return own;
    const related: unknown = relation.getEntityValue(this.entity);
    if (related === undefined) return own;
    if (related === null && own !== undefined && own !== null) {
      this.#disputed.push(column);
      return undefined;
    }
    if (!isEntity(related)) return related;
    if (relation.isTreeParent && this.#repository.metadata.treeType !== 'adjacency-list') {
      throw this.#misuse(
        `"${relation.propertyName}" is its tree parent, and only save() writes tree paths: load the entity without its parent`,
      );
    }
    const key: unknown = referencedColumn.getEntityValue(related);
    if (key !== undefined) return key;
    throw this.#misuse(
      `its "${relation.propertyName}" has no "${referencedColumn.propertyName}": insert that entity first`,
    );
  }

  #misuse(what: string): LockConfigError {
    return new LockConfigError(
      `saveFenced() of ${this.entity.constructor.name}${this.#underLock}: ${what}.`,
      this.lock,
    );
  }
}

// These drivers return a bigint as a number; all others return it as text.
const NUMBERS: readonly string[] = ['sqljs', 'better-sqlite3', 'sqlite'];

function isEntity(value: unknown): value is ObjectLiteral {
  return typeof value === 'object' && value !== null && !(value instanceof Date) && !(value instanceof Uint8Array);
}

/** Sets `{ name: { first: value } }` for the path `name.first`. */
function assign(values: ObjectLiteral, path: string, value: unknown): void {
  const parents = path.split('.');
  const last = parents.pop() ?? path;
  let place = values;
  for (const name of parents) place = (place[name] ??= {}) as ObjectLiteral;
  place[last] = value;
}
