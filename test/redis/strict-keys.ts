import { createHash } from 'node:crypto';
import { Redis } from 'ioredis';

/** The list on the server of the keys that scripts touched and their calls did not declare. */
const REFUSED = 'undeclared-keys';

// Before each script: it may only touch the keys of its call, as on a strict server, and others are noted.
const STRICT = `
local server, declared = redis, {}
for _, key in ipairs(KEYS) do declared[key] = true end
local keyless = { TIME = true, PUBLISH = true, SPUBLISH = true }
local all = { EXISTS = true, DEL = true }
local function strict(run)
  return function(command, ...)
    local name = string.upper(command)
    for place, key in ipairs({ ... }) do
      if not keyless[name] and (place == 1 or all[name]) and not declared[key] then
        server.call('RPUSH', '${REFUSED}', command .. ' ' .. key)
        error('ERR script tried accessing undeclared key, key: ' .. key, 0)
      end
    end
    return run(command, ...)
  end
end
local redis = setmetatable({ call = strict(server.call), pcall = strict(server.pcall) }, { __index = server })
`;

interface SentCommand {
  name: string;
  readonly args: string[];
}

/** Makes every server of this file one that refuses keys that a call does not declare, as Dragonfly does by default. By ioredis alone. */
export function strictKeysForTests(): void {
  const { sendCommand } = Redis.prototype;
  beforeAll(() => {
    const texts = new Map<string, string>();
    Redis.prototype.sendCommand = function (this: Redis, command, ...rest) {
      const sent = command as unknown as SentCommand;
      const [script = ''] = sent.args;
      if (sent.name === 'eval') {
        texts.set(createHash('sha1').update(script).digest('hex'), script);
        sent.args[0] = STRICT + script;
      } else if (sent.name === 'evalsha' && texts.has(script)) {
        sent.name = 'eval';
        sent.args[0] = STRICT + (texts.get(script) ?? '');
      }
      return sendCommand.call(this, command, ...rest);
    };
  });
  afterAll(() => {
    Redis.prototype.sendCommand = sendCommand;
  });
}

/** The commands that were refused since the last look. */
export async function refusedKeys(admin: Redis): Promise<string[]> {
  const refused = await admin.lrange(REFUSED, 0, -1);
  await admin.del(REFUSED);
  return refused;
}
