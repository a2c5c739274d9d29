--[[
The operations, and the loop that runs those of one call.

KEYS   the bucket's counter, then the lock of each operation
ARGV   the calling process, then three per operation: what to do, the holder, and a duration in ms

  A provisional :age                    lease    acquire for one caller, and queue if it must, at the age in µs of its oldest caller
  N provisional :age ::callers          lease    the same for several callers, which get a token each
  B provisional :age :minHold           lease    the same with a minHold, for one
  T, M :::callers, U ::minHold          lease    these without queueing. With the provisional lease it also leaves the queue
  a, t                                  lease    A and T in shared mode
  l, m                                  lease    A and T in mode limited. Here, and in its release, provisional is followed by ' ' weight ' ' limit
  C minHold                             lease    confirm or renew, to lease ms from now
  R provisional                         keepFor  release; `r` in shared mode, `e` in mode limited. With its provisional lease it also leaves the queue
  F                                     -        force-release
  I                                     -        inspect

Operations run in the order in which they are sent. A process that releases a lock and has callers left asks first.

A key that is retained while requests wait for it is announced to the process of the first: 'k' ms ':' holder.

The reply has one entry per operation, then a notice (token, server time in µs, number of tokens, provisional ':' holder ' ' lock) for each
request of the calling process that was granted in this call. A lone operation of the fast path answers without an array.

  token                  held, with the whole lease asked for: the last of the tokens of its callers
  h token ms             held, with that many ms left
  q time ms              queued, at that server time (µs), and the lock frees itself in that many ms unless it is renewed
  b                      busy
  a                      not inspected: the call has read enough. Ask again
  1 / 0                  released or lost; 0 for a renewal: lost; force-released or not
  an error               of this operation alone; it may have been executed in part
]]
-- callers: of its process, which may hold it one after the other. queued: there may be a queue.
local function grant(lock, value, holder, mode, terms, lease, minHold, callers, queued)
  local ttl = max(lease, minHold)
  if mode == 's' then return (join(lock, value, 'h' .. holder, ttl)) end
  if mode == 'l' then return (enter(lock, value, 'h', process, holder, ttl, terms)) end
  local token = takeTokens(callers)
  if minHold > 0 then
    call('SET', lock, format('m%s%013.0f%s', token, now + minHold, holder), 'PX', ttl)
  else
    call('SET', lock, (queued and 'w' or 'p') .. token .. holder, 'PX', ttl)
  end
  return token
end

-- The answer for a lock that the holder has already, or nil: with the last of its tokens, because it is unknown which were used.
local function held(lock, value, holder)
  local left, token
  if isOwn(value, holder) then
    left, token = sub(value, 1, 1) == 'c' and tonumber(sub(value, 18, 30)) - now or call('PTTL', lock), sub(value, 2, 17)
  elseif isLimited(value) then
    local from = recordOf(value, holder)
    if from then left, token = sub(value, from + 1, from + 13) - now, sub(value, from + 15, from + 30) end
  elseif isJoint(value) then
    local _, ends = readerOf(lock, holder)
    left, token = ends and ends - now, sub(value, 2, 17)
  end
  return left and format('h%s%.0f', token, left)
end

-- In how many ms the lock frees itself unless it is renewed; of a limited lock, the first of its holders.
local function freeIn(lock, value)
  local left
  if not value then left = 0
  elseif isLimited(value) then
    local _, _, first = usage(value)
    left = first - now
  elseif isJoint(value) then
    left = call('ZRANGE', lock .. '}r', -1, -1, 'WITHSCORES')[2] - now
  elseif sub(value, 1, 1) == 'c' then left = tonumber(sub(value, 18, 30)) - now
  else left = call('PTTL', lock) end
  -- Without an end, because somebody else has written it: a second, so that its waiters do not ask all the time.
  if left == -1 then left = 1000 end
  return format('%.0f', max(left, 0))
end

local MODES = { a = 's', t = 's', l = 'l', m = 'l' }

-- exist: how many of lock and queue there are.
local function acquire(lock, code, holder, lease, exist)
  local letter, provisional, terms, age, minHold, callers = string.match(code, '^(%a)(%d*) ?([%d ]*):?(%d*):?(%d*):?(%d*)$')
  local queue, mode = lock .. '}q', MODES[letter] or 'x'
  local once = letter == 'T' or letter == 'M' or letter == 'U' or letter == 't' or letter == 'm'
  lease, minHold = tonumber(lease), tonumber(minHold) or 0

  local value = call('GET', lock)
  local queued, blocked = exist - (value and 1 or 0) > 0, false
  value = look(lock, value)
  local own = held(lock, value, holder)
  if own then
    if isLimited(value) then serve(lock, value) end
    return own
  end
  local member = mode .. process .. provisional .. (terms == '' and '' or ' ' .. terms) .. ':' .. holder
  if once then
    if queued then
      -- An earlier ask of it may have queued it.
      call('ZREM', queue, member)
      -- Waiters that are alive go first; whether one is left, only the grant loop knows.
      value, blocked = serve(lock, value)
    end
  else
    blocked = queued
  end
  local weight, limit
  if mode == 'l' then weight, limit = termsOf(terms) end
  if not blocked and admits(value, mode, weight, limit) then
    return grant(lock, value, holder, mode, terms, lease, minHold, tonumber(callers), queued)
  end
  if once then return 'b' end

  -- First a write that a full memory allows, after which this script may write. Otherwise no process could report that it is alive.
  call('PEXPIRE', seen, KEEP)
  -- Written again with each ask, so that the order is that of the ages also after the oldest caller has left or the queue was lost.
  call('ZADD', queue, format('%.0f', micros - (tonumber(age) or 0)), member)
  -- This process is alive and waits. Written again after FRESH ms at the earliest, so busy queues do not pay for it.
  local isFresh = now - tonumber(call('ZSCORE', seen, process) or 0) < FRESH
  if not isFresh then
    if call('ZADD', seen, now, process) == 1 then forgetTheDead() end
    call('PEXPIRE', seen, KEEP)
  end
  call('PEXPIRE', queue, KEEP)
  if value and sub(value, 1, 1) == 'p' then call('SETRANGE', lock, 0, 'w') end
  value = serve(lock, value)
  return 'q' .. stamp .. freeIn(lock, value)
end

local function renew(lock, code, holder, lease)
  local value = look(lock, call('GET', lock))
  local minHold = tonumber(sub(code, 2)) or 0
  lease = tonumber(lease)
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
  elseif isLimited(value) then
    local from, to = recordOf(value, holder)
    if from then
      -- Never shortened: it does not record its minHold.
      local left = byte(value, from) == 104 and sub(value, from + 1, from + 13) - now or 0 -- h
      local token = sub(value, from + 15, from + 30)
      -- A holder beside this one may have run out.
      serve(lock, changeRecord(lock, value, from, to, 'h', max(lease, minHold, left)))
      return format('h%s%.0f', token, lease)
    end
  elseif isJoint(value) then
    local reader, ends = readerOf(lock, holder)
    if reader then
      local isConfirmed = byte(reader) == 104 -- h
      -- Never shortened: readers do not record their minHold. Written before the old record is removed, which may be the only one: in a slot
      -- that migrates, a script cannot write a key that is gone.
      stay(lock, 'h' .. holder, max(lease, minHold, isConfirmed and ends - now or 0))
      if not isConfirmed then call('ZREM', lock .. '}r', reader) end
      return format('h%s%.0f', sub(value, 2, 17), lease)
    end
  end
  serve(lock, value)
  return 0
end

local function release(lock, code, holder, keepFor)
  local value, provisional = call('GET', lock), sub(code, 2)
  if value and byte(value) == 112 and sub(value, 18) == holder and provisional == '' and keepFor == '0' then -- p
    call('DEL', lock)
    return 1
  end
  value, keepFor = look(lock, value), tonumber(keepFor)
  local retained
  local reader, from, to
  if isLimited(value) then from, to = recordOf(value, holder)
  elseif isJoint(value) then reader = readerOf(lock, holder) end
  local own = reader or from or isOwn(value, holder)
  if from then
    value = changeRecord(lock, value, from, to, keepFor > 0 and 'k', keepFor)
    if keepFor > 0 then retained = keepFor end
  elseif reader then
    if keepFor == 0 then
      if leaveReaders(lock, reader) then value = false end
    else
      stay(lock, 'k', max(keepFor, (call('ZSCORE', lock .. '}r', 'k') or 0) - now))
      call('ZREM', lock .. '}r', reader)
    end
    if value then
      local last = call('ZRANGE', lock .. '}r', -1, -1, 'WITHSCORES')
      if byte(last[1]) == 107 then retained = last[2] - now end -- k
    end
  elseif own and keepFor > 0 then
    call('PEXPIRE', lock, keepFor)
    call('SETRANGE', lock, 0, 'k')
    retained = keepFor
  elseif own then
    -- Before anything is written: with a full memory only a script that has freed something may write.
    call('DEL', lock)
    value = false
  end
  if provisional ~= '' then
    local letter = byte(code)
    local mode = letter == 114 and 's' or letter == 101 and 'l' or 'x' -- r, e
    call('ZREM', lock .. '}q', mode .. process .. provisional .. ':' .. holder)
  end
  serve(lock, value)
  if retained then announceRetained(lock, retained) end
  return own and 1 or 0
end

local function forceRelease(lock)
  local value = look(lock, call('GET', lock))
  call('DEL', lock, lock .. '}r')
  serve(lock, false)
  return value and 1 or 0
end

-- So many bytes of holders the looks of one call read, about a millisecond of them; the first one reads all of its lock.
local MOST_READ = 20000
local read = 0

-- state, mode, holders, waiters, ms left, token, server time (µs), the first 12 digits of up to 100 holders, and of a limited lock
-- used and limit; or nothing when the lock is free.
local function inspect(lock)
  local value = serve(lock, look(lock, call('GET', lock)))
  if not value then return '' end
  local state, mode, left, token, taken = sub(value, 1, 1), 'exclusive', nil, sub(value, 2, 17), ''
  local holders, instances = 0, {}
  local function count(holder)
    holders = holders + 1
    if holders <= 100 then instances[holders] = sub(holder, 1, 12) end
  end
  if state == 's' then
    local readers = call('ZRANGE', lock .. '}r', 0, -1, 'WITHSCORES')
    read = read + 30 * #readers
    mode, left = 'shared', readers[#readers] - now
    for i = 1, #readers, 2 do
      local letter = byte(readers[i])
      if letter ~= 107 then count(sub(readers[i], letter == 99 and 14 or 2)) end -- k, c
    end
  elseif state == 'l' then
    local used, smallest, _, last = usage(value)
    read = read + #value
    mode, left, taken = 'limited', last - now, format(' %.0f %.0f', used, smallest)
    for letter, record in string.gmatch(value, '(%l)%d+ (%S+) ') do
      token = sub(record, 1, 16)
      if letter ~= 'k' then count(sub(record, 29)) end
    end
  else
    left = state == 'c' and sub(value, 18, 30) - now or call('PTTL', lock)
    if state ~= 'k' then count(sub(value, HOLDER_AT[state])) end
  end
  return table.concat({
    holders == 0 and 'retained' or 'held', mode, holders, call('ZCARD', lock .. '}q'), format('%.0f', left), token, stamp,
    table.concat(instances, ','),
  }, ' ') .. taken
end

local function run(i)
  local lock, code, holder, ms = KEYS[i + 1], ARGV[3 * i - 1], ARGV[3 * i], ARGV[3 * i + 1]
  local letter = byte(code)
  if letter == 65 or letter == 84 then -- A, T: usually the lock is free and has no waiters
    local exist = call('EXISTS', lock, lock .. '}q')
    if exist > 0 then return acquire(lock, code, holder, ms, exist) end
    local token = takeTokens()
    call('SET', lock, 'p' .. token .. holder, 'PX', ms)
    return token
  elseif letter == 82 or letter == 114 or letter == 101 then -- R, r, e
    return release(lock, code, holder, ms)
  elseif letter == 67 then -- C
    return renew(lock, code, holder, ms)
  elseif letter == 70 then -- F
    return forceRelease(lock)
  elseif letter == 73 then -- I
    return read < MOST_READ and inspect(lock) or 'a'
  end
  return acquire(lock, code, holder, ms, call('EXISTS', lock, lock .. '}q')) -- N, M, B, U, a, t, l, m
end

-- Each by itself: an error of one (a key of another type, memory full) is its own reply, and disturbs neither what ran before it nor
-- what comes after it.
local replies = {}
for i = 1, #KEYS - 1 do
  local ok, reply = pcall(run, i)
  replies[i] = (ok or type(reply) == 'table') and reply or { err = reply }
end
for _, notice in ipairs(notices) do replies[#replies + 1] = notice end
return replies
