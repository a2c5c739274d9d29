/**
 * A script that asks what the ACL would refuse to the user that runs it, without doing any of it: since Redis 7. Before, it answers
 * nothing. Its reply: `!` and a command for each that is refused and needed, `?` and a command for each that is refused and useful.
 */
export function permissionScript(checks: string): string {
  return `
local refused = {}
if not redis.acl_check_cmd then return refused end
local key = ARGV[1]
local function check(mark, command, ...)
  if not redis.acl_check_cmd(command, ...) then refused[#refused + 1] = mark .. command end
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

/**
 * For the locks of one server or a Cluster.
 *
 * ARGV: a key, a channel, whether the server is one of a Cluster, how many replicas are waited for.
 */
export const PERMISSION_SCRIPT = permissionScript(`
local channel, isCluster, waitReplicas = ARGV[2], ARGV[3] == '1', ARGV[4] ~= '0'
for _, command in ipairs({ 'exists', 'zcard' }) do check('!', command, key) end
check('!', 'setrange', key, '0', 'w')
check('!', 'zadd', key, '0', 'x')
for _, command in ipairs({ 'zrem', 'zscore' }) do check('!', command, key, 'x') end
for _, command in ipairs({ 'zrange', 'zrangebyscore' }) do check('!', command, key, '0', '0') end
check('!', isCluster and 'spublish' or 'publish', channel, 'x')
check('?', isCluster and 'ssubscribe' or 'subscribe', channel)
if isCluster then checkPart('!', 'cluster', 'slots') end
if waitReplicas then check('!', 'wait', '1', '0') end
`);

/** Reads the reply; commands as an ACL names them. */
export function readRefused(reply: unknown): { readonly needed: string[]; readonly useful: string[] } {
  const marked = Array.isArray(reply) ? reply.map(String) : [];
  const those = (mark: string) => marked.filter((each) => each.startsWith(mark)).map((each) => each.replace(mark, '+'));
  return { needed: those('!'), useful: those('?') };
}
