import type { Diagnostic } from '../../../api/lock-provider.js';
import { whyTooOld } from '../../shared/oldest-version.js';
import { isForbidden, refusalIn } from './refusals.js';

/** Sends one command to a server. */
export type ServerCall = (command: string, ...args: string[]) => Promise<unknown>;

/** What locks need of a server. */
export interface Needs {
  readonly waitReplicas: number;
  /** A {@link permissionScript} and its arguments. */
  readonly script: string;
  readonly args: readonly string[];
  /** The ACL pattern for all our keys and channels. */
  readonly pattern: string;
}

/** Checks the server's settings and the permissions. */
export async function diagnoseServer(call: ServerCall, needs: Needs): Promise<Diagnostic[]> {
  const checks = [diagnoseSettings(call, needs.waitReplicas), diagnosePermissions(call, needs)];
  return (await Promise.all(checks)).flat();
}

/** Checks the server's settings, as `INFO` reports them. */
async function diagnoseSettings(call: ServerCall, waitReplicas: number): Promise<Diagnostic[]> {
  let text: unknown;
  try {
    text = await call('info');
  } catch (error) {
    const unchecked = 'its version, role, eviction, persistence, and replicas were not checked';
    if (isForbidden(error)) {
      const message = `Redis denies INFO, so ${unchecked}. Grant +info, or check them yourself.`;
      return [{ severity: 'warning', message }];
    }
    const words = refusalIn(error)?.words;
    if (words !== undefined) return [{ severity: 'error', message: words }];
    const reason = error instanceof Error ? ` (${error.message})` : '';
    const message = `Redis did not reply to INFO${reason}, so ${unchecked}. Restart the application, or check them yourself.`;
    return [{ severity: 'warning', message }];
  }
  return diagnoseInfo(String(text), waitReplicas);
}

function diagnoseInfo(info: string, waitReplicas: number): Diagnostic[] {
  const diagnostics: Diagnostic[] = [];
  const valueOf = (field: string) => new RegExp(`^${field}:([^\\r\\n]*)`, 'm').exec(info)?.[1];
  const product = valueOf('valkey_version') === undefined ? 'Redis' : 'Valkey';
  const report = (severity: Diagnostic['severity'], message: string) => diagnostics.push({ severity, message });
  if (valueOf('role') === 'slave') {
    report('error', 'This server is a replica: give the provider the address of the master.');
  }
  const policy = valueOf('maxmemory_policy') ?? 'noeviction';
  if (policy !== 'noeviction' && valueOf('maxmemory') !== '0') {
    report(
      'warning',
      `maxmemory-policy is ${policy}: Redis may evict a held lock, so two processes could hold it. Set noeviction, or use a separate server for locks.`,
    );
  }
  if (valueOf('aof_enabled') === '0') {
    report(
      'warning',
      `${product} has AOF disabled: a restart loses every lock whose lease outlasts it. Set appendonly yes.`,
    );
  }
  const replicas = Number(valueOf('connected_slaves') ?? 0);
  if (replicas < waitReplicas) {
    report(
      'error',
      `waitReplicas is ${waitReplicas}, but only ${replicas} replicas are connected, so locks cannot be acquired. Connect more replicas, or lower waitReplicas.`,
    );
  } else if (replicas > 0 && waitReplicas === 0) {
    report(
      'warning',
      `${product} has replicas, and replication is asynchronous: after a failover, two processes may hold a lock acquired just before it. Set waitReplicas, and fence writes with the token.`,
    );
  }
  return diagnostics;
}

/** Checks which of the commands in a {@link permissionScript} the ACL denies. */
async function diagnosePermissions(call: ServerCall, { script, args, pattern }: Needs): Promise<Diagnostic[]> {
  let reply: unknown;
  try {
    reply = await call('eval', script, '0', ...args);
  } catch (error) {
    // Locks don't work at all without EVAL.
    if (!isForbidden(error)) return [];
    return [{ severity: 'error', message: `The ACL denies EVAL to this user (${error.message}). Grant +eval.` }];
  }
  const marked = Array.isArray(reply) ? reply.map(String) : [];
  const denied = (mark: string) =>
    marked.filter((each) => each.startsWith(mark)).map((each) => each.replace(mark, '+'));
  const patterns = ['~', '&'].filter((mark) => marked.includes(mark)).map((mark) => mark + pattern);
  const missing = [...patterns, ...denied('!')];
  const useful = denied('?');
  const diagnostics: Diagnostic[] = [];
  if (missing.length > 0) {
    diagnostics.push({
      severity: 'error',
      message: `The ACL denies this user permissions that locks need on keys and channels ${pattern}. Grant ${missing.join(' ')}.`,
    });
  }
  if (useful.length > 0) {
    diagnostics.push({
      severity: 'warning',
      message: `The ACL denies this user ${useful.join(' ')}. Locks work, but they may be granted late or outlive a lost connection. Grant these permissions: see docs/providers/redis.md.`,
    });
  }
  return diagnostics;
}

/**
 * A script that finds which commands the ACL denies the user, without running any allowed ones. The reply is a list,
 * which is empty before Redis 7: `!` and a command for each denied command that locks need, `?` and a command for each
 * denied command that is useful, `~` if the user may run the commands but not access the key, and `&` if they may not
 * access the channel.
 */
export function permissionScript(checks: string): string {
  return `
local refused, patterns = {}, {}
if not redis.acl_check_cmd then return refused end
local key = ARGV[1]
local function check(mark, command, ...)
  if redis.acl_check_cmd(command, ...) then return end
  -- The ACL denies the command, so it does not run. Only the error's text says what is missing.
  local reply = redis.pcall(command, ...)
  local reason = type(reply) == 'table' and reply.err or ''
  local what = not reason:find(' run ', 1, true) and (reason:find('channel') and '&' or reason:find('key') and '~')
  -- A script may not subscribe, whatever the ACL says.
  if command:find('subscribe$') and patterns['&'] then what = '&' end
  if not what then refused[#refused + 1] = mark .. command
  elseif not patterns[what] then
    patterns[what] = true
    refused[#refused + 1] = what
  end
end
local function checkPart(mark, command, part, ...)
  if not redis.acl_check_cmd(command, part, ...) then refused[#refused + 1] = mark .. command .. '|' .. part end
end
for _, command in ipairs({ 'get', 'del', 'pttl' }) do check('!', command, key) end
for _, command in ipairs({ 'set', 'pexpire' }) do check('!', command, key, '0') end
check('!', 'time')
check('!', 'evalsha', 'x', '0')
${checks}
check('?', 'ping')
checkPart('?', 'client', 'info')
checkPart('?', 'client', 'kill', 'ID', '0')
return refused
`;
}

// The first version with SET … GET and ZADD … LT, which the lock script uses.
const OLDEST = '6.2';

/**
 * Why the server is too old for locks, according to its `INFO server` text. Valkey reports the Redis version it is
 * compatible with.
 */
export function whyTooOldRedis(info: string): string | undefined {
  return whyTooOld('Redis', /^redis_version:(\S+)/m.exec(info)?.[1] ?? '', OLDEST);
}
