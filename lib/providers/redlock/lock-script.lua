--[[
What a node does for any number of locks, in one call.

KEYS: the counter of tokens, then one lock for each operation. ARGV: five values for each operation: its code, the holder
(32 digits), milliseconds, a token (16 digits), the round (12 digits). Numbers have fixed widths, so that they compare as text and
no digit is lost (Lua's own conversion loses them above 1e14).

A vote is `holder token round`, stored under the lock's key until its lease is over; its token is zeros until a majority has agreed on
one. A retained key (`minHold`) has dashes instead of a holder.

- `V` votes for the holder. The node raises its counter to the token if it is larger than all that it knows, and answers with it. A block
  of tokens is its first and its last one, 32 digits: the node compares the first, and writes and answers the last. Else it
  answers `known`, the token of the vote so far, the smallest token that it would accept, and the ms left.
  `known` is `?` for a node that knows no token at all: it is new, or has lost its data. A vote that exists already is not extended,
  but belongs to the newer round then. 0: another holder has its vote.
- `W` writes the token that was agreed on; 1 where the holder has the vote. A node that knows no token learns it only with the vote of
  that very round: a write that was in flight while the node lost its data may be older than tokens that were granted since.
- `A` asks again for a vote that was lost, with the token of the grant: 1 where no holder had the node's vote. It never makes a counter
  where there is none, because a node that has lost its data must not be taken for one that remembers.
- `E` extends, and answers with the round of the vote. `R` releases or retains, for any round; `C` cleans up after a round and those
  before it, not after a later one.
- `I` shows the vote, `F` removes it.

One vote or one release alone takes a shorter path and is answered without a list: a single caller is bound by each microsecond, on all
nodes.
]]
local call, sub = redis.call, string.sub
local counter = KEYS[1]

if #KEYS == 2 then
  local code, holder = ARGV[1], ARGV[2]
  if code == 'V' then
    local first, token, last = sub(ARGV[4], 1, 16), sub(ARGV[4], -16), call('GET', counter)
    if last and first > last and call('SET', KEYS[2], holder .. token .. ARGV[5], 'NX', 'PX', ARGV[3]) then
      call('SET', counter, token)
      return token
    end
  elseif code == 'R' and ARGV[3] == '0' then
    local vote = call('GET', KEYS[2])
    if vote and sub(vote, 1, 32) == holder then return call('DEL', KEYS[2]) end
    return 0
  end
end

local replies = {}
for index = 2, #KEYS do
  local lock, at = KEYS[index], 5 * index - 9
  local code, holder, ms, token, round = ARGV[at], ARGV[at + 1], ARGV[at + 2], ARGV[at + 3], ARGV[at + 4]
  local vote = call('GET', lock)
  local mine = vote and sub(vote, 1, 32) == holder
  local reply = 0
  if code == 'V' then
    if not vote or mine then
      local last = call('GET', counter)
      if last and not vote and sub(token, 1, 16) > last then
        token = sub(token, -16)
        call('SET', counter, token)
        call('SET', lock, holder .. token .. round, 'PX', ms)
        reply = token
      else
        local time = call('TIME')
        local least = time[1] .. sub('00000' .. time[2], -6)
        if last and last >= least then least = string.format('%.0f', last + 1) end
        local written, left = '0000000000000000', ms
        if mine then
          written, left = sub(vote, 33, 48), call('PTTL', lock)
          if sub(vote, 49) < round then call('SET', lock, sub(vote, 1, 48) .. round, 'KEEPTTL') end
        else
          call('SET', lock, holder .. written .. round, 'PX', ms)
        end
        reply = (last and '+' or '?') .. written .. least .. left
      end
    end
  elseif code == 'W' then
    local last = call('GET', counter)
    if (last and last < token) or (not last and mine and sub(vote, 49) == round) then call('SET', counter, token) end
    if mine then
      call('SET', lock, holder .. token .. sub(vote, 49), 'KEEPTTL')
      reply = 1
    end
  elseif code == 'E' then
    if mine and call('PEXPIRE', lock, ms) == 1 then reply = sub(vote, 49) end
  elseif code == 'A' then
    if not vote then
      call('SET', lock, holder .. token .. round, 'PX', ms)
      local last = call('GET', counter)
      if last and last < token then call('SET', counter, token) end
      reply = 1
    end
  elseif code == 'R' then
    if mine then
      if ms == '0' then
        call('DEL', lock)
      else
        call('SET', lock, string.rep('-', 32) .. sub(vote, 33), 'PX', ms)
      end
      reply = 1
    end
  elseif code == 'C' then
    if mine and sub(vote, 49) <= round then reply = call('DEL', lock) end
  elseif code == 'I' then
    if vote then reply = sub(vote, 1, 48) .. call('PTTL', lock) end
  elseif code == 'F' then
    reply = call('DEL', lock)
  end
  replies[index - 1] = reply
end
return replies
