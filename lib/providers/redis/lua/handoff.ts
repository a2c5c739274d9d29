/**
 * The records of a lock and the handoff: its holder, its waiters, the processes that are alive, and the grant to the next waiter.
 *
 * Keys of one bucket, all in one hash slot:
 *   counter        <ns>:{b}           STRING  the last number given out, as fencing token or as ticket
 *   seen           <ns>:{b}seen       ZSET    process → server time (ms) of its last ask
 *   lock           <ns>:{b}:<key>     STRING  see below
 *   queue          <lock>}q           ZSET    member → ticket; member = mode (x|s|l) process provisional terms ':' holder. A provisional
 *                                             lease that begins with 0 is that of an attempt with minHold; terms = ' ' weight ' ' limit in
 *                                             mode l, and else empty
 *   readers        <lock>}r           ZSET    reader → server time (ms) when its lease ends, also of limited holders;
 *                                             reader = 'h' holder | 'c' process holder (provisional) | 'k' holder (retained); a limited one is
 *                                             followed by its terms and ' ' token
 *
 * The lock's value starts with its state; fields have fixed widths (token 16 digits, time 13, process 12):
 *   p token holder                held, and no waiter has queued since: a release need not read the queue
 *   w token holder                held, perhaps with waiters
 *   m token time holder           held, not to be freed before time (minHold)
 *   c token time process holder   handed off and not yet confirmed: a provisional lease that ends at time. The key outlives it, so
 *                                 the next look finds which process did not answer
 *   s token                       held by the readers
 *   l token                       held by limited holders; the token of the latest
 *   k ...                         retained: nobody holds it until the key expires
 */
export const HANDOFF = `
-- The waiters of a process that has not asked for LIVE ms are removed; if it lives, it asks again with their tickets. Every record of
-- waiting expires after KEEP ms. Both are longer than the second between two asks of a process with waiters, and FRESH is shorter.
local FRESH, LIVE, KEEP = 500, 3000, 10000
-- At most so many waiters of one process are handed the lock together.
local COHORT = 16

local sub, byte, format, max, min = string.sub, string.byte, string.format, math.max, math.min
local process = ARGV[1]
local time = call('TIME')
local micros = time[1] * 1000000 + time[2]
local now = math.floor(micros / 1000)
local stamp = format('%016.0f', micros)
local HOLDER_AT = { p = 18, w = 18, m = 31, c = 43 }
local counter, seen = KEYS[1], KEYS[1] .. 'seen'
local notices = {}

-- The next number of the bucket: larger than every earlier one, and not below the server's clock, so that numbers keep
-- growing after the counter was lost. The first number of a call reserves one for each of its operations and more: the counter is
-- written before any record with a number. With more, so many following numbers are taken as well.
local nextNumber, reserved = 0, 0
local function number(more)
  more = more or 0
  if nextNumber + more >= reserved then
    local ahead = #KEYS + more + 8
    nextNumber = max(nextNumber, micros)
    local last = tonumber(call('SET', counter, nextNumber + ahead, 'GET') or 0)
    if last >= nextNumber then
      nextNumber = last + 1
      call('SET', counter, nextNumber + ahead)
    end
    reserved = nextNumber + ahead
  end
  local first = nextNumber + 1
  nextNumber = first + more
  return format('%016.0f', first)
end

-- When a process has asked last, read once a call: thousands of its waiters may be queued.
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

-- Ends the provisional lease or the readers of a lock's value that have run out. False when the lock is free.
local function look(lock, value)
  if not value then return false end
  local state = sub(value, 1, 1)
  if state == 'c' then
    if tonumber(sub(value, 18, 30)) > now then return value end
    passOver(sub(value, 31, 42))
    call('DEL', lock)
    return false
  elseif state == 's' or state == 'l' then
    local readers = lock .. '}r'
    for _, reader in ipairs(call('ZRANGEBYSCORE', readers, '-inf', now)) do
      if sub(reader, 1, 1) == 'c' then passOver(sub(reader, 2, 13)) end
      call('ZREM', readers, reader)
    end
    if call('EXISTS', readers) == 0 then
      call('DEL', lock)
      return false
    end
  end
  return value
end

local function isLimited(value)
  return value and sub(value, 1, 1) == 'l'
end

-- Held by any number of readers, or by limited holders.
local function isJoint(value)
  return value and (sub(value, 1, 1) == 's' or sub(value, 1, 1) == 'l')
end

-- The limited holders, each with its record, when its lease ends, its weight, its limit and its token. All of them are read: there
-- are at most as many as the limit.
local function limitedHolders(lock)
  local all, records = {}, call('ZRANGE', lock .. '}r', 0, -1, 'WITHSCORES')
  for i = 1, #records, 2 do
    local weight, limit, token = string.match(records[i], ' (%d+) (%d+) (%d+)$')
    all[#all + 1] = { records[i], tonumber(records[i + 1]), tonumber(weight), tonumber(limit), token }
  end
  return all
end

-- The weight and the limit in terms such as '2 5'.
local function termsOf(terms)
  local weight, limit = string.match(terms, '^(%d+) (%d+)$')
  return tonumber(weight), tonumber(limit)
end

-- What they take together, and the smallest of their limits.
local function usage(lock)
  local used, smallest = 0, math.huge
  for _, holder in ipairs(limitedHolders(lock)) do
    used, smallest = used + holder[3], min(smallest, holder[4])
  end
  return used, smallest
end

-- Whether the lock is granted beside those that hold it; used and smallest are those of limited holders.
local function admits(value, mode, weight, limit, used, smallest)
  if not value then return true end
  if mode == 'x' or sub(value, 1, 1) ~= mode then return false end
  return mode == 's' or used + weight <= min(smallest, limit)
end

-- The smallest limit of the holders, if it is another one than that of the caller, as replies and notices have it.
local function other(limit, smallest)
  return limit and smallest < math.huge and smallest ~= limit and format(' %.0f', smallest) or ''
end

-- The record of this process's holder among the readers or limited holders, when its lease ends, and its token; nothing when it
-- holds no share.
local function readerOf(lock, value, holder)
  local held, provisional = 'h' .. holder, 'c' .. process .. holder
  if isLimited(value) then
    for _, each in ipairs(limitedHolders(lock)) do
      local id = string.match(each[1], '^[^ ]*')
      if id == held or id == provisional then return each[1], each[2], each[5] end
    end
    return
  end
  for _, reader in ipairs({ held, provisional }) do
    local ends = call('ZSCORE', lock .. '}r', reader)
    if ends then return reader, tonumber(ends), sub(value, 2, 17) end
  end
end

-- Whether the holder holds the lock exclusively.
local function isOwn(value, holder)
  local at = value and HOLDER_AT[sub(value, 1, 1)]
  return at and sub(value, at) == holder
end

-- Keeps the record of a reader or limited holder for so many ms.
local function stay(lock, reader, ttl)
  call('ZADD', lock .. '}r', now + ttl, reader)
  local till = max(call('PTTL', lock), ttl + KEEP)
  call('PEXPIRE', lock, till)
  call('PEXPIRE', lock .. '}r', till)
end

-- Adds a reader, or with terms a limited holder; the first one takes the lock for all. Answers the token, which readers share and limited
-- holders do not, and the record.
local function join(lock, value, reader, ttl, terms)
  local token = terms == '' and value and sub(value, 2, 17) or number()
  if terms ~= '' then reader = reader .. ' ' .. terms .. ' ' .. token end
  if not value then
    -- What is left of readers whose lock was deleted or evicted is not theirs any more.
    call('DEL', lock .. '}r')
    call('SET', lock, (terms == '' and 's' or 'l') .. token, 'PX', ttl + KEEP)
  elseif terms ~= '' then
    call('SETRANGE', lock, 1, token)
  end
  stay(lock, reader, ttl)
  return token, reader
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
  if head then notify(sub(head, 2, 13), format('k%.0f %s', ms, lock)) end
end

-- The holders of the writers directly behind page[i] that differ from it in nothing else. None for an attempt with minHold: the server
-- would only record that of the first one, and that of the next would end if its process crashed.
local function followersOf(page, i)
  local behind, prefix = {}, string.match(page[i], '^.-:')
  if sub(prefix, 14, 14) == '0' then return behind end
  for at = i + 1, math.min(#page, i + COHORT - 1) do
    if sub(page[at], 1, #prefix) ~= prefix then break end
    behind[#behind + 1] = sub(page[at], #prefix + 1)
  end
  return behind
end

-- Hands the lock to the waiter page[i], with a provisional lease: its process must confirm. A writer gets the lock together with its
-- followers, to which the process hands it by itself; their tokens follow. They stay in the queue until the process releases them, so
-- they keep their positions in any case. Answers the lock's value, or false when the process does not listen. The value is written before
-- the message is sent, because a message about a grant that could not be written would be believed.
local function handOff(lock, value, page, i, otherLimit)
  local member = page[i]
  local who = sub(member, 2, 13)
  local provisional, terms, holder = string.match(member, '^(%d+) ?([%d ]*):(.*)$', 14)
  local token, reader, holders
  if sub(member, 1, 1) == 'x' then
    local behind = followersOf(page, i)
    token = number(#behind)
    -- Joined as text: a number keeps 14 digits, and this has 13 until the year 2286.
    value = 'c' .. token .. (now + provisional) .. who .. holder
    call('SET', lock, value, 'PX', provisional + KEEP)
    holders = #behind == 0 and holder or holder .. ',' .. table.concat(behind, ',')
  else
    holders = holder
    token, reader = join(lock, value, 'c' .. who .. holder, tonumber(provisional), terms)
    value = (terms == '' and 's' or 'l') .. token
  end
  if notify(who, token .. stamp .. provisional .. otherLimit .. ':' .. holders .. ' ' .. lock) then
    call('ZREM', lock .. '}q', member)
    return value
  end
  if reader then leaveReaders(lock, reader) else call('DEL', lock) end
  passOver(who)
  return false
end

-- The grant loop, run by every look that may find the lock free: from the head, every waiter that may enter is granted. Waiters of dead
-- processes are removed: when they were only passed over, 10 000 of them were read again by each look. Answers the lock's value, and whether a live
-- waiter was left.
local function serve(lock, value)
  local queue, count, used, smallest = lock .. '}q', COHORT, 0, math.huge
  if isLimited(value) then used, smallest = usage(lock) end
  while not value or isJoint(value) do
    local page, dead, isBlocked = call('ZRANGE', queue, 0, count - 1), {}, false
    for i, member in ipairs(page) do
      local granted = false
      if now - lastAskOf(sub(member, 2, 13)) < LIVE then
        local mode, weight, limit = sub(member, 1, 1)
        if mode == 'l' then weight, limit = termsOf(string.match(member, '^%d+ ([%d ]*)', 14)) end
        isBlocked = not admits(value, mode, weight, limit, used, smallest)
        if isBlocked then break end
        granted = handOff(lock, value, page, i, other(limit, smallest))
        if granted and limit then used, smallest = used + weight, min(smallest, limit) end
      end
      if granted then value = granted else dead[#dead + 1] = member end
      isBlocked = granted and not isJoint(value)
      if isBlocked then break end
    end
    if #dead > 0 then call('ZREM', queue, unpack(dead)) end
    if isBlocked then return value, true end
    if #page < count then break end
    count = 16 * COHORT
  end
  return value, false
end
`;
