--[[
The records of a lock: its holder, its waiters, and the processes that are alive.

Keys of a bucket, all in one hash slot:
  counter        <ns>:{b}           STRING  the last fencing token that was granted or reserved
  seen           <ns>:{b}seen       ZSET    process → server time (ms) of its last acquire
  lock           <ns>:{b}:<key>     STRING  see below
  queue          <lock>}q           ZSET    member → arrival of its oldest caller: server time (µs) − its age at the last acquire;
                                            member = mode (x|s|l) process provisional sole terms ':' holder; sole = 'm' for a request with
                                            minHold, terms = ' ' weight ' ' limit in mode l, otherwise both are empty. A request has one
                                            member, and a process has one request for each key and depth of nesting.
  holders        <lock>}r           ZSET    record → server time (ms) when its lease ends, for readers and limited holders.
                                            record = 'h' holder terms | 'c' process holder terms (provisional) |
                                            'k' (retained by readers that have left) | 'k' holder terms (retained by a limited holder)

The trace label of a key is stored under <ns>:{b}label:<key>. No script reads or writes it.

The lock's value starts with its state; fields have fixed widths (token 16 digits, time 13, process 12):
  p token holder                held, and no request has queued since, so a release need not read the queue. The token is the last of the
                                block for the callers of its process, which hold the lock one after the other
  w token holder                held, perhaps with waiters
  c token time process holder   handed off but not confirmed: the provisional lease ends at time. The key outlives it, so that the
                                next operation finds out which process did not respond
  o token holder terms          held by a single limited holder, without a record. The next request to arrive writes its record
  s token                       held by readers
  l token terms                 held by limited holders with these terms; without terms if theirs differ
  k ...                         retained: not held, but locked until the key expires
Any other value was not written by this script. It counts as a lock with an unknown holder, and stays unchanged.
]]
-- Requests of a process that has not polled for LIVE ms are removed. If the process is alive, it queues them again. Records about waiting
-- expire after KEEP ms. Both are longer than the poll interval of one second, and FRESH is shorter.
local FRESH, LIVE, KEEP = 500, 3000, 10000
-- While the counter is more than AHEAD µs ahead of the clock, no spare tokens are reserved. At 20,000 handoffs a second, the counter would run
-- far ahead of the clock, and after a loss of data, only the clock keeps tokens growing.
local AHEAD = 1000

local find, match = string.find, string.match
local max, min = math.max, math.min
local process = ARGV[1]
time = time or call('TIME')
local micros = time[1] * 1000000 + time[2]
local now = math.floor(micros / 1000)
local stamp = format('%016.0f', micros)
local HOLDER_AT = { p = 18, w = 18, c = 43 }
local seen = counter .. 'seen'

-- Fails an operation that would replace or delete a value that is not ours.
local function refuse(key)
  error('WRONGTYPE "' .. key .. '" holds a value that was not written for locks', 0)
end

-- Takes the next `count` tokens of the bucket (default 1), and returns the last one and their number, which may be smaller for spare tokens.
-- Tokens are larger than all earlier ones, and not below the server's clock, so that they keep growing after the counter is lost. The first
-- take of a call reserves enough for all its operations, so that the counter is written before any record with a token.
local lastToken, lastReserved = 0, 0
local function takeTokens(count, isSpare)
  count = count or 1
  if lastToken + count > lastReserved then
    local ahead = operations + count + 9
    lastToken = max(lastToken, micros)
    local before = call('SET', counter, lastToken + ahead, 'GET')
    local last = tonumber(before or 0)
    if not last then
      call('SET', counter, before)
      refuse(counter)
    end
    if last >= lastToken then
      lastToken = last
      if last - micros > AHEAD then
        if isSpare then count = 1 end
        ahead = count
      end
      call('SET', counter, lastToken + ahead)
    end
    lastReserved = lastToken + ahead
  end
  lastToken = lastToken + count
  return format('%016.0f', lastToken), count
end

-- When a process was last seen. Cached for the call, because the process may be queued several times.
local lastAsk = {}
local function lastAskOf(who)
  if who == process then return now end
  lastAsk[who] = lastAsk[who] or tonumber(call('ZSCORE', seen, who) or 0)
  return lastAsk[who]
end

-- The process did not respond to a grant, so it counts as dead until its next acquire. XX LT: never revives a dead process.
local function passOver(who)
  lastAsk[who] = nil
  call('ZADD', seen, 'XX', 'LT', now - LIVE, who)
end

-- Removes the entries of dead processes.
local function forgetTheDead()
  for _, who in ipairs(call('ZRANGEBYSCORE', seen, '-inf', now - KEEP, 'LIMIT', 0, 100)) do call('ZREM', seen, who) end
end

-- Whether our script wrote this value of a lock. Checked before the value is replaced or deleted, except for its holder, whose id proves it.
local function isOurs(value)
  local _, digits = find(value, '^%l%d+')
  if not digits or digits < 17 then return false end
  local state = byte(value)
  if state == 115 then return #value == 17 end -- s
  if state == 108 then return #value == 17 or find(value, '^ %d+ %d+$', 18) end -- l
  if state == 111 then return find(value, '^%w+ %d+ %d+$', 18) end -- o
  if state == 99 then return digits >= 30 and find(value, '^%w+$', 31) end -- c
  return (state == 112 or state == 119 or state == 107) and find(value, '^%w+$', 18) -- p, w, k
end

-- Returns the first record of a sorted set. Fails if its form or its score shows that the set is not ours.
local function hasRecords(set, form, least)
  local first, score = unpack(call('ZRANGE', set, 0, 0, 'WITHSCORES'))
  if first and not (find(first, form) and tonumber(score) >= least) then refuse(set) end
  return first
end

-- Whether there are holders, perhaps of a lock that was deleted or evicted. Their scores are times in ms.
local function hasHolders(holders)
  return hasRecords(holders, '^[hck]%w*[%d ]*$', 1000000000000)
end

-- Whether the lock is held by readers or limited holders with records.
local function isJoint(value)
  return value and (byte(value) == 115 or byte(value) == 108) -- s, l
end

-- Whether this is the single limited holder of a lock, without a record.
local function isSole(value, holder, terms)
  return value and byte(value) == 111 and sub(value, 18) == holder .. terms -- o
end

-- Writes the record of the single limited holder of a lock. Returns the lock's new value.
local function recordSole(lock, value)
  local left, holders = call('PTTL', lock), lock .. '}r'
  local joint = 'l' .. sub(value, 2, 17) .. match(value, ' %d+ %d+$')
  local hasLeft = hasHolders(holders)
  -- PEXPIRE first: Redis allows it when memory is full, and then allows all further writes of the script.
  call('PEXPIRE', lock, left + KEEP)
  call('SET', lock, joint, 'KEEPTTL')
  -- Removes holders whose lock was deleted or evicted: they no longer hold it.
  if hasLeft then call('DEL', holders) end
  call('ZADD', holders, now + left, 'h' .. sub(value, 18))
  call('PEXPIRE', holders, left + KEEP)
  return joint
end

-- Ends a provisional lease, readers or limited holders that have expired. Returns the lock's value, false if the lock is free, or '?' if the
-- value looks expired but is not ours.
local function endExpired(lock, value)
  if not value then return false end
  if byte(value) == 111 then return isOurs(value) and recordSole(lock, value) or '?' end -- o
  if byte(value) == 99 then -- c
    local ends = tonumber(sub(value, 18, 30))
    if ends and ends > now then return value end
    if not isOurs(value) then return '?' end
    passOver(sub(value, 31, 42))
    call('DEL', lock)
    return false
  elseif isJoint(value) then
    if not isOurs(value) then return '?' end
    local holders = lock .. '}r'
    for _, record in ipairs(call('ZRANGEBYSCORE', holders, '-inf', now)) do
      if byte(record) == 99 then passOver(sub(record, 2, 13)) end
      call('ZREM', holders, record)
    end
    if call('EXISTS', holders) == 0 then
      call('DEL', lock)
      return false
    end
  end
  return value
end

-- The weight and the limit in terms such as ' 2 5', or at the end of a record.
local function termsOf(text)
  local weight, limit = match(text, ' (%d+) (%d+)$')
  return tonumber(weight), tonumber(limit)
end

-- The total weight of a lock's holders, and the smallest of their limits. Readers have no limit.
local function usage(lock, value)
  local state = value and byte(value)
  if not state or state == 115 then return 0, math.huge end -- s
  if state ~= 108 then return 0, 0 end -- l
  local weight, limit = termsOf(sub(value, 18))
  if weight then return weight * call('ZCARD', lock .. '}r'), limit end
  local used, smallest = 0, math.huge
  for _, record in ipairs(call('ZRANGE', lock .. '}r', 0, -1)) do
    weight, limit = termsOf(record)
    used, smallest = used + weight, min(smallest, limit)
  end
  return used, smallest
end

-- Whether a request may join the current holders, which use `used` of `smallest`.
local function admits(value, used, smallest, mode, weight, limit)
  if not value then return true end
  if mode == 'x' or sub(value, 1, 1) ~= mode then return false end
  return mode == 's' or used + weight <= min(smallest, limit)
end

-- The record of this process's holder among joint holders, and when its lease ends; nil if it has none.
local function recordOf(lock, holder, terms)
  for _, record in ipairs({ 'h' .. holder .. terms, 'c' .. process .. holder .. terms }) do
    local ends = call('ZSCORE', lock .. '}r', record)
    if ends then return record, tonumber(ends) end
  end
end

-- How many ms remain until the lock becomes free unless it is renewed; for a limited lock, until the first of its holders expires.
local function freeIn(lock, value)
  local left
  if not value then left = 0
  elseif isJoint(value) then
    local at = byte(value) == 108 and 0 or -1 -- l
    left = call('ZRANGE', lock .. '}r', at, at, 'WITHSCORES')[2] - now
  elseif byte(value) == 99 then left = tonumber(sub(value, 18, 30)) - now -- c
  else left = call('PTTL', lock) end
  -- A value that is not ours might never expire. One second, so that its waiters don't poll constantly.
  if left == -1 then left = 1000 end
  return max(left, 0)
end

-- Whether the holder holds the lock exclusively.
local function isOwn(value, holder)
  local at = value and HOLDER_AT[sub(value, 1, 1)]
  return at and sub(value, at) == holder
end

-- Keeps a record for the given number of ms.
local function stay(lock, record, ttl)
  local till = max(call('PTTL', lock), ttl + KEEP)
  -- PEXPIRE first: Redis allows it when memory is full, and then allows all further writes of the script.
  call('PEXPIRE', lock, till)
  call('PEXPIRE', lock .. '}r', till)
  call('ZADD', lock .. '}r', now + ttl, record)
end

-- Adds a reader or a limited holder. The first one takes the lock for all. Returns their shared token and the lock's value.
local function join(lock, value, mode, record, terms, ttl)
  local holders, isLonger = lock .. '}r', true
  if not value then
    -- Removes holders whose lock was deleted or evicted: they no longer hold it.
    if hasHolders(holders) then call('DEL', holders) end
    value = mode .. takeTokens() .. terms
    call('SET', lock, value, 'PX', ttl + KEEP)
  else
    if #value > 17 and sub(value, 18) ~= terms then
      value = sub(value, 1, 17)
      call('SET', lock, value, 'KEEPTTL')
    end
    -- Only if needed: a release that grants to a thousand of them then writes a third less to the AOF.
    isLonger = call('PTTL', lock) < ttl + KEEP
    if isLonger then call('PEXPIRE', lock, ttl + KEEP) end
  end
  call('ZADD', holders, now + ttl, record .. terms)
  if isLonger then call('PEXPIRE', holders, ttl + KEEP) end
  return sub(value, 2, 17), value
end

-- Removes a joint holder. Returns whether it was the last one, so that the lock is free. ZCARD comes first, because in a migrating slot a
-- script cannot read a key that no longer exists.
local function leaveJoint(lock, record)
  local holders = lock .. '}r'
  if call('ZCARD', holders) > 1 then
    call('ZREM', holders, record)
    return false
  end
  call('DEL', lock, holders)
  return true
end
