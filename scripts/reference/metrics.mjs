import { DistributedLockInstrumentation } from '../../dist/esm/opentelemetry.js';

const TYPES = {
  createCounter: 'counter',
  createGauge: 'gauge',
  createHistogram: 'histogram',
  createObservableGauge: 'gauge',
  createUpDownCounter: 'up-down counter',
};

/** The metrics that the instrumentation creates, in one table. */
export function metricTable() {
  const rows = [];
  const metric = { addCallback: ignore, removeCallback: ignore, add: ignore, record: ignore };
  const creators = Object.entries(TYPES).map(([method, type]) => [
    method,
    (name, { unit, description }) => {
      rows.push(`|\`${name}\`|${type}|${unit}|${description}|`);
      return metric;
    },
  ]);
  const instrumentation = new DistributedLockInstrumentation();
  instrumentation.setMeterProvider({ getMeter: () => Object.fromEntries(creators) });
  instrumentation.enable();
  instrumentation.disable();
  return ['|metric|type|unit|meaning|', '|---|---|---|---|', ...rows].join('\n');
}

function ignore() {
  // No values are recorded here.
}
