--[[
The job records: texts that are changed by compare-and-set. A separate script, because a longer lock script would slow down each lock.

KEYS   the bucket's counter (unused), then the record of each operation
ARGV   the calling process (unused), then three per operation: expected, next, and the record's time to live in ms

  r      -      keep     read
  =text  next   keep     write next if the record is that text
  -      next   keep     write next if the record does not exist

A record that does not change, because it was only read or did not have the expected text, also gets this time to live, unless keep is 0. So
with waitReplicas, each reply with a record follows a write on its connection, which WAIT covers.

The reply has one entry per operation. For a single operation, it is that entry. An entry is the server's time in ms (13 digits), followed by
'=' and the record after the operation if the record exists.
]]
local call, sub = redis.call, string.sub

local function run(i)
  local record, expected, text, keep = KEYS[i + 1], ARGV[3 * i - 1], ARGV[3 * i], ARGV[3 * i + 1]
  local found = call('GET', record)
  if (found and '=' .. found or '-') == expected then
    call('SET', record, text, 'PX', keep)
    found = text
  elseif found and keep ~= '0' then
    call('PEXPIRE', record, keep)
  end
  local time = call('TIME')
  return time[1] .. sub('00000' .. time[2], -6, -4) .. (found and '=' .. found or '')
end

if #KEYS == 2 then return run(1) end
local replies = {}
-- Each in its own pcall, so that an error, such as a key of another type, is the reply to that operation only.
for i = 1, #KEYS - 1 do
  local ok, reply = pcall(run, i)
  replies[i] = (ok or type(reply) == 'table') and reply or { err = reply }
end
return replies
