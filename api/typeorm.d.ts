// Public API. Written by "npm run api"; do not edit.

export declare class LockTables1700000000000 implements MigrationInterface {
    #private;
    name: string;
    table: string;
    up(queryRunner: QueryRunner): Promise<void>;
    down(queryRunner: QueryRunner): Promise<void>;
}

export interface PurgeOptions {
    readonly unusedFor: Duration;
}

export declare class TypeOrmRowLockProvider implements LockProvider {
    #private;
    readonly capabilities: LockCapabilities;
    constructor(options: TypeOrmRowLockProviderOptions);
    start(context: ProviderContext): Promise<void>;
    acquire(request: AcquireRequest): Promise<Grant | 'busy'>;
    renew(renewals: readonly Renewal[]): Promise<readonly RenewOutcome[]>;
    release(holder: Holder, manner: ReleaseManner): Promise<ReleaseOutcome>;
    check(): Promise<readonly Finding[]>;
    purge(options: PurgeOptions): Promise<number>;
    stop(): Promise<void>;
}

export interface TypeOrmRowLockProviderOptions {
    readonly dataSource: DataSource;
    readonly table?: string | undefined;
    readonly synchronize?: boolean | undefined;
    readonly sessionGuard?: Duration | undefined;
    readonly maxConnections?: number | undefined;
    readonly fencing?: boolean | undefined;
    readonly statementTimeout?: Duration | undefined;
}

export declare class TypeOrmVersionLockProvider implements LockProvider {
    #private;
    readonly capabilities: LockCapabilities;
    constructor(options: TypeOrmVersionLockProviderOptions);
    start(context: ProviderContext): Promise<void>;
    acquire(request: AcquireRequest): Promise<Grant | 'busy'>;
    renew(renewals: readonly Renewal[]): Promise<readonly RenewOutcome[]>;
    release(holder: Holder, manner: ReleaseManner): Promise<ReleaseOutcome>;
    inspect(key: string): Promise<LockInfo | null>;
    forceRelease(key: string): Promise<boolean>;
    check(): Promise<readonly Finding[]>;
    purge(options: PurgeOptions): Promise<number>;
    stop(): Promise<void>;
}

export interface TypeOrmVersionLockProviderOptions {
    readonly dataSource: DataSource;
    readonly table?: string | undefined;
    readonly synchronize?: boolean | undefined;
    readonly maxConnections?: number | undefined;
    readonly statementTimeout?: Duration | undefined;
}

export declare function entityManagerOf(lock: Lock): EntityManager;
