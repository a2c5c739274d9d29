--[[
The records of a lock: its holder, its waiters, and the processes that are alive.

Keys of one bucket, all in one hash slot:
  counter        <ns>:{b}           STRING  the last fencing token that was given out or reserved
  seen           <ns>:{b}seen       ZSET    process → server time (ms) of its last ask
  lock           <ns>:{b}:<key>     STRING  see below
  queue          <lock>}q           ZSET    member → when its oldest caller came: server time (µs) − its age at the last ask;
                                            member = mode (x|s|l) process provisional sole terms ':' holder; sole = 'm' for a request with
                                            minHold, terms = ' ' weight ' ' limit in mode l, and else these are empty. A request has one
                                            member, and a process one request for a key and depth of nesting.
  holders        <lock>}r           ZSET    record → server time (ms) when its lease ends; of readers and limited holders.
                                            record = 'h' holder terms | 'c' process holder terms (provisional) |
                                            'k' (retained by readers that have left) | 'k' holder terms (by a limited holder)

A further key, <lock>}t, is the label of a traced hold. No script reads or writes it.

The lock's value starts with its state; fields have fixed widths (token 16 digits, time 13, process 12):
  p token holder                held, and nobody has queued since: a release need not read the queue. The token is the last of those
                                that are reserved for the callers of its process, which hold the lock one after the other
  w token holder                held, perhaps with waiters
  m token time holder           held, not to be freed before time (minHold)
  c token time process holder   handed off and not yet confirmed: a provisional lease that ends at time. The key outlives it, so
                                the next look finds which process did not answer
  o token holder terms          held by one limited holder, and nobody has come since: it has no record. The next to come writes one
  s token                       held by the readers
  l token terms                 held by the limited holders, whose terms these are; without terms if they have different ones
  k ...                         retained: nobody holds it until the key expires
Any other text was not written here. The lock is then taken, by nobody who is known, and the text stays as it is.
]]
-- The requests of a process that has not asked for LIVE ms are removed; if it lives, it asks again. Every record of waiting expires after
-- KEEP ms. Both are longer than the second between two asks of a process with waiters, and FRESH is shorter.
local FRESH, LIVE, KEEP = 500, 3000, 10000
-- No tokens to spare are given out while the counter is more than AHEAD µs ahead of the clock: at 20 000 handoffs a second it would run
-- away from it, and after a loss of data the clock alone keeps tokens growing.
local AHEAD = 1000

local find, match = string.find, string.match
local max, min = math.max, math.min
local process = ARGV[1]
time = time or call('TIME')
local micros = time[1] * 1000000 + time[2]
local now = math.floor(micros / 1000)
local stamp = format('%016.0f', micros)
local HOLDER_AT = { p = 18, w = 18, m = 31, c = 43 }
local seen = counter .. 'seen'

-- Fails an operation that would replace or delete what no script has written.
local function refuse(key)
  error('WRONGTYPE "' .. key .. '" holds a value that was not written for locks', 0)
end

-- The last of the next tokens of the bucket, one unless there is a count: larger than every earlier one, and not below the server's clock,
-- so that tokens keep growing after the counter was lost. The first of a call reserves one for each of its operations and more: the
-- counter is written before any record with a token. Answers also how many were taken, which may be less of those to spare.
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

-- When a process has asked last, read once a call: it may be queued several times.
local lastAsk = {}
local function lastAskOf(who)
  if who == process then return now end
  lastAsk[who] = lastAsk[who] or tonumber(call('ZSCORE', seen, who) or 0)
  return lastAsk[who]
end

-- The process did not answer a grant, so it counts as dead until it asks again. XX LT: dead processes do not come back.
local function passOver(who)
  lastAsk[who] = nil
  call('ZADD', seen, 'XX', 'LT', now - LIVE, who)
end

-- Removes the records of processes that have ended.
local function forgetTheDead()
  for _, who in ipairs(call('ZRANGEBYSCORE', seen, '-inf', now - KEEP, 'LIMIT', 0, 100)) do call('ZREM', seen, who) end
end

-- Whether a script has written this value of a lock. Asked before it is replaced or deleted by others than its holder, whose id proves it.
local function isOurs(value)
  local _, digits = find(value, '^%l%d+')
  if not digits or digits < 17 then return false end
  local state = byte(value)
  if state == 115 then return #value == 17 end -- s
  if state == 108 then return #value == 17 or find(value, '^ %d+ %d+$', 18) end -- l
  if state == 111 then return find(value, '^%w+ %d+ %d+$', 18) end -- o
  if state == 99 or state == 109 then return digits >= 30 and find(value, '^%w+$', 31) end -- c, m
  return (state == 112 or state == 119 or state == 107) and find(value, '^%w+$', 18) -- p, w, k
end

-- Whether this sorted set has records, of this form and with scores of at least so much. Fails if somebody else has written it.
local function hasRecords(set, form, least)
  local first, score = unpack(call('ZRANGE', set, 0, 0, 'WITHSCORES'))
  if first and not (find(first, form) and tonumber(score) >= least) then refuse(set) end
  return first
end

-- Whether there are holders, such as those of a lock that was deleted or evicted. Their scores are times in ms.
local function hasHolders(holders)
  return hasRecords(holders, '^[hck]%w*[%d ]*$', 1000000000000)
end

-- Held by any number of readers, or by limited holders.
local function isJoint(value)
  return value and (byte(value) == 115 or byte(value) == 108) -- s, l
end

-- Whether a lock's value is that of one limited holder without a record.
local function isSole(value, holder, terms)
  return value and byte(value) == 111 and sub(value, 18) == holder .. terms -- o
end

-- Writes the record of the one limited holder of a lock. Answers the lock's value.
local function recordSole(lock, value)
  local left, holders = call('PTTL', lock), lock .. '}r'
  local joint = 'l' .. sub(value, 2, 17) .. match(value, ' %d+ %d+$')
  local hasLeft = hasHolders(holders)
  -- First, because it is allowed when the memory is full, and after it this script may also write.
  call('PEXPIRE', lock, left + KEEP)
  call('SET', lock, joint, 'KEEPTTL')
  -- What is left of holders whose lock was deleted or evicted is not theirs any more.
  if hasLeft then call('DEL', holders) end
  call('ZADD', holders, now + left, 'h' .. sub(value, 18))
  call('PEXPIRE', holders, left + KEEP)
  return joint
end

-- Ends the provisional lease, the readers or the limited holders of a lock's value that have run out. False when the lock is free,
-- '?' when it is a text that would be ended and was not written here.
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

-- What the holders of a lock take together, and how much they may take: all that wants to enter is admitted beside readers.
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

-- Whether the lock is granted beside those that hold it, and take so much of the smallest of their limits.
local function admits(value, used, smallest, mode, weight, limit)
  if not value then return true end
  if mode == 'x' or sub(value, 1, 1) ~= mode then return false end
  return mode == 's' or used + weight <= min(smallest, limit)
end

-- The record of this process's holder among those that hold the lock together, and when its lease ends; nothing when it is not there.
local function recordOf(lock, holder, terms)
  for _, record in ipairs({ 'h' .. holder .. terms, 'c' .. process .. holder .. terms }) do
    local ends = call('ZSCORE', lock .. '}r', record)
    if ends then return record, tonumber(ends) end
  end
end

-- In how many ms the lock frees itself unless it is renewed; of a limited lock, the first of its holders.
local function freeIn(lock, value)
  local left
  if not value then left = 0
  elseif isJoint(value) then
    local at = byte(value) == 108 and 0 or -1 -- l
    left = call('ZRANGE', lock .. '}r', at, at, 'WITHSCORES')[2] - now
  elseif byte(value) == 99 then left = tonumber(sub(value, 18, 30)) - now -- c
  else left = call('PTTL', lock) end
  -- Without an end, because somebody else has written it: a second, so that its waiters do not ask all the time.
  if left == -1 then left = 1000 end
  return max(left, 0)
end

-- Whether the holder holds the lock exclusively.
local function isOwn(value, holder)
  local at = value and HOLDER_AT[sub(value, 1, 1)]
  return at and sub(value, at) == holder
end

-- Keeps a record for so many ms.
local function stay(lock, record, ttl)
  local till = max(call('PTTL', lock), ttl + KEEP)
  -- First, because it is allowed when the memory is full, and after it this script may also write.
  call('PEXPIRE', lock, till)
  call('PEXPIRE', lock .. '}r', till)
  call('ZADD', lock .. '}r', now + ttl, record)
end

-- Adds a reader or a limited holder; the first one takes the lock for all. Answers the token, which all share, and the lock's value.
local function join(lock, value, mode, record, terms, ttl)
  local holders, isLonger = lock .. '}r', true
  if not value then
    -- What is left of holders whose lock was deleted or evicted is not theirs any more.
    if hasHolders(holders) then call('DEL', holders) end
    value = mode .. takeTokens() .. terms
    call('SET', lock, value, 'PX', ttl + KEEP)
  else
    if #value > 17 and sub(value, 18) ~= terms then
      value = sub(value, 1, 17)
      call('SET', lock, value, 'KEEPTTL')
    end
    -- Rarely: a release that grants to a thousand of them then writes a third less to the log.
    isLonger = call('PTTL', lock) < ttl + KEEP
    if isLonger then call('PEXPIRE', lock, ttl + KEEP) end
  end
  call('ZADD', holders, now + ttl, record .. terms)
  if isLonger then call('PEXPIRE', holders, ttl + KEEP) end
  return sub(value, 2, 17), value
end

-- Answers whether it was the last one, and the lock is free. Asked before: what is gone from a slot that migrates cannot be asked about.
local function leaveJoint(lock, record)
  local holders = lock .. '}r'
  if call('ZCARD', holders) > 1 then
    call('ZREM', holders, record)
    return false
  end
  call('DEL', lock, holders)
  return true
end
