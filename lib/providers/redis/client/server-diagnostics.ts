import type { Diagnostic } from '../../../api/lock-provider.js';
import { whyTooOld } from '../../shared/oldest-version.js';
import { isForbidden, refusalIn } from './refusals.js';

/** Sends one command to a server. */
export type Ask = (command: string, ...args: string[]) => Promise<unknown>;

/** Checks what a server reports in `INFO`. */
export async function examineServer(ask: Ask, waitReplicas: number): Promise<Diagnostic[]> {
  let text: unknown;
  try {
    text = await ask('info');
  } catch (error) {
    const unchecked = 'its version, role, eviction, persistence and replicas were not checked';
    if (isForbidden(error)) {
      const message = `Redis refuses INFO: ${unchecked}. Allow +info, or check them yourself.`;
      return [{ severity: 'warning', message }];
    }
    const words = refusalIn(error)?.words;
    if (words !== undefined) return [{ severity: 'error', message: words }];
    const reason = error instanceof Error ? ` (${error.message})` : '';
    const message = `Redis does not answer INFO${reason}: ${unchecked}. Start the application again, or check them yourself.`;
    return [{ severity: 'warning', message }];
  }
  return examineInfo(readInfo(text), waitReplicas);
}

function readInfo(text: unknown): ReadonlyMap<string, string> {
  return new Map(
    String(text)
      .split(/\r?\n/)
      .map((line): [string, string] => {
        const colon = line.indexOf(':');
        return [line.slice(0, colon), line.slice(colon + 1)];
      }),
  );
}

function examineInfo(info: ReadonlyMap<string, string>, waitReplicas: number): Diagnostic[] {
  const diagnostics: Diagnostic[] = [];
  const product = info.has('valkey_version') ? 'Valkey' : 'Redis';
  const report = (severity: Diagnostic['severity'], message: string) => diagnostics.push({ severity, message });
  if (info.get('role') === 'slave') {
    report('error', 'This server is a replica: give the provider the address of the master.');
  }
  const policy = info.get('maxmemory_policy') ?? 'noeviction';
  if (policy !== 'noeviction' && info.get('maxmemory') !== '0') {
    report(
      'warning',
      `maxmemory-policy is ${policy}: a lock that is held can be evicted, and then two may hold it. Set noeviction, or use a server for locks alone.`,
    );
  }
  if (info.get('aof_enabled') === '0') {
    report(
      'warning',
      `${product} runs without AOF: a restart forgets the locks that are held, all whose leases last longer than it takes. Set appendonly yes.`,
    );
  }
  const replicas = Number(info.get('connected_slaves') ?? 0);
  if (replicas < waitReplicas) {
    report(
      'error',
      `waitReplicas is ${waitReplicas} and ${replicas} replicas are connected: no lock can be held. Connect more, or ask for fewer.`,
    );
  } else if (replicas > 0 && waitReplicas === 0) {
    report(
      'warning',
      `${product} has replicas, and replication is asynchronous: after a failover two may hold a lock that was taken shortly before. Set waitReplicas, and fence writes with the token.`,
    );
  }
  return diagnostics;
}

/**
 * Checks which of the commands that the script asks about are refused by the ACL.
 *
 * @param pattern that of all keys and channels of ours, as an ACL has it
 */
export async function examinePermissions(
  ask: Ask,
  script: string,
  args: readonly string[],
  pattern: string,
): Promise<Diagnostic[]> {
  let reply: unknown;
  try {
    reply = await ask('eval', script, '0', ...args);
  } catch (error) {
    // Without EVAL there is no lock at all.
    const message = error instanceof Error ? error.message : '';
    if (!message.startsWith('NOPERM')) return [];
    return [{ severity: 'error', message: `Redis refuses EVAL to this user: allow it (${message}).` }];
  }
  const { needed, useful, keys, channels } = readRefused(reply);
  const diagnostics: Diagnostic[] = [];
  const missing = [...(keys ? [`~${pattern}`] : []), ...(channels ? [`&${pattern}`] : []), ...needed];
  if (missing.length > 0) {
    diagnostics.push({
      severity: 'error',
      message: `The ACL of this user refuses what locks need, on the keys and channels ${pattern}: allow ${missing.join(' ')}.`,
    });
  }
  if (useful.length > 0) {
    diagnostics.push({
      severity: 'warning',
      message: `The ACL of this user refuses ${useful.join(' ')}: locks work, but are found late or outlive a lost connection; see the page on Redis.`,
    });
  }
  return diagnostics;
}

/**
 * A script that asks which commands the ACL would refuse to the user that runs it, and runs none that it allows. Before Redis 7 it
 * answers an empty list. Its reply: `!` and a command for each that is refused and needed, `?` and a command for each that is refused and
 * useful; `~` if the user may run the commands and not touch the key, `&` the same of the channel.
 */
export function permissionScript(checks: string): string {
  return `
local refused, patterns = {}, {}
if not redis.acl_check_cmd then return refused end
local key = ARGV[1]
local function check(mark, command, ...)
  if redis.acl_check_cmd(command, ...) then return end
  -- The ACL refuses it, so it is not executed. The words of the refusal are the only way to learn what is missing.
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

/** Commands that an ACL refuses, as it names them. */
interface Refused {
  readonly needed: string[];
  readonly useful: string[];
  /** The ACL refuses the keys, or the channels, of the locks. */
  readonly keys: boolean;
  readonly channels: boolean;
}

/** Reads the reply to a {@link permissionScript}. */
function readRefused(reply: unknown): Refused {
  const marked = Array.isArray(reply) ? reply.map(String) : [];
  const those = (mark: string) => marked.filter((each) => each.startsWith(mark)).map((each) => each.replace(mark, '+'));
  return { needed: those('!'), useful: those('?'), keys: marked.includes('~'), channels: marked.includes('&') };
}

// The first that has SET … GET and ZADD … LT, which the lock script sends.
const OLDEST = '6.2';

/** Why locks cannot be on this server, by its answer to `INFO server`. Valkey says there which version of Redis it can stand in for. */
export function whyTooOldRedis(info: string): string | undefined {
  return whyTooOld('Redis', /^redis_version:(\S+)/m.exec(info)?.[1] ?? '', OLDEST);
}
