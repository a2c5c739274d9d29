// Public API. Written by "npm run api"; do not edit.

export type GuardColumn<E> = {
    [K in keyof E & string]-?: E[K] extends string | number | bigint | null | undefined ? K : never;
}[keyof E & string];

export declare class LockRecords1700000000001 implements MigrationInterface {
    #private;
    name: string;
    table: string;
    up(queryRunner: QueryRunner): Promise<void>;
    down(queryRunner: QueryRunner): Promise<void>;
}

export declare class LockTables1700000000000 implements MigrationInterface {
    name: string;
    table: string;
    up(queryRunner: QueryRunner): Promise<void>;
    down(queryRunner: QueryRunner): Promise<void>;
}

export interface PurgeOptions {
    readonly unusedFor: Duration;
}

export type RetryDecorator = <M extends (...args: never[]) => PromiseLike<unknown>>(target: object, method: string | symbol, descriptor: TypedPropertyDescriptor<M>) => void;

export declare function RetryOnConflict(options?: RetryOnConflictOptions): RetryDecorator;

export interface RetryOnConflictOptions {
    readonly attempts?: number;
    readonly delay?: Duration;
    readonly maxDelay?: Duration;
}

export declare class RowLockBackend extends SqlBackend<RowDatabase> {
    private readonly settings;
    readonly capabilities: LockCapabilities;
    readonly casStore: CasStore;
    constructor(context: BackendContext, settings: RowLockSettings);
    purge(options: PurgeOptions): Promise<number>;
    protected open(): Promise<RowDatabase>;
    protected attempt(database: RowDatabase, holder: Holder): RowAttempt;
}

export interface SaveFencedOptions<E> {
    readonly column: GuardColumn<E>;
}

export declare class TypeOrmAdvisoryLockProvider implements LockProvider {
    #private;
    constructor(options: TypeOrmAdvisoryLockProviderOptions);
    createBackend(context: BackendContext): AdvisoryLockBackend;
}

export type TypeOrmAdvisoryLockProviderOptions = TypeOrmSessionLockOptions;

export interface TypeOrmLockOptions {
    readonly dataSource: DataSource;
    readonly table?: string | undefined;
    readonly synchronize?: boolean | undefined;
    readonly statementTimeout?: ConfiguredDuration | undefined;
    readonly allowUnsafeTopology?: boolean | undefined;
}

export declare class TypeOrmRowLockProvider implements LockProvider {
    #private;
    constructor(options: TypeOrmRowLockProviderOptions);
    createBackend(context: BackendContext): RowLockBackend;
}

export interface TypeOrmRowLockProviderOptions extends TypeOrmSessionLockOptions {
    readonly nestedConnections?: number | undefined;
    readonly commitTimeout?: ConfiguredDuration | undefined;
}

export interface TypeOrmSessionLockOptions extends TypeOrmLockOptions {
    readonly sessionGuard?: ConfiguredDuration | undefined;
    readonly maxConnections?: number | undefined;
    readonly fencing?: boolean | undefined;
}

export declare class TypeOrmVersionLockProvider implements LockProvider {
    #private;
    constructor(options: TypeOrmVersionLockProviderOptions);
    createBackend(context: BackendContext): VersionLockBackend;
}

export interface TypeOrmVersionLockProviderOptions extends TypeOrmLockOptions {
    readonly maxConnections?: number | undefined;
}

export declare class VersionConflictError extends LockError {
    readonly code = "LOCK_VERSION_CONFLICT";
}

export declare class VersionLockBackend extends SqlBackend<LeaseDatabase> {
    #private;
    private readonly settings;
    readonly capabilities: LockCapabilities;
    readonly casStore?: CasStore;
    constructor(context: BackendContext, settings: DatabaseSettings);
    inspect(key: string): Promise<LockInfo | null>;
    forceRelease(key: string): Promise<boolean>;
    purge(options: PurgeOptions): Promise<number>;
    protected open(): Promise<LeaseDatabase>;
    protected attempt(database: LeaseDatabase, { key, holder }: Holder): VersionAttempt;
}

export declare function entityManagerOf(lock: Lock): EntityManager;

export declare function saveFenced<E extends ObjectLiteral>(manager: EntityManager, entity: E, lock: Lock, options: SaveFencedOptions<E>): Promise<E>;
export declare function saveFenced<E extends ObjectLiteral>(manager: EntityManager, entity: E, options: SaveFencedOptions<E>): Promise<E>;
