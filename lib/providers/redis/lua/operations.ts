/**
 * The operations, and the loop that runs those of one call.
 *
 * KEYS   two per operation: the lock and its bucket's counter
 * ARGV   the calling process, then five per operation: code, holder, and three arguments
 *
 *   A lease claim ticket   acquire, queueing if it must; `a` in shared mode. Digits after the code are the minHold.
 *                          The ticket of an earlier ask keeps the place in the queue; 0 for the first ask.
 *   T lease claim 0        try: acquire now or answer busy; `t` in shared mode
 *   C lease minHold ''     confirm or renew, to lease ms from now
 *   R keepFor claim ''     release; `r` in shared mode. With its claim it also leaves the queue.
 *   F '' '' ''             force-release
 *   I '' '' ''             inspect
 *
 * The reply has one entry per operation, then a notice (token, server time in µs, claim ':' holder) for each
 * waiter of the calling process that was granted in this call. A lone operation of the fast path answers without an array.
 *
 *   token                  held, with the whole lease asked for
 *   h token ms             held, with that many ms left
 *   q ticket time          queued, at that server time (µs)
 *   b                      busy
 *   1 / 0                  released, renewed not: lost; force-released or not
 */
export const OPERATIONS = `
-- Marks that this process is alive and waits.
local function touch(lock, counter)
  local seen = counter .. 'seen'
  call('ZADD', seen, now, process)
  call('PEXPIRE', seen, KEEP)
  call('PEXPIRE', lock .. '}q', KEEP)
end

local function grant(lock, counter, value, holder, shared, lease, minHold)
  local ttl = max(lease, minHold)
  if shared then return join(lock, counter, value, 'h' .. holder, ttl) end
  local token = number(counter)
  if minHold > 0 then
    call('SET', lock, format('m%s%013.0f%s', token, now + minHold, holder), 'PX', ttl)
  else
    call('SET', lock, 'w' .. token .. holder, 'PX', ttl)
  end
  return token
end

-- The answer for a lock that the holder has already, or nil.
local function held(lock, value, holder)
  local left
  if isOwn(value, holder) then
    left = sub(value, 1, 1) == 'c' and tonumber(sub(value, 18, 30)) - now or call('PTTL', lock)
  elseif isShared(value) then
    local _, ends = readerOf(lock, holder)
    left = ends and ends - now
  end
  return left and format('h%s%.0f', sub(value, 2, 17), left)
end

local function acquire(lock, counter, code, holder, lease, claim, ticket)
  local queue, letter = lock .. '}q', sub(code, 1, 1)
  local shared = letter == 'a' or letter == 't'
  local minHold = tonumber(sub(code, 2)) or 0
  lease = tonumber(lease)
  if minHold == 0 and not shared and call('EXISTS', lock, queue) == 0 then
    local token = number(counter)
    call('SET', lock, 'p' .. token .. holder, 'PX', lease)
    return token
  end

  local value = look(lock, counter)
  local own = held(lock, value, holder)
  if own then return own end
  local queued, blocked = call('EXISTS', queue) == 1, false
  if letter == 'T' or letter == 't' then
    -- Waiters that are alive go first; whether one is left, only the grant loop knows.
    if queued then value, blocked = serve(lock, counter, value) end
  else
    blocked = queued
  end
  if not blocked and (not value or shared and isShared(value)) then
    return grant(lock, counter, value, holder, shared, lease, minHold)
  end
  if letter == 'T' or letter == 't' then return 'b' end

  local member = (shared and 's' or 'x') .. process .. claim .. ':' .. holder
  if ticket == '0' then ticket = number(counter) end
  if call('ZADD', queue, 'NX', ticket, member) == 0 then
    ticket = format('%016.0f', tonumber(call('ZSCORE', queue, member)))
  end
  touch(lock, counter)
  if value and sub(value, 1, 1) == 'p' then call('SETRANGE', lock, 0, 'w') end
  serve(lock, counter, value)
  return 'q' .. ticket .. format('%016.0f', micros)
end

local function renew(lock, counter, holder, lease, minHold)
  local value = look(lock, counter)
  lease, minHold = tonumber(lease), tonumber(minHold)
  if isOwn(value, holder) then
    local state, token = sub(value, 1, 1), sub(value, 2, 17)
    local till = state == 'm' and tonumber(sub(value, 18, 30)) - now or state == 'c' and minHold or 0
    -- PEXPIRE first: it is allowed when the memory is full, and after it this script may also write.
    call('PEXPIRE', lock, max(lease, till))
    if state == 'c' and minHold > 0 then
      call('SET', lock, format('m%s%013.0f%s', token, now + minHold, holder), 'KEEPTTL')
    elseif state == 'c' then
      call('SET', lock, 'w' .. token .. holder, 'KEEPTTL')
    end
    return format('h%s%.0f', token, lease)
  elseif isShared(value) then
    local reader, ends = readerOf(lock, holder)
    if reader then
      call('ZREM', lock .. '}r', reader)
      -- Never shortened: readers do not record their minHold.
      join(lock, counter, value, 'h' .. holder, max(lease, minHold, sub(reader, 1, 1) == 'h' and ends - now or 0))
      return format('h%s%.0f', sub(value, 2, 17), lease)
    end
  end
  serve(lock, counter, value)
  return 0
end

local function release(lock, counter, code, holder, keepFor, claim)
  local value = look(lock, counter)
  local reader = isShared(value) and readerOf(lock, holder)
  local own = reader or isOwn(value, holder)
  keepFor = tonumber(keepFor)
  if reader then
    if keepFor > 0 then join(lock, counter, value, 'k' .. holder, keepFor) end
    leaveReaders(lock, reader)
  elseif own and keepFor > 0 then
    call('PEXPIRE', lock, keepFor)
    call('SETRANGE', lock, 0, 'k')
  elseif own then
    call('DEL', lock)
    if sub(value, 1, 1) == 'p' and claim == '' then return 1 end
  end
  if claim ~= '' then call('ZREM', lock .. '}q', (code == 'r' and 's' or 'x') .. process .. claim .. ':' .. holder) end
  if own then value = call('GET', lock) end
  serve(lock, counter, value)
  return own and 1 or 0
end

local function forceRelease(lock, counter)
  local value = look(lock, counter)
  call('DEL', lock, lock .. '}r')
  serve(lock, counter, false)
  return value and sub(value, 1, 1) ~= 'k' and 1 or 0
end

-- state, mode, holders, waiters, ms left, token; or nothing when the lock is free.
local function inspect(lock, counter)
  local value = serve(lock, counter, look(lock, counter))
  if not value then return '' end
  local state, holders, left, token = sub(value, 1, 1), 1, call('PTTL', lock), sub(value, 2, 17)
  if state == 'c' then
    left = tonumber(sub(value, 18, 30)) - now
  elseif state == 's' then
    local last = call('ZRANGE', lock .. '}r', -1, -1, 'WITHSCORES')
    holders, left = call('ZCARD', lock .. '}r'), last[2] - now
  end
  return table.concat({
    state == 'k' and 'parked' or 'held', state == 's' and 'shared' or 'exclusive',
    state == 'k' and 0 or holders, call('ZCARD', lock .. '}q'), format('%.0f', left), token,
  }, ' ')
end

local replies = {}
for i = 1, #KEYS / 2 do
  local lock, counter, at = KEYS[2 * i - 1], KEYS[2 * i], 5 * i - 3
  local code, holder, a, b, c = ARGV[at], ARGV[at + 1], ARGV[at + 2], ARGV[at + 3], ARGV[at + 4]
  local letter = sub(code, 1, 1)
  if letter == 'R' or letter == 'r' then
    replies[i] = release(lock, counter, code, holder, a, b)
  elseif letter == 'C' then
    replies[i] = renew(lock, counter, holder, a, b)
  elseif letter == 'F' then
    replies[i] = forceRelease(lock, counter)
  elseif letter == 'I' then
    replies[i] = inspect(lock, counter)
  else
    replies[i] = acquire(lock, counter, code, holder, a, b, c)
  end
end
for _, notice in ipairs(notices) do replies[#replies + 1] = notice end
return replies
`;
