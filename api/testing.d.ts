// Public API. Written by "npm run api"; do not edit.

export interface ConformanceCase {
    readonly id: string;
    readonly title: string;
    readonly notRun: Obstacle | undefined;
    readonly alone: boolean;
    run(): Promise<void>;
}

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
    lose(key: string): void;
}

export interface LockServiceStubOptions {
    readonly providers?: readonly string[];
    readonly context?: KeyContext;
}

export interface Obstacle {
    readonly reason: string;
    readonly byDesign: boolean;
}

export interface ProviderBounds {
    readonly handOver: number;
    readonly expiry: number;
    readonly takeOver: number;
    readonly deadWaiter: number;
    readonly noAnswer: number;
    readonly recovery: number;
    readonly cleanUp: number;
}

export interface ProviderFaults {
    revoke?(namespace: string, key: string): Promise<unknown>;
    cutOff?(provider: LockProvider): Promise<unknown>;
    restore?(provider: LockProvider): Promise<unknown>;
}

export interface ProviderHarness {
    readonly capabilities: LockCapabilities;
    create(): LockProvider | Promise<LockProvider>;
    readonly lease?: number;
    readonly clock?: FakeClock;
    readonly faults?: ProviderFaults;
    leftovers?(namespace: string): Promise<number>;
    readonly bounds?: Partial<ProviderBounds>;
    readonly concurrency?: number;
    readonly seed?: number;
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

export interface TestRunner {
    describe(title: string, body: () => void): unknown;
    readonly it: {
        (title: string, body: () => Promise<void>, timeout: number): unknown;
        skip(title: string, body: () => Promise<void>): unknown;
    };
    readonly afterAll?: (body: () => Promise<void>, timeout: number) => unknown;
    readonly after?: (body: () => Promise<void>) => unknown;
}

export declare function conformanceCases(harness: ProviderHarness): readonly ConformanceCase[];

export declare function describeLockProvider(name: string, harness: ProviderHarness, runner?: TestRunner): void;

export declare function provideLockServiceStub(options?: LockServiceStubOptions): LockServiceStub;
