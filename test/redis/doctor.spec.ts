import { describe, expect, it } from '@jest/globals';
import { examine } from '../../lib/providers/redis/doctor.js';
import { startRedisServer } from '../servers/redis-server.mjs';
import { startProvider } from './seam.js';

const about = async (info: string) => examine([() => Promise.resolve(info)]);

describe('the boot doctor of Redis', () => {
  it('warns of a real server without persistence, with eviction', async () => {
    const server = await startRedisServer({ args: ['--maxmemory', '100mb', '--maxmemory-policy', 'allkeys-lru'] });
    const { provider } = await startProvider({ url: server.url });
    const findings = await provider.check();
    expect(findings.map(({ severity }) => severity)).toEqual(['warning', 'warning']);
    expect(findings[0]?.message).toContain('noeviction');
    expect(findings[1]?.message).toContain('appendonly');
    await provider.stop();
    await server.stop();
  });

  it('finds nothing in a server that is set up well', async () => {
    const server = await startRedisServer({ args: ['--appendonly', 'yes'] });
    const { provider } = await startProvider({ url: server.url });
    expect(await provider.check()).toEqual([]);
    await provider.stop();
    await server.stop();
  });

  it('tells errors from warnings', async () => {
    expect(await about('redis_version:5.0.7\r\naof_enabled:1')).toMatchObject([{ severity: 'error' }]);
    expect(await about('redis_version:7.2.1\r\nrole:slave\r\naof_enabled:1')).toMatchObject([{ severity: 'error' }]);
    expect(await about('redis_version:7.2.1\r\nconnected_slaves:2\r\naof_enabled:1')).toMatchObject([
      { severity: 'warning' },
    ]);
  });

  it('finds nothing where it may not look', async () => {
    expect(await examine([() => Promise.reject(new Error('NOPERM'))])).toEqual([]);
  });
});
