// Public API. Written by "npm run api"; do not edit.

export interface RedisClient {
    duplicate(override?: object): RedisConnection;
}

export interface RedisConnection {
    connect(): Promise<unknown>;
    disconnect(reconnect?: boolean): void;
    call(command: string, ...args: string[]): Promise<unknown>;
    subscribe(channel: string): Promise<unknown>;
    on(event: string, listener: (...args: string[]) => void): unknown;
}

export type RedlockNodeOptions = Pick<RedisLockProviderOptions, 'client' | 'url' | 'options'>;

export declare class RedlockProvider implements LockProvider {
    #private;
    readonly capabilities: LockCapabilities;
    constructor(options: RedlockProviderOptions);
    start(context: ProviderContext): Promise<void>;
    acquire(request: AcquireRequest): Promise<Grant | 'busy'>;
    renew(grant: Grant, lease: number): Promise<RenewOutcome>;
    release(holder: Holder, manner: ReleaseManner): Promise<ReleaseOutcome>;
    inspect(key: string): Promise<LockInfo | null>;
    forceRelease(key: string): Promise<boolean>;
    check(): Promise<Finding[]>;
    stop(): Promise<void>;
}

export interface RedlockProviderOptions {
    readonly nodes: readonly RedlockNodeOptions[];
    readonly maxLease: Duration;
    readonly delayedRestart?: boolean | undefined;
    readonly commandTimeout?: Duration | undefined;
}
