/**
 * The records of a lock and the hand-off: who holds, who waits, who is alive, who is next.
 *
 * Keys of one bucket, all in one hash slot:
 *   counter        <ns>:{b}           STRING  the last number given out, as fencing token or as ticket
 *   seen           <ns>:{b}seen       ZSET    process → server time (ms) of its last ask
 *   lock           <ns>:{b}:<key>     STRING  see below
 *   queue          <lock>}q           ZSET    member → ticket; member = mode (x|s) process claim ':' holder
 *   readers        <lock>}r           ZSET    reader → server time (ms) when its lease ends;
 *                                             reader = 'h' holder | 'c' process holder (claim) | 'k' holder (parked)
 *
 * The lock's value starts with its state; fields have fixed widths (token 16 digits, time 13, process 12):
 *   p token holder                held, and nobody has queued since: a release need not look at the queue
 *   w token holder                held, perhaps with waiters
 *   m token time holder           held, not to be freed before time (minHold)
 *   c token time process holder   handed over and not yet confirmed: a claim that ends at time. The key outlives it, so that the
 *                                 next look learns which process did not answer
 *   s token                       held by the readers
 *   k ...                         parked: nobody holds it until the key expires
 */
export const HAND_OFF = `
-- A process that has not asked for LIVE ms is passed over; after KEEP ms its waiters are removed, and every record of waiting expires.
-- Both are longer than the second between two asks of a process with waiters.
local LIVE, KEEP = 3000, 10000

local sub, format, max = string.sub, string.format, math.max
local process = ARGV[1]
local time = call('TIME')
local micros = time[1] * 1000000 + time[2]
local now = math.floor(micros / 1000)
local HOLDER_AT = { p = 18, w = 18, m = 31, c = 43 }
local notices = {}
local numbers = {}

-- The next number of a bucket: larger than every earlier one, and not below the server's clock, so that numbers go on
-- growing after the counter was lost. Written before anything that bears it.
local function number(counter)
  local last = numbers[counter] or tonumber(call('GET', counter) or 0)
  local next = last < micros and micros or last + 1
  numbers[counter] = next
  call('SET', counter, next)
  return format('%016.0f', next)
end

-- The process did not answer a grant: others go first until it asks again. XX LT: the dead do not come back.
local function passOver(counter, who)
  call('ZADD', counter .. 'seen', 'XX', 'LT', now - LIVE, who)
end

-- Reads a lock's value, after ending what has run out. False when the lock is free.
local function look(lock, counter)
  local value = call('GET', lock)
  if not value then return false end
  local state = sub(value, 1, 1)
  if state == 'c' then
    if tonumber(sub(value, 18, 30)) > now then return value end
    passOver(counter, sub(value, 31, 42))
    call('DEL', lock)
    return false
  elseif state == 's' then
    local readers = lock .. '}r'
    for _, reader in ipairs(call('ZRANGEBYSCORE', readers, '-inf', now)) do
      if sub(reader, 1, 1) == 'c' then passOver(counter, sub(reader, 2, 13)) end
      call('ZREM', readers, reader)
    end
    if call('EXISTS', readers) == 0 then
      call('DEL', lock)
      return false
    end
  end
  return value
end

local function isShared(value)
  return value and sub(value, 1, 1) == 's'
end

-- The reader under which this process's holder stands, and when its lease ends; nothing when it holds no share.
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

-- Enters a reader; the first one takes the lock for all. Answers the token, which readers together share.
local function join(lock, counter, value, reader, ttl)
  local token = value and sub(value, 2, 17) or number(counter)
  if not value then call('SET', lock, 's' .. token, 'PX', ttl + KEEP) end
  call('ZADD', lock .. '}r', now + ttl, reader)
  local till = max(call('PTTL', lock), ttl + KEEP)
  call('PEXPIRE', lock, till)
  call('PEXPIRE', lock .. '}r', till)
  return token
end

local function leaveReaders(lock, reader)
  call('ZREM', lock .. '}r', reader)
  if call('EXISTS', lock .. '}r') == 0 then call('DEL', lock) end
end

-- Tells a waiter's process. The calling process reads it in this call's reply; others are sent a message, and if nobody
-- receives it, the grant must be taken back.
local function tell(counter, who, holder, token, claim)
  local notice = token .. format('%016.0f', micros) .. claim .. ':' .. holder
  if who == process then
    notices[#notices + 1] = notice
    return true
  end
  return call('PUBLISH', counter .. who, notice) > 0
end

-- Hands the lock to a waiter, for the time of a claim: its process must confirm. Answers the lock's value, or false when the
-- process does not listen. Written before it is told: a message about a grant that could not be written would be believed.
local function handOver(lock, counter, value, member)
  local who = sub(member, 2, 13)
  local claim, holder = string.match(member, '^(%d+):(.*)$', 14)
  local token, reader
  if sub(member, 1, 1) == 'x' then
    token = number(counter)
    value = format('c%s%013.0f%s%s', token, now + claim, who, holder)
    call('SET', lock, value, 'PX', claim + KEEP)
  else
    reader = 'c' .. who .. holder
    token = join(lock, counter, value, reader, tonumber(claim))
    value = 's' .. token
  end
  if tell(counter, who, holder, token, claim) then
    call('ZREM', lock .. '}q', member)
    return value
  end
  if reader then leaveReaders(lock, reader) else call('DEL', lock) end
  passOver(counter, who)
  return false
end

-- The grant loop, run by every look that may find the lock free: from the head, every waiter that may enter is granted. Who is not
-- alive is passed over and keeps its place. Answers the lock's value, and whether a live waiter was left.
local function serve(lock, counter, value)
  local queue, passed, count = lock .. '}q', 0, 1
  while not value or isShared(value) do
    local page = call('ZRANGE', queue, passed, passed + count - 1)
    for _, member in ipairs(page) do
      local who, gone = sub(member, 2, 13), false
      local seen = who == process and now or tonumber(call('ZSCORE', counter .. 'seen', who) or 0)
      if now - seen < LIVE then
        if value and sub(member, 1, 1) == 'x' then return value, true end
        local granted = handOver(lock, counter, value, member)
        if granted then
          value, gone = granted, true
          if not isShared(value) then return value, true end
        end
      elseif now - seen > KEEP then
        call('ZREM', queue, member)
        gone = true
      end
      if not gone then passed = passed + 1 end
    end
    if #page < count then break end
    count = 32
  end
  return value, false
end
`;
