--[[
The operations, and the loop that runs the operations of a call.

KEYS   the bucket's counter, then the lock of each operation. A strict server rejects undeclared keys, so the processes' key and each lock's
       queue and holders follow, whose names the script builds itself
ARGV   the calling process, then three per operation: what to do, the holder, and a duration in ms. If operations are linked, one text follows, with
       '+' for each operation that only runs if the acquire before it has its lock, and '-' for each other one

  A provisional :age                    lease    acquire for one caller, and queue if the lock is busy, by the age in µs of its oldest caller;
                                                 '=' before the age if the position in the queue is already based on that caller
  N provisional :age ::callers          lease    the same for several callers, which get a token each
  B provisional :age :minHold           lease    the same with a minHold, for one caller
  T, M :::callers, U ::minHold          lease    A, N and B without queueing. With the provisional lease, also leaves the queue
  a, t                                  lease    A and T in shared mode
  l, m                                  lease    A and T in limited mode, with terms after provisional: ' ' weight ' ' limit
  C minHold                             lease    confirm or renew, to lease ms from now; in limited mode with terms. Never shortens a confirmed
                                                 lease: the network may deliver a renewal long after it was given up, when the lease has
                                                 been extended since
  R provisional                         keepFor  release; `r` in shared mode, `e` in limited mode, with terms. With the provisional lease, also
                                                 leaves the queue
  F                                     -        force-release
  I                                     -        inspect

In all operations of a request with minHold, 'm' follows the provisional lease: no other caller of its process may hold the lock after the
first one.

Operations run in the order in which they are sent. A process that releases a lock and has callers left sends their acquire first.

When a lock is retained, the first request in its queue is notified of the time when it becomes free: 'k' ms ':' holder. The next request is
notified if the first one leaves or is granted the lock, and the lock becomes free within a second. For a limited lock, all requests of the
first page are notified, because its holders may end one by one. The notice may precede the reply to the acquire.

The reply has one entry per operation, then a notice (token, server time in µs, number of tokens, provisional ':' holder ' ' lock) for each
request of the calling process that was granted in this call. The reply to a single plain operation is not an array.

  token                  held, with the full lease: the last token of the block for its callers
  h token ms             held, with that many ms left
  q time ms holder       queued, at that server time (µs); the lock becomes free in that many ms unless it is renewed
  b holder               busy. The holder, if known: ' ' instance ' ' ms held, or ' +' number of holders; an instance has 12 digits
  n                      not run: linked to an acquire that was not granted
  a                      not inspected, because the call has read enough: retry
  1 / 0                  released or lost; 0 for a renewal: lost; force-released or not
  an error               of this operation only; it may have been executed in part
]]
-- callers: the number of callers that may hold the lock one after the other. queued: whether there may be a queue.
local function grant(lock, value, holder, mode, terms, lease, minHold, callers, queued)
  local ttl = max(lease, minHold)
  if mode == 'l' and not value and not queued and minHold == 0 then
    local token = takeTokens()
    call('SET', lock, 'o' .. token .. holder .. terms, 'PX', lease)
    return token
  end
  if mode ~= 'x' then return (join(lock, value, mode, 'h' .. holder, terms, ttl)) end
  local token = takeTokens(callers)
  call('SET', lock, (queued and 'w' or 'p') .. token .. holder, 'PX', ttl)
  return token
end

-- The reply if the holder already has the lock, or nil. It has the last token of the block, because it is unknown which ones were used.
local function held(lock, value, holder, terms)
  local left
  if isOwn(value, holder) then
    left = byte(value) == 99 and tonumber(sub(value, 18, 30)) - now or call('PTTL', lock) -- c
  elseif isJoint(value) then
    local _, ends = recordOf(lock, holder, terms)
    left = ends and ends - now
  end
  return left and format('h%s%.0f', sub(value, 2, 17), left)
end

-- The holder, for requests that must wait: ' ' instance ' ' and how many ms it has held the lock, computed from its token unless the token was
-- ahead of the clock; ' +' and the number of joint holders; or nothing if the holder is unknown.
local function holding(lock, value)
  if not value or not isOurs(value) then return '' end
  if isJoint(value) then
    local holders = lock .. '}r'
    local count = call('ZCARD', holders)
    if count == 1 and byte(call('ZRANGE', holders, 0, 0)[1]) == 107 then return '' end -- k
    return ' +' .. count
  end
  local at = HOLDER_AT[sub(value, 1, 1)]
  if not at then return '' end
  local held = micros - tonumber(sub(value, 2, 17))
  return ' ' .. sub(value, at, at + 11) .. (held < -AHEAD and '' or format(' %.0f', max(held, 0) / 1000))
end

local MODES = { a = 's', t = 's', l = 'l', m = 'l' }

-- exist: how many of the two keys, lock and queue, exist.
local function acquire(lock, code, holder, lease, exist)
  local letter, provisional, terms, isSame, age, minHold, callers = match(code, '^(%a)(%d*m?)([%d ]*):?(=?)(%d*):?(%d*):?(%d*)$')
  local queue, mode = lock .. '}q', MODES[letter] or 'x'
  local once = letter == 'T' or letter == 'M' or letter == 'U' or letter == 't' or letter == 'm'
  lease, minHold = tonumber(lease), tonumber(minHold) or 0

  local value = call('GET', lock)
  local queued, blocked = exist - (value and 1 or 0) > 0, false
  value = endExpired(lock, value)
  local own = held(lock, value, holder, terms)
  if own then
    if isJoint(value) then serveIfPossible(lock, value) end
    return own
  end
  local member = mode .. process .. provisional .. terms .. ':' .. holder
  if once then
    if queued then
      -- An earlier acquire may have queued the request.
      call('ZREM', queue, member)
      -- Live waiters go first. Only the grant loop finds out whether any is left.
      value, blocked = serve(lock, value)
    end
  else
    blocked = queued
  end
  if not blocked then
    local used, smallest = usage(lock, value)
    if admits(value, used, smallest, mode, termsOf(terms)) then
      return grant(lock, value, holder, mode, terms, lease, minHold, tonumber(callers), queued)
    end
  end
  if once then return 'b' .. holding(lock, value) end

  -- Records that this process is alive and waiting, at most every FRESH ms, so that it costs busy queues nothing.
  local isFresh = now - tonumber(call('ZSCORE', seen, process) or 0) < FRESH
  if not isFresh then hasRecords(seen, '^%x%x%x%x%x%x%x%x%x%x%x%x$', 0) end
  -- Our queues always expire within KEEP ms, so check any other one: it may not be ours.
  local left = queued and call('PTTL', queue) or 0
  if left < 0 or left > KEEP then hasRecords(queue, '^%l%x%x%x%x%x%x%x%x%x%x%x%x%d+m?[%d ]*:%w+$', 0) end
  -- PEXPIRE first: Redis allows it when memory is full, and then allows all further writes of the script. Otherwise, no process could record
  -- that it is alive.
  call('PEXPIRE', queue, KEEP)
  -- Written with each acquire, so that the queue stays ordered by age after the oldest caller has left or the queue was lost. The network
  -- delay makes an age too small, so of two positions for the same caller, the earlier one is more accurate.
  local place = format('%.0f', micros - (tonumber(age) or 0))
  if isSame == '=' then call('ZADD', queue, 'LT', place, member) else call('ZADD', queue, place, member) end
  if not isFresh then
    if call('ZADD', seen, now, process) == 1 then forgetTheDead() end
    call('PEXPIRE', seen, KEEP)
  end
  if not queued then call('PEXPIRE', queue, KEEP) end
  if value and byte(value) == 112 and isOurs(value) then call('SETRANGE', lock, 0, 'w') end -- p
  value = serve(lock, value)
  return format('q%s%.0f', stamp, freeIn(lock, value)) .. holding(lock, value)
end

local function renew(lock, code, holder, lease)
  local value, minHold, terms = call('GET', lock), match(code, '^C(%d*)(.*)$')
  minHold, lease = tonumber(minHold) or 0, tonumber(lease)
  if isSole(value, holder, terms) then
    -- A write even if the end stays: WAIT covers only the writes of its connection.
    call('PEXPIRE', lock, max(lease, call('PTTL', lock)))
    return format('h%s%.0f', sub(value, 2, 17), lease)
  end
  value = endExpired(lock, value)
  if isOwn(value, holder) then
    local state, token = sub(value, 1, 1), sub(value, 2, 17)
    -- The holder may count on the provisional lease, too.
    local left = state == 'c' and tonumber(sub(value, 18, 30)) - now or call('PTTL', lock)
    -- PEXPIRE first: Redis allows it when memory is full, and then allows all further writes of the script.
    call('PEXPIRE', lock, max(lease, state == 'c' and minHold or 0, left))
    if state == 'c' then call('SET', lock, 'w' .. token .. holder, 'KEEPTTL') end
    return format('h%s%.0f', token, lease)
  end
  local record, ends
  if isJoint(value) then record, ends = recordOf(lock, holder, terms) end
  if record then
    local isConfirmed = byte(record) == 104 -- h
    -- Not shortened for minHold either, which joint holders do not store. Written before the old record is removed, which may be the only one:
    -- in a migrating slot, a script cannot write to a key that no longer exists.
    stay(lock, 'h' .. holder .. terms, max(lease, minHold, ends - now))
    if not isConfirmed then call('ZREM', lock .. '}r', record) end
  end
  -- Also for a joint lock that stays held, because another holder may have expired.
  serveIfPossible(lock, value)
  return record and format('h%s%.0f', sub(value, 2, 17), lease) or 0
end

local function release(lock, code, holder, keepFor)
  local value = call('GET', lock)
  local isPlain = value and byte(value) == 112 and sub(value, 18) == holder and code == 'R' -- p
  if keepFor == '0' and (isPlain or byte(code) == 101 and isSole(value, holder, sub(code, 2))) then -- e
    call('DEL', lock)
    return 1
  end
  value, keepFor = endExpired(lock, value), tonumber(keepFor)
  local letter, provisional, terms = match(code, '^(%a)(%d*m?)(.*)$')
  local record = isJoint(value) and recordOf(lock, holder, terms)
  if not record and code == 'R' and value and byte(value) == 108 then -- l
    -- The process has ended this request, and no longer knows its terms.
    for _, each in ipairs(call('ZRANGE', lock .. '}r', 0, -1)) do
      if find(each, 'c' .. process .. holder .. ' ', 1, true) == 1 then record = each end
    end
  end
  local own = record or isOwn(value, holder)
  local retained
  if record and keepFor == 0 then
    if leaveJoint(lock, record) then value = false end
  elseif record then
    -- Readers share one record that retains the lock until the latest of their times. A record for each could mean thousands.
    local kept = 'k' .. (terms == '' and '' or holder .. terms)
    stay(lock, kept, max(keepFor, (call('ZSCORE', lock .. '}r', kept) or 0) - now))
    call('ZREM', lock .. '}r', record)
    if terms ~= '' then retained = keepFor end
  elseif own and keepFor > 0 then
    call('PEXPIRE', lock, keepFor)
    call('SETRANGE', lock, 0, 'k')
    retained = keepFor
  elseif own then
    -- DEL before any write: when memory is full, only a script that has freed something may write.
    call('DEL', lock)
    value = false
  end
  if record and value and terms == '' then
    local last = call('ZRANGE', lock .. '}r', -1, -1, 'WITHSCORES')
    if byte(last[1]) == 107 then retained = last[2] - now end -- k
  end
  if provisional ~= '' then
    local mode = letter == 'r' and 's' or letter == 'e' and 'l' or 'x'
    call('ZREM', lock .. '}q', mode .. process .. provisional .. terms .. ':' .. holder)
  end
  if not own and value and provisional ~= '' then
    -- The waiter that leaves may be the only one that was notified. All others poll within a second.
    local isKnown, left = pcall(freeIn, lock, value)
    if isKnown and left < 1000 then retained = left end
  end
  serveIfPossible(lock, value, retained, terms ~= '')
  return own and 1 or 0
end

local function forceRelease(lock)
  local value = endExpired(lock, call('GET', lock))
  if value and not isOurs(value) then refuse(lock) end
  if hasHolders(lock .. '}r') or value then call('DEL', lock, lock .. '}r') end
  serveIfPossible(lock, false)
  return value and 1 or 0
end

-- How many bytes of holders the inspections of one call read, which takes about a millisecond. The first inspection reads its whole lock.
local MOST_READ = 20000
local read = 0

-- Returns state, mode, holders, waiters, ms left, token, server time (µs), the first 12 digits of up to 100 holders, and for a limited lock also
-- the used weight and the limit; or an empty string if the lock is free.
local function inspect(lock)
  local value = call('GET', lock)
  if value and not isOurs(value) then refuse(lock) end
  if value and byte(value) == 111 then -- o
    local weight, limit = termsOf(value)
    local left, token = format('%.0f', call('PTTL', lock)), sub(value, 2, 17)
    return table.concat({ 'held limited 1 0', left, token, stamp, sub(value, 18, 29), weight, limit }, ' ')
  end
  value = serve(lock, endExpired(lock, value))
  if not value then return '' end
  local state, mode, left, token, taken = sub(value, 1, 1), 'exclusive', nil, sub(value, 2, 17), ''
  local holders, instances = 0, {}
  local function count(holder)
    holders = holders + 1
    if holders <= 100 then instances[holders] = sub(holder, 1, 12) end
  end
  if isJoint(value) then
    local records = call('ZRANGE', lock .. '}r', 0, -1, 'WITHSCORES')
    read = read + 30 * #records
    mode, left = 'shared', records[#records] - now
    for i = 1, #records, 2 do
      local letter = byte(records[i])
      if letter ~= 107 then count(sub(records[i], letter == 99 and 14 or 2)) end -- k, c
    end
    if state == 'l' then mode, taken = 'limited', format(' %.0f %.0f', usage(lock, value)) end
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

-- Each in its own pcall, so that an error (a key of another type, memory full) is the reply to that operation only.
for i = #replies + 1, operations do
  local ok, reply = true, 'n'
  if not isVoid(i) then ok, reply = pcall(run, i) end
  replies[i] = (ok or type(reply) == 'table') and reply or { err = reply }
end
for _, notice in ipairs(notices) do replies[#replies + 1] = notice end
return replies
