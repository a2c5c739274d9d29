--[[
The records of a lock and the handoff: its holder, its waiters, the processes that are alive, and the grant to the next waiter.

Keys of one bucket, all in one hash slot:
  counter        <ns>:{b}           STRING  the last fencing token that was given out or reserved
  seen           <ns>:{b}seen       ZSET    process → server time (ms) of its last ask
  lock           <ns>:{b}:<key>     STRING  see below
  queue          <lock>}q           ZSET    member → when its oldest caller came: server time (µs) − its age at the last ask;
                                            member = mode (x|s|l) process provisional terms ':' holder. A provisional lease that begins
                                            with 0 is that of a request with minHold; terms = ' ' weight ' ' limit in mode l, and else
                                            empty. A request has one member, and a process one request for a key and depth of nesting.
  readers        <lock>}r           ZSET    reader → server time (ms) when its lease ends;
                                            reader = 'h' holder | 'c' process holder (provisional) | 'k' (retained by those that have left)

The lock's value starts with its state; fields have fixed widths (token 16 digits, time 13, process 12):
  p token holder                held, and nobody has queued since: a release need not read the queue. The token is the last of those
                                that are reserved for the callers of its process, which hold the lock one after the other
  w token holder                held, perhaps with waiters
  m token time holder           held, not to be freed before time (minHold)
  c token time process holder   handed off and not yet confirmed: a provisional lease that ends at time. The key outlives it, so
                                the next look finds which process did not answer
  s token                       held by the readers
  l record record ...           held by limited holders, the latest last; record = state time ' ' token process holder ' ' weight ' ' limit ';',
                                with h, c or k as that of a reader, and the time when its lease ends
  k ...                         retained: nobody holds it until the key expires
]]
-- The requests of a process that has not asked for LIVE ms are removed; if it lives, it asks again. Every record of waiting expires after
-- KEEP ms. Both are longer than the second between two asks of a process with waiters, and FRESH is shorter.
local FRESH, LIVE, KEEP = 500, 3000, 10000
-- So many tokens are reserved for a process that is handed the lock, because more callers may have come to it since it asked. One is, while
-- the counter is more than AHEAD µs ahead of the clock: at 20 000 handoffs a second it would run away from it, and after a loss of data
-- the clock alone keeps tokens growing.
local COHORT, AHEAD = 64, 1000
-- So many of the queue are read at first: usually the head is granted.
local PAGE = 16

local sub, byte, find, format, max, min = string.sub, string.byte, string.find, string.format, math.max, math.min
local process = ARGV[1]
local time = call('TIME')
local micros = time[1] * 1000000 + time[2]
local now = math.floor(micros / 1000)
local stamp = format('%016.0f', micros)
local HOLDER_AT = { p = 18, w = 18, m = 31, c = 43 }
local counter, seen = KEYS[1], KEYS[1] .. 'seen'
local notices = {}

-- The last of the next tokens of the bucket, one unless there is a count: larger than every earlier one, and not below the server's clock,
-- so that tokens keep growing after the counter was lost. The first of a call reserves one for each of its operations and more: the
-- counter is written before any record with a token. Answers also how many were taken, which may be less of those to spare.
local lastToken, reserved = 0, 0
local function takeTokens(count, isSpare)
  count = count or 1
  if lastToken + count > reserved then
    local ahead = #KEYS + count + 8
    lastToken = max(lastToken, micros)
    local last = tonumber(call('SET', counter, lastToken + ahead, 'GET') or 0)
    if last >= lastToken then
      lastToken = last
      if last - micros > AHEAD then
        if isSpare then count = 1 end
        ahead = count
      end
      call('SET', counter, lastToken + ahead)
    end
    reserved = lastToken + ahead
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

local function isLimited(value)
  return value and byte(value) == 108 -- l
end

-- Held by any number of readers, or by limited holders.
local function isJoint(value)
  return value and (byte(value) == 115 or byte(value) == 108) -- s, l
end

-- Of limited holders: what they take together, the smallest of their limits, and when the first and the last of their leases end.
-- Counted once for a value, because hundreds may enter in one call.
local counted = {}
local function usage(value)
  if counted.value ~= value then
    local used, smallest, first, last = 0, math.huge, math.huge, 0
    for ends, weight, limit in string.gmatch(value, '(%d+) %S+ (%d+) (%d+);') do
      used, smallest = used + weight, min(smallest, limit)
      first, last = min(first, ends), max(last, ends)
    end
    counted = { value = value, used = used, smallest = smallest, first = first, last = last }
  end
  return counted.used, counted.smallest, counted.first, counted.last
end

-- The lock is kept until the last of these limited holders ends. Before they are written, because it is allowed when the memory is full, and
-- after it this script may also write.
local function keepHolders(lock, value)
  local _, _, _, last = usage(value)
  call('PEXPIRE', lock, last - now + KEEP)
end

-- Writes the value of limited holders. Answers it, or false when none is left and the lock is free.
local function writeHolders(lock, value)
  if value == 'l' then
    call('DEL', lock)
    return false
  end
  keepHolders(lock, value)
  call('SET', lock, value, 'KEEPTTL')
  return value
end

-- Where the record of this process's holder begins and ends among the limited holders; nothing when it holds no share.
local function recordOf(value, holder)
  local at = find(value, process .. holder .. ' ', 1, true)
  -- k
  if at and byte(value, at - 31) ~= 107 then return at - 31, find(value, ';', at, true) end
end

-- Puts a record under another state, with so many ms to its end; with neither it is removed. Of a change only these 14 bytes go to replicas and
-- to the log, not all holders: with 300 holders that was 25 kB for each renewal.
local function changeRecord(lock, value, from, to, state, ttl)
  if not state then return writeHolders(lock, sub(value, 1, from - 1) .. sub(value, to + 1)) end
  local head = state .. format('%.0f', now + ttl)
  value = sub(value, 1, from - 1) .. head .. sub(value, from + 14)
  keepHolders(lock, value)
  call('SETRANGE', lock, from - 1, head)
  return value
end

-- Ends the provisional lease, the readers or the limited holders of a lock's value that have run out. False when the lock is free.
local function look(lock, value)
  if not value then return false end
  local state = sub(value, 1, 1)
  if state == 'c' then
    if tonumber(sub(value, 18, 30)) > now then return value end
    passOver(sub(value, 31, 42))
    call('DEL', lock)
    return false
  elseif state == 's' then
    local readers = lock .. '}r'
    for _, reader in ipairs(call('ZRANGEBYSCORE', readers, '-inf', now)) do
      if sub(reader, 1, 1) == 'c' then passOver(sub(reader, 2, 13)) end
      call('ZREM', readers, reader)
    end
    if call('EXISTS', readers) == 0 then
      call('DEL', lock)
      return false
    end
  elseif state == 'l' then
    local _, _, first = usage(value)
    if first > now then return value end
    return writeHolders(lock, (string.gsub(value, '(%l)(%d+) ([^;]*);', function(each, ends, rest)
      if tonumber(ends) > now then return end
      if each == 'c' then passOver(sub(rest, 17, 28)) end
      return ''
    end)))
  end
  return value
end

-- The weight and the limit in terms such as '2 5'.
local function termsOf(terms)
  local weight, limit = string.match(terms, '^(%d+) (%d+)$')
  return tonumber(weight), tonumber(limit)
end

-- How many may enter at most.
local function room(value)
  local state = value and byte(value)
  if not state or state == 115 then return math.huge end -- s
  if state ~= 108 then return 0 end -- l
  local used, smallest = usage(value)
  return smallest - used
end

-- Whether the lock is granted beside those that hold it.
local function admits(value, mode, weight, limit)
  if not value then return true end
  if mode == 'x' or sub(value, 1, 1) ~= mode then return false end
  if mode == 's' then return true end
  local used, smallest = usage(value)
  return used + weight <= min(smallest, limit)
end

-- The record of this process's holder among the readers, and when its lease ends; nothing when it does not read.
local function readerOf(lock, holder)
  for _, reader in ipairs({ 'h' .. holder, 'c' .. process .. holder }) do
    local ends = call('ZSCORE', lock .. '}r', reader)
    if ends then return reader, tonumber(ends) end
  end
end

-- Whether the holder holds the lock exclusively.
local function isOwn(value, holder)
  local at = value and HOLDER_AT[sub(value, 1, 1)]
  return at and sub(value, at) == holder
end

-- Keeps the record of a reader for so many ms.
local function stay(lock, reader, ttl)
  local till = max(call('PTTL', lock), ttl + KEEP)
  -- First, because it is allowed when the memory is full, and after it this script may also write.
  call('PEXPIRE', lock, till)
  call('ZADD', lock .. '}r', now + ttl, reader)
  call('PEXPIRE', lock .. '}r', till)
end

-- Adds a reader; the first one takes the lock for all. Answers the token, which all share, and the lock's value.
local function join(lock, value, reader, ttl)
  if not value then
    value = 's' .. takeTokens()
    -- What is left of readers whose lock was deleted or evicted is not theirs any more.
    call('DEL', lock .. '}r')
    call('SET', lock, value, 'PX', ttl + KEEP)
  end
  stay(lock, reader, ttl)
  return sub(value, 2, 17), value
end

-- Adds a limited holder. Answers its token, and the lock's value.
local function enter(lock, value, state, who, holder, ttl, terms)
  local token, weight, limit = takeTokens(), termsOf(terms)
  local used, smallest, first, last = usage(value or 'l')
  local ends = now + ttl
  local record = state .. format('%.0f', ends) .. ' ' .. token .. who .. holder .. ' ' .. terms .. ';'
  value = (value or 'l') .. record
  counted = {
    value = value, used = used + weight, smallest = min(smallest, limit), first = min(first, ends), last = max(last, ends),
  }
  if used > 0 then call('APPEND', lock, record)
  else call('SET', lock, value) end
  call('PEXPIRE', lock, counted.last - now + KEEP)
  return token, value
end

-- Answers whether the last one has left, and the lock is free.
local function leaveReaders(lock, reader)
  call('ZREM', lock .. '}r', reader)
  return call('EXISTS', lock .. '}r') == 0 and call('DEL', lock)
end

-- Notifies a process: the calling one in this call's reply, others by a message. Answers whether it is received.
local function notify(who, notice)
  if who == process then
    notices[#notices + 1] = notice
    return true
  end
  return call('PUBLISH', counter .. who, notice) > 0
end

-- Notifies the process of the first waiter that the key is retained, for so many ms: it asks when they are over.
local function announceRetained(lock, ms)
  local head = call('ZRANGE', lock .. '}q', 0, 0)[1]
  if head then notify(sub(head, 2, 13), format('k%.0f:%s', ms, string.match(head, ':(.*)$'))) end
end

-- Hands the lock to a member of the queue, with a provisional lease: its process must confirm. A writer gets tokens for a cohort, unless
-- it has a minHold: the server would only record that of the first caller, and that of the next would end if its process crashed.
-- Answers the lock's value, or false when the process does not listen. The value is written before the message is sent, because a
-- message about a grant that could not be written would be believed.
local function handOff(lock, value, member)
  local before = value
  local mode, who = sub(member, 1, 1), sub(member, 2, 13)
  local provisional, terms, holder = string.match(member, '^(%d+) ?([%d ]*):(.*)$', 14)
  local token, count = nil, 1
  if mode == 'x' then
    token, count = takeTokens(byte(provisional) ~= 48 and COHORT or 1, true) -- 0
    -- Joined as text: a number keeps 14 digits, and this has 13 until the year 2286.
    value = 'c' .. token .. (now + provisional) .. who .. holder
    call('SET', lock, value, 'PX', provisional + KEEP)
  elseif mode == 's' then
    token, value = join(lock, value, 'c' .. who .. holder, tonumber(provisional))
  else
    token, value = enter(lock, value, 'c', who, holder, tonumber(provisional), terms)
  end
  if notify(who, token .. stamp .. format('%02d', count) .. provisional .. ':' .. holder .. ' ' .. lock) then
    call('ZREM', lock .. '}q', member)
    return value
  end
  if mode == 's' then leaveReaders(lock, 'c' .. who .. holder)
  elseif before then writeHolders(lock, before)
  else call('DEL', lock) end
  passOver(who)
  return false
end

-- The grant loop, run by every look that may find the lock free: from the head, every request that may enter is granted. Those of dead
-- processes are removed: when they were only passed over, 10 000 of them were read again by each look. Answers the lock's value, and
-- whether a live one was left. A mode letter that it does not know blocks the queue, so that a later version can add one.
local function serve(lock, value)
  local queue, count = lock .. '}q', min(PAGE, room(value))
  while room(value) > 0 do
    local page, dead, isBlocked = call('ZRANGE', queue, 0, count - 1), {}, false
    for _, member in ipairs(page) do
      local granted = false
      if now - lastAskOf(sub(member, 2, 13)) < LIVE then
        local mode, weight, limit = sub(member, 1, 1)
        if mode == 'l' then weight, limit = termsOf(string.match(member, '^%d+ ([%d ]*)', 14)) end
        isBlocked = not find('xsl', mode, 1, true) or not admits(value, mode, weight, limit)
        if isBlocked then break end
        granted = handOff(lock, value, member)
      end
      if granted then value = granted else dead[#dead + 1] = member end
      isBlocked = room(value) <= 0
      if isBlocked then break end
    end
    if #dead > 0 then call('ZREM', queue, unpack(dead)) end
    if isBlocked then return value, true end
    if #page < count then break end
    count = 16 * PAGE
  end
  return value, false
end
