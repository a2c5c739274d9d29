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

/** Reads the reply. */
export function readRefused(reply: unknown): Refused {
  const marked = Array.isArray(reply) ? reply.map(String) : [];
  const those = (mark: string) => marked.filter((each) => each.startsWith(mark)).map((each) => each.replace(mark, '+'));
  return { needed: those('!'), useful: those('?'), keys: marked.includes('~'), channels: marked.includes('&') };
}
