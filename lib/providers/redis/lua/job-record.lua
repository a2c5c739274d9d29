--[[
The records of jobs: texts that are changed by compare-and-set. A script of its own, because each lock would pay for a longer one.

KEYS   the bucket's counter, which is not used, then the record of each operation
ARGV   the calling process, which is not used, then three per operation: expected, next, and for how many ms to keep the record

  r      -      keep     read
  =text  next   keep     write next if the record is that text
  -      next   keep     write next if there is none

A record that stays as it is, because it was read or is not what was expected, is kept for that long as well, unless keep is 0. So with
waitReplicas each answer that names a record follows a write on its connection, which WAIT covers.

The reply has one entry per operation, and is that entry if there is one: the server's time in ms (13 digits), then '=' and the record after
the operation, unless there is none.
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
-- Each by itself: an error of one, such as a key of another type, is its own reply.
for i = 1, #KEYS - 1 do
  local ok, reply = pcall(run, i)
  replies[i] = (ok or type(reply) == 'table') and reply or { err = reply }
end
return replies
