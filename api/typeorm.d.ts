// Public API. Written by "npm run api"; do not edit.

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

export interface TypeOrmRowLockProviderOptions {
    readonly dataSource: DataSource;
    readonly table?: string | undefined;
    readonly synchronize?: boolean | undefined;
    readonly sessionGuard?: Duration | undefined;
    readonly maxConnections?: number | undefined;
    readonly fencing?: boolean | undefined;
    readonly statementTimeout?: Duration | undefined;
}

export declare function entityManagerOf(lock: Lock): EntityManager;
