--[[
Runs the operations of a call on a node, each on one lock.

KEYS   the token counter, which only `V`, `W` and `A` use, then the lock of each operation
ARGV   the calling process (unused), then three per operation: its code, the vote or the first fields of it, and a duration in ms

A vote is `holder token round` (32, 16 and 12 digits), stored under the lock's key until its lease ends. The token is all zeros until a majority
has agreed on one. A retained key (`minHold`) has dashes instead of a holder. Numbers have a fixed width, so that they compare as text and lose
no digits (Lua's own conversion loses digits above 1e14).

- `V` votes for the holder. If the token is larger than the node's counter, the node raises the counter and returns 1. For a block of tokens, the
  vote has the last one, followed by the first one: the node compares the first and stores the last. Otherwise, it returns `known`, the
  token of the existing vote, the smallest token that it would accept, and the ms left. `known` is `?` if the node has no counter, because
  it is new or has lost its data. An existing vote is not extended, but moves to the newer round. 0: the node has voted for another holder.
- `W` writes the agreed token; 1 if the holder has the vote. A node without a counter only takes the token together with its vote in the same
  round: a write that was in flight while the node lost its data may be older than tokens granted since.
- `A` restores a lost vote, with the token of the grant; 1 if the node had no vote. It never creates a counter, because a node that has lost its
  data must not look like a node that still has it.
- `E` returns the round of the vote, and extends the vote to the ms, but never shortens it, because the network may deliver a renewal long after
  it was given up, when the lease has been extended since. `R` releases or retains, for any round. `C` cleans up after a round
  and earlier ones, but not after a later one.
- `I` shows the vote, `F` removes it.

A single vote or release takes a shorter path, and its reply is not a list, because with one caller each microsecond counts, on all nodes.
There, a vote is written before its token is checked. The token is rarely too small, and this saves one of three commands.
]]
local call, sub = redis.call, string.sub
local counter, operations = KEYS[1], #KEYS - 1

if operations == 1 then
  local lock, code, vote, ms = KEYS[2], ARGV[2], ARGV[3], ARGV[4]
  if code == 'V' then
    if call('SET', lock, sub(vote, 1, 60), 'NX', 'PX', ms) then
      local token = sub(vote, 33, 48)
      local first, last = #vote > 60 and sub(vote, 61) or token, call('SET', counter, token, 'GET')
      if last and first > last then return 1 end
      call('DEL', lock)
      if last then call('SET', counter, last)
      else call('DEL', counter) end
    end
  elseif code == 'R' and ms == '0' then
    local standing = call('GET', lock)
    if standing and sub(standing, 1, 32) == vote then return call('DEL', lock) end
    return 0
  end
end

local replies = {}
for index = 1, operations do
  local lock, code, vote, ms = KEYS[index + 1], ARGV[3 * index - 1], ARGV[3 * index], ARGV[3 * index + 1]
  local holder, token, round = sub(vote, 1, 32), sub(vote, 33, 48), sub(vote, 49, 60)
  local standing = call('GET', lock)
  local mine = standing and sub(standing, 1, 32) == holder
  local reply = 0
  if code == 'V' then
    if not standing or mine then
      local last = call('GET', counter)
      if last and not standing and (#vote > 60 and sub(vote, 61) or token) > last then
        call('SET', counter, token)
        call('SET', lock, sub(vote, 1, 60), 'PX', ms)
        reply = 1
      else
        local time = call('TIME')
        local least = time[1] .. sub('00000' .. time[2], -6)
        if last and last >= least then least = string.format('%.0f', last + 1) end
        local written, left = '0000000000000000', ms
        if mine then
          written, left = sub(standing, 33, 48), call('PTTL', lock)
          if sub(standing, 49) < round then call('SET', lock, sub(standing, 1, 48) .. round, 'KEEPTTL') end
        else
          call('SET', lock, holder .. written .. round, 'PX', ms)
        end
        reply = (last and '+' or '?') .. written .. least .. left
      end
    end
  elseif code == 'W' then
    local last = call('GET', counter)
    if (last and last < token) or (not last and mine and sub(standing, 49) == round) then call('SET', counter, token) end
    if mine then
      call('SET', lock, holder .. token .. sub(standing, 49), 'KEEPTTL')
      reply = 1
    end
  elseif code == 'E' then
    if mine then
      if ms ~= '0' and call('PTTL', lock) < tonumber(ms) then call('PEXPIRE', lock, ms) end
      reply = sub(standing, 49)
    end
  elseif code == 'A' then
    if not standing then
      call('SET', lock, vote, 'PX', ms)
      local last = call('GET', counter)
      if last and last < token then call('SET', counter, token) end
      reply = 1
    end
  elseif code == 'R' then
    if mine then
      if ms == '0' then
        call('DEL', lock)
      else
        call('SET', lock, string.rep('-', 32) .. sub(standing, 33), 'PX', ms)
      end
      reply = 1
    end
  elseif code == 'C' then
    if mine and sub(standing, 49) <= round then reply = call('DEL', lock) end
  elseif code == 'I' then
    if standing then reply = sub(standing, 1, 48) .. call('PTTL', lock) end
  elseif code == 'F' then
    reply = call('DEL', lock)
  end
  replies[index] = reply
end
return replies
