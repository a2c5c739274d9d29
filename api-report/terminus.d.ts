// Public API. Written by "npm run api"; do not edit.

export declare class LockHealthIndicator {
    #private;
    private readonly health;
    private readonly locks;
    constructor(health: HealthIndicatorService, locks: LockService);
    pingCheck<const Key extends string>(key: Key, { provider, timeout }?: LockPingOptions): Promise<HealthIndicatorResult<Key>>;
}

export interface LockPingOptions {
    readonly provider?: string;
    readonly timeout?: Duration;
}
