// Plain JavaScript, because the script that draws the dashboard also uses it. The types are in prometheus-server.d.mts.
import { existsSync } from 'node:fs';
import { mkdtemp, rm, writeFile } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { end, freePort, launch, ready } from './server-process.mjs';

const GREETING = { hello: 'GET /-/ready HTTP/1.0\r\n\r\n', answer: /^HTTP\/1\.\d 200/ };

/** Whether Prometheus and its promtool are installed. */
export const hasPrometheus = ['/usr/bin/prometheus', '/usr/bin/promtool'].every((path) => existsSync(path));

/**
 * Starts a Prometheus server that scrapes these addresses every second.
 *
 * @param targets The addresses by instance name.
 * @param ruleFiles The absolute paths of rule files, evaluated every second.
 */
export async function startPrometheus(targets, ruleFiles = []) {
  const folder = await mkdtemp(join(tmpdir(), 'lock-prometheus-'));
  const port = await freePort();
  const config = {
    global: { scrape_interval: '1s', scrape_timeout: '1s', evaluation_interval: '1s' },
    rule_files: ruleFiles,
    scrape_configs: [
      {
        job_name: 'shop',
        static_configs: Object.entries(targets).map(([instance, address]) => ({
          targets: [address],
          labels: { instance },
        })),
      },
    ],
  };
  const file = join(folder, 'prometheus.yml');
  await writeFile(file, JSON.stringify(config)); // JSON is YAML
  const listen = `127.0.0.1:${port}`;
  const server = launch('prometheus', [
    ...[`--config.file=${file}`, `--storage.tsdb.path=${join(folder, 'data')}`, `--web.listen-address=${listen}`],
  ]);
  await ready(server, port, GREETING);
  const get = async (path, params) => {
    const response = await fetch(`http://${listen}/api/v1/${path}?${new URLSearchParams(params)}`);
    const { status, data, error } = await response.json();
    if (status !== 'success') throw new Error(`${error}: ${JSON.stringify(params)}`);
    return data;
  };
  return {
    query: async (query) => (await get('query', { query })).result,
    range: async (query, start, end, step) => (await get('query_range', { query, start, end, step })).result,
    labelValues: (label, metric) => get(`label/${label}/values`, { 'match[]': metric }),
    rules: async () => (await get('rules', {})).groups.flatMap(({ rules }) => rules),
    alerts: async () => (await get('alerts', {})).alerts,
    async stop() {
      await end(server.process, 'SIGKILL');
      await rm(folder, { recursive: true, force: true });
    },
  };
}
