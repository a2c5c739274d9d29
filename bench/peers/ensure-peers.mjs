import { ensureInstalled } from '../../scripts/ensure-installed.mjs';

/**
 * Whether to measure the other libraries, too. Installs them if they are missing. BENCH_WITHOUT_PEERS=1 excludes them.
 */
export function ensurePeers() {
  if (process.env.BENCH_WITHOUT_PEERS) return false;
  ensureInstalled(import.meta.dirname);
  return true;
}
