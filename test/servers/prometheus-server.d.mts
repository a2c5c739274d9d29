export interface Sample {
  readonly metric: Readonly<Record<string, string>>;
  /** Seconds since the epoch, and the value. */
  readonly value: readonly [number, string];
}

export interface Series {
  readonly metric: Readonly<Record<string, string>>;
  readonly values: readonly (readonly [number, string])[];
}

export interface Rule {
  readonly name: string;
  readonly query: string;
  readonly labels: Readonly<Record<string, string>>;
  readonly annotations: Readonly<Record<string, string>>;
}

export interface PrometheusServer {
  query(expression: string): Promise<Sample[]>;
  /** All times in seconds. */
  range(expression: string, start: number, end: number, step: number): Promise<Series[]>;
  labelValues(label: string, metric: string): Promise<string[]>;
  rules(): Promise<Rule[]>;
  alerts(): Promise<{ readonly labels: Readonly<Record<string, string>>; readonly state: 'pending' | 'firing' }[]>;
  stop(): Promise<void>;
}

/** Whether Prometheus and its promtool are installed. */
export const hasPrometheus: boolean;

/**
 * Starts a Prometheus server that scrapes these addresses every second.
 *
 * @param targets The addresses by instance name.
 * @param ruleFiles The absolute paths of rule files, evaluated every second.
 */
export function startPrometheus(
  targets: Readonly<Record<string, string>>,
  ruleFiles?: readonly string[],
): Promise<PrometheusServer>;
