/**
 * A script that asks which commands the ACL would refuse to the user that runs it, without running any of them. Before Redis 7 it
 * answers an empty list. Its reply: `!` and a command for each that is refused and needed, `?` and a command for each that is refused and
 * useful.
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

/** Reads the reply; commands as an ACL names them. */
export function readRefused(reply: unknown): { readonly needed: string[]; readonly useful: string[] } {
  const marked = Array.isArray(reply) ? reply.map(String) : [];
  const those = (mark: string) => marked.filter((each) => each.startsWith(mark)).map((each) => each.replace(mark, '+'));
  return { needed: those('!'), useful: those('?') };
}
