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
    constructor(options: RedlockProviderOptions);
    createBackend(context: BackendContext): RedlockBackend;
}

export interface RedlockProviderOptions {
    readonly nodes: readonly RedlockNodeOptions[];
    readonly maxLease: ConfiguredDuration;
    readonly delayedRestart?: boolean | undefined;
    readonly commandTimeout?: ConfiguredDuration | undefined;
}
