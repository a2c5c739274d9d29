--[[
What a node does for any number of locks, in one call.

KEYS   the counter of tokens, which only `V`, `W` and `A` need, then the lock of each operation
ARGV   the calling process, which is not used, then three per operation: its code, the vote that it is about or the beginning of it, and a
       duration in ms

A vote is `holder token round` (32, 16 and 12 digits), stored under the lock's key until its lease is over; its token is zeros until a
majority has agreed on one. A retained key (`minHold`) has dashes instead of a holder. Numbers have fixed widths, so that they
compare as text and no digit is lost (Lua's own conversion loses them above 1e14).

- `V` votes for the holder. The node raises its counter to the token if it is larger than all that it knows, and answers 1. Of a block of
  tokens the vote has the last one, and the first one follows: the node compares the first and writes the last. Else it
  answers `known`, the token of the vote so far, the smallest token that it would accept, and the ms left.
  `known` is `?` for a node that knows no token at all: it is new, or has lost its data. A vote that exists already is not extended,
  but belongs to the newer round then. 0: another holder has its vote.
- `W` writes the token that was agreed on; 1 where the holder has the vote. A node that knows no token learns it only with the vote of
  that very round: a write that was in flight while the node lost its data may be older than tokens that were granted since.
- `A` asks again for a vote that was lost, with the token of the grant: 1 where no holder had the node's vote. It never makes a counter
  where there is none, because a node that has lost its data must not be taken for one that remembers.
- `E` answers with the round of the vote, and extends it unless the ms are 0. `R` releases or retains, for any round; `C` cleans up after
  a round and those before it, not after a later one.
- `I` shows the vote, `F` removes it.

One vote or one release alone takes a shorter path and is answered without a list: a single caller is bound by each microsecond, on all
nodes. So a vote is written before it is known whether its token is large enough, which is rarely wrong and saves one command of three.
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
    if mine and (ms == '0' or call('PEXPIRE', lock, ms) == 1) then reply = sub(standing, 49) end
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
