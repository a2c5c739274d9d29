// Public API. Written by "npm run api"; do not edit.

export declare class DistributedLockTestingModule {
    static forRoot(options?: DistributedLockModuleOptions & DistributedLockModuleExtras): DynamicModule;
}

export declare class FakeClock implements Clock {
    #private;
    constructor(wallTime?: number);
    now(): number;
    uptime(): number;
    wallTime(): number;
    setTimer(callback: () => void, delay: number): Timer;
    clearTimer(timer: Timer): void;
    get pendingTimers(): number;
    advance(milliseconds: number): Promise<void>;
    advanceToNextTimer(): Promise<void>;
    block(milliseconds: number): void;
    suspend(milliseconds: number): void;
    stepWallTime(milliseconds: number): void;
}

export declare class LockServiceStub implements FactoryProvider<Promise<LockService>> {
    #private;
    private readonly options;
    readonly provide: typeof LockService;
    readonly acquired: string[];
    readonly named: readonly FactoryProvider<LockService>[];
    constructor(options: LockServiceStubOptions);
    readonly useFactory: () => Promise<LockService>;
    busy(key: string): void;
    free(key: string): void;
    lose(key: string): Promise<void>;
}

export interface LockServiceStubOptions {
    readonly providers?: readonly string[];
    readonly context?: KeyContext;
}

export declare class TestLocks {
    #private;
    readonly clock: FakeClock;
    readonly manager: {
        factory: (options: DistributedLockModuleOptions) => Promise<LockManager>;
        inject: (string | symbol)[];
    };
    busy(key: string, provider?: string): Promise<void>;
    free(key: string, provider?: string): Promise<void>;
    lose(key: string, provider?: string): Promise<void>;
    expectLocked(key: string, provider?: string): void;
    expectUnlocked(key: string, provider?: string): void;
}

export declare function provideLockServiceStub(options?: LockServiceStubOptions): LockServiceStub;
