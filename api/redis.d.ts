// Public API. Written by "npm run api"; do not edit.

export interface RedisClient {
    duplicate(override?: object): RedisConnection;
}

export interface RedisConnection {
    connect(): Promise<unknown>;
    disconnect(reconnect?: boolean): void;
    call(command: string, args: string[]): Promise<unknown>;
    subscribe(...channels: string[]): Promise<unknown>;
    on(event: string, listener: (...args: string[]) => void): unknown;
}

export declare class RedisLockProvider implements LockProvider {
    #private;
    readonly capabilities: LockCapabilities;
    constructor(options: RedisLockProviderOptions);
    start(context: ProviderContext): Promise<void>;
    acquire(request: AcquireRequest): Promise<Grant | 'busy'>;
    renew(renewals: readonly RenewalRequest[]): Promise<RenewOutcome[]>;
    release(holder: Holder, manner: ReleaseManner): Promise<ReleaseOutcome>;
    inspect(key: string): Promise<LockInfo | null>;
    forceRelease(key: string): Promise<boolean>;
    check(): Promise<Finding[]>;
    stop(): Promise<void>;
}

export interface RedisLockProviderOptions {
    readonly client?: RedisClient | undefined;
    readonly url?: string | undefined;
    readonly options?: object | undefined;
    readonly commandTimeout?: Duration | undefined;
}
