// Public API. Written by "npm run api"; do not edit.

export interface RedisClient {
    duplicate(override?: object): RedisConnection;
}

export interface RedisClusterClient {
    readonly isCluster: boolean;
    duplicate(nodes?: [], override?: object): RedisClusterConnection;
}

export interface RedisClusterConnection {
    readonly options: object;
    connect(): Promise<unknown>;
    disconnect(): void;
    nodes(): RedisClusterNode[];
    on(event: string, listener: (error: unknown) => void): unknown;
}

export interface RedisClusterNode extends RedisClient, Pick<RedisConnection, 'call'> {
    readonly options: object;
}

export interface RedisConnection {
    connect(): Promise<unknown>;
    disconnect(reconnect?: boolean): void;
    call(command: string, ...args: string[]): Promise<unknown>;
    subscribe(channel: string): Promise<unknown>;
    on(event: string, listener: (...args: string[]) => void): unknown;
}

export declare class RedisLockProvider implements LockProvider {
    #private;
    constructor(options: RedisLockProviderOptions);
    createBackend(context: BackendContext): RedisBackend;
}

export interface RedisLockProviderOptions {
    readonly client?: RedisClient | RedisClusterClient | undefined;
    readonly url?: string | undefined;
    readonly cluster?: readonly (string | {
        readonly host?: string;
        readonly port?: number;
    })[] | undefined;
    readonly options?: object | undefined;
    readonly waitReplicas?: number | undefined;
    readonly commandTimeout?: number | string | undefined;
}
