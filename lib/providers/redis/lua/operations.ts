/**
 * The operations, and the loop that runs those of one call.
 *
 * KEYS   the bucket's counter, then the lock of each operation
 * ARGV   the calling process, then three per operation: what to do, the holder, and a duration in ms
 *
 *   A provisional :ticket            lease    acquire, and queue if it must. The ticket of an earlier ask keeps the position.
 *   B provisional :ticket :minHold   lease    the same with a minHold
 *   T, U ::minHold                   lease    the same without queueing
 *   a, t                             lease    the same in shared mode
 *   l, m                             lease    the same in mode limited. Here, and in its release, provisional is followed by ' ' weight ' ' limit
 *   C minHold                        lease    confirm or renew, to lease ms from now
 *   R provisional                    keepFor  release; `r` in shared mode, `e` in mode limited. With its provisional lease it also leaves the queue. The holder
 *                                             may be followed by ',' and members of its cohort that have released as well.
 *   F                                -        force-release
 *   I                                -        inspect
 *
 * A key that is retained while attempts wait for it is announced to the process of the first: 'k' ms ' ' lock.
 *
 * The reply has one entry per operation, then a notice (token, server time in µs, provisional ' ' other limit ':' holders ' ' lock) for each
 * waiter of the calling process that was granted in this call. A lone operation of the fast path answers without an array.
 *
 *   token                  held, with the whole lease asked for. Of a limited lock ' ' and the smallest limit of the holders follow, if
 *                          that is another one; also after q
 *   h token ms             held, with that many ms left
 *   q ticket time ms       queued, at that server time (µs), and the lock frees itself in that many ms unless it is renewed. Q: the
 *                          ticket was not in the queue any more
 *   b                      busy
 *   1 / 0                  released or lost; 0 for a renewal: lost; force-released or not
 *   an error               of this operation alone; it may have been executed in part
 */
export const OPERATIONS = `
local function grant(lock, value, holder, mode, terms, lease, minHold)
  local ttl = max(lease, minHold)
  if mode ~= 'x' then return (join(lock, value, 'h' .. holder, ttl, terms)) end
  local token = number()
  if minHold > 0 then
    call('SET', lock, format('m%s%013.0f%s', token, now + minHold, holder), 'PX', ttl)
  else
    call('SET', lock, 'w' .. token .. holder, 'PX', ttl)
  end
  return token
end

-- The answer for a lock that the holder has already, or nil.
local function held(lock, value, holder)
  local left, token
  if isOwn(value, holder) then
    left, token = sub(value, 1, 1) == 'c' and tonumber(sub(value, 18, 30)) - now or call('PTTL', lock), sub(value, 2, 17)
  elseif isJoint(value) then
    local _, ends, own = readerOf(lock, value, holder)
    left, token = ends and ends - now, own
  end
  return left and format('h%s%.0f', token, left)
end

-- In how many ms the lock frees itself unless it is renewed; of a limited lock, the first of its holders.
local function freeIn(lock, value)
  local left
  if not value then left = 0
  elseif isJoint(value) then
    local at = isLimited(value) and 0 or -1
    left = call('ZRANGE', lock .. '}r', at, at, 'WITHSCORES')[2] - now
  elseif sub(value, 1, 1) == 'c' then left = tonumber(sub(value, 18, 30)) - now
  else left = call('PTTL', lock) end
  return format('%.0f', max(left, 0))
end

local MODES = { a = 's', t = 's', l = 'l', m = 'l' }

-- exist: how many of lock and queue there are.
local function acquire(lock, code, holder, lease, exist)
  local letter, provisional, terms, ticket, minHold = string.match(code, '^(%a)(%d*) ?([%d ]*):?(%d*):?(%d*)$')
  local queue, mode = lock .. '}q', MODES[letter] or 'x'
  local once = letter == 'T' or letter == 'U' or letter == 't' or letter == 'm'
  lease, minHold = tonumber(lease), tonumber(minHold) or 0

  local value = call('GET', lock)
  local queued, blocked = exist - (value and 1 or 0) > 0, false
  value = look(lock, value)
  local own = held(lock, value, holder)
  if own then
    if isLimited(value) then serve(lock, value) end
    return own
  end
  if once then
    -- Waiters that are alive go first; whether one is left, only the grant loop knows.
    if queued then value, blocked = serve(lock, value) end
  else
    blocked = queued
  end
  local weight, limit, used, smallest = nil, nil, 0, math.huge
  if mode == 'l' then
    weight, limit = termsOf(terms)
    if isLimited(value) then used, smallest = usage(lock) end
  end
  if not blocked and admits(value, mode, weight, limit, used, smallest) then
    return grant(lock, value, holder, mode, terms, lease, minHold) .. other(limit, smallest)
  end
  if once then return 'b' end

  local member = mode .. process .. provisional .. (terms == '' and '' or ' ' .. terms) .. ':' .. holder
  local again = ticket ~= ''
  if not again then ticket = number() end
  -- First a write that a full memory allows, after which this script may write. Otherwise no process could report that it is alive.
  if again then call('PEXPIRE', seen, KEEP) end
  local isNew = call('ZADD', queue, 'NX', ticket, member) == 1
  if not isNew then ticket = format('%016.0f', tonumber(call('ZSCORE', queue, member))) end
  -- This process is alive and waits. Written again after FRESH ms at the earliest, so busy queues do not pay for it.
  local isFresh = now - tonumber(call('ZSCORE', seen, process) or 0) < FRESH
  if not isFresh then
    if call('ZADD', seen, now, process) == 1 then forgetTheDead() end
    call('PEXPIRE', seen, KEEP)
  end
  call('PEXPIRE', queue, KEEP)
  if value and sub(value, 1, 1) == 'p' then call('SETRANGE', lock, 0, 'w') end
  value = serve(lock, value)
  return (again and isNew and 'Q' or 'q') .. ticket .. stamp .. freeIn(lock, value) .. other(limit, smallest)
end

-- The record of a reader under another letter.
local function withoutProcess(letter, reader)
  return letter .. sub(reader, sub(reader, 1, 1) == 'c' and 14 or 2)
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
  elseif isJoint(value) then
    local reader, ends, token = readerOf(lock, value, holder)
    if reader then
      local isConfirmed = sub(reader, 1, 1) == 'h'
      call('ZREM', lock .. '}r', reader)
      -- Never shortened: readers do not record their minHold.
      stay(lock, withoutProcess('h', reader), max(lease, minHold, isConfirmed and ends - now or 0))
      -- A holder beside this one may have run out.
      if isLimited(value) then serve(lock, value) end
      return format('h%s%.0f', token, lease)
    end
  end
  serve(lock, value)
  return 0
end

-- The members of the queue that leave with a release, and whether one of them holds the lock under its own name: it was granted
-- the lock again after it had held it in its cohort.
local function leaving(value, code, holder, provisional)
  local letter = byte(code)
  local mode = letter == 114 and 's' or letter == 101 and 'l' or 'x' -- r, e
  local prefix, others = mode .. process .. provisional .. ':', string.find(holder, ',', 1, true)
  if not others then return { prefix .. holder }, false end
  local members, own = {}, false
  for each in string.gmatch(holder, '[^,]+') do
    members[#members + 1] = prefix .. each
    own = own or isOwn(value, each)
  end
  return members, own
end

local function release(lock, code, holder, keepFor)
  local value, provisional = call('GET', lock), sub(code, 2)
  if value and byte(value) == 112 and sub(value, 18) == holder and provisional == '' and keepFor == '0' then -- p
    call('DEL', lock)
    return 1
  end
  value, keepFor = look(lock, value), tonumber(keepFor)
  local retained
  local reader = isJoint(value) and readerOf(lock, value, holder)
  local own = reader or isOwn(value, holder)
  local members
  if provisional ~= '' then
    local ownByAnother
    members, ownByAnother = leaving(value, code, holder, provisional)
    own = own or ownByAnother
  end
  if reader then
    if keepFor == 0 then
      if leaveReaders(lock, reader) then value = false end
    else
      -- In this order: removing is allowed when the memory is full, and after it this script may also write.
      call('ZREM', lock .. '}r', reader)
      stay(lock, withoutProcess('k', reader), keepFor)
    end
    if isLimited(value) then
      if keepFor > 0 then retained = keepFor end
    elseif value then
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
  if members then call('ZREM', lock .. '}q', unpack(members)) end
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

-- state, mode, holders, waiters, ms left, token, and of a limited lock used and limit; or nothing when the lock is free.
local function inspect(lock)
  local value = serve(lock, look(lock, call('GET', lock)))
  if not value then return '' end
  local state, holders, left, token = sub(value, 1, 1), 1, call('PTTL', lock), sub(value, 2, 17)
  if state == 'c' then
    left = tonumber(sub(value, 18, 30)) - now
  elseif isJoint(value) then
    local readers = call('ZRANGE', lock .. '}r', 0, -1, 'WITHSCORES')
    holders, left = 0, readers[#readers] - now
    for i = 1, #readers, 2 do
      if sub(readers[i], 1, 1) ~= 'k' then holders = holders + 1 end
    end
    if holders == 0 then state = 'k' end
  end
  local mode, taken = isJoint(value) and 'shared' or 'exclusive', ''
  if isLimited(value) then
    mode, taken = 'limited', format(' %.0f %.0f', usage(lock))
  end
  return table.concat({
    state == 'k' and 'retained' or 'held', mode, state == 'k' and 0 or holders, call('ZCARD', lock .. '}q'),
    format('%.0f', left), token,
  }, ' ') .. taken
end

local function run(i)
  local lock, code, holder, ms = KEYS[i + 1], ARGV[3 * i - 1], ARGV[3 * i], ARGV[3 * i + 1]
  local letter = byte(code)
  if letter == 65 or letter == 84 then -- A, T: usually the lock is free and has no waiters
    local exist = call('EXISTS', lock, lock .. '}q')
    if exist > 0 then return acquire(lock, code, holder, ms, exist) end
    local token = number()
    call('SET', lock, 'p' .. token .. holder, 'PX', ms)
    return token
  elseif letter == 82 or letter == 114 or letter == 101 then -- R, r, e
    return release(lock, code, holder, ms)
  elseif letter == 67 then -- C
    return renew(lock, code, holder, ms)
  elseif letter == 70 then -- F
    return forceRelease(lock)
  elseif letter == 73 then -- I
    return inspect(lock)
  end
  return acquire(lock, code, holder, ms, call('EXISTS', lock, lock .. '}q')) -- B, U, a, t, l, m
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
`;
