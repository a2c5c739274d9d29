// Public API. Written by "npm run api"; do not edit.

export declare class TypeOrmAdvisoryLockProvider implements LockProvider {
    #private;
    readonly capabilities: LockCapabilities;
    constructor(options: TypeOrmAdvisoryLockProviderOptions);
    start(context: ProviderContext): Promise<void>;
    acquire(request: AcquireRequest): Promise<Grant | 'busy'>;
    renew(renewals: readonly Renewal[]): Promise<readonly RenewOutcome[]>;
    release(holder: Holder, manner: ReleaseManner): Promise<ReleaseOutcome>;
    check(): Promise<readonly Finding[]>;
    stop(): Promise<void>;
}

export type TypeOrmAdvisoryLockProviderOptions = TypeOrmSessionLockOptions;

export declare class TypeOrmRowLockProvider implements LockProvider {
    #private;
    readonly capabilities: LockCapabilities;
    constructor(options: TypeOrmRowLockProviderOptions);
    start(context: ProviderContext): Promise<void>;
    acquire(request: AcquireRequest): Promise<Grant | 'busy'>;
    renew(renewals: readonly Renewal[]): Promise<readonly RenewOutcome[]>;
    release(holder: Holder, manner: ReleaseManner): Promise<ReleaseOutcome>;
    check(): Promise<readonly Finding[]>;
    stop(): Promise<void>;
}

export type TypeOrmRowLockProviderOptions = TypeOrmSessionLockOptions;

export interface TypeOrmSessionLockOptions {
    readonly dataSource: DataSource;
    readonly table?: string | undefined;
    readonly synchronize?: boolean | undefined;
    readonly sessionGuard?: Duration | undefined;
    readonly maxConnections?: number | undefined;
    readonly fencing?: boolean | undefined;
    readonly statementTimeout?: Duration | undefined;
    readonly allowUnsafeTopology?: boolean | undefined;
}

export declare function entityManagerOf(lock: Lock): EntityManager;
