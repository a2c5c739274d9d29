// Public API. Written by "npm run api"; do not edit.

export declare class DistributedLockInstrumentation {
    #private;
    readonly instrumentationName: string;
    readonly instrumentationVersion: string;
    constructor({ keys }?: DistributedLockInstrumentationConfig);
    enable(): void;
    disable(): void;
    setTracerProvider(provider: TracerProvider): void;
    setMeterProvider(provider: MeterProvider): void;
    setConfig({ keys }: DistributedLockInstrumentationConfig): void;
    getConfig(): DistributedLockInstrumentationConfig;
}

export interface DistributedLockInstrumentationConfig {
    keys?: boolean;
    enabled?: boolean;
}
