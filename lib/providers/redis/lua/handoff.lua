--[[
The handoff: grants the lock to the next waiter, and notifies its process.
]]
-- The number of tokens reserved for a process that receives the lock, because more callers may have arrived there since its last acquire.
local COHORT = 64
-- How many queue entries are read at first. Usually, the head gets the lock.
local PAGE = 16
local notices = {}

-- Notifies a process: the calling one in this call's reply, others by a message. Returns whether the notice is received.
-- The message is not replicated: without a receiver on this server, the grant is undone, but a process that is still subscribed on a replica,
-- such as the former master, would trust the replicated message.
local function notify(who, notice)
  if who == process then
    notices[#notices + 1] = notice
    return true
  end
  -- In a pcall, because a compatible server may lack the function.
  pcall(redis.set_repl, redis.REPL_NONE)
  local ok, receivers = pcall(call, 'PUBLISH', counter .. who, notice)
  pcall(redis.set_repl, redis.REPL_ALL)
  if not ok then error(receivers, 0) end
  return receivers > 0
end

-- Hands the lock to a member of the queue, with a provisional lease that its process must confirm. A writer gets tokens for a cohort, unless
-- it has a minHold: the server would only store the minHold of the first caller, so a crash would end the next caller's minHold early.
-- Returns the lock's new value and the provisional lease, or false if the process is not listening. The value is written before the message is
-- sent, because the receiver would trust a message even if the write failed.
local function handOff(lock, value, member)
  local mode, who = sub(member, 1, 1), sub(member, 2, 13)
  local provisional, sole, terms, holder = match(member, '^(%d+)(m?)([%d ]*):(.*)$', 14)
  local token, count, record, lease = nil, 1, 'c' .. who .. holder, tonumber(provisional)
  if mode == 'x' then
    token, count = takeTokens(sole == '' and COHORT or 1, true)
    -- Lua converts a number to 14 digits, and this one has 13 until the year 2286.
    value = 'c' .. token .. (now + lease) .. who .. holder
    call('SET', lock, value, 'PX', lease + KEEP)
  else
    token, value = join(lock, value, mode, record, terms, lease)
  end
  if notify(who, token .. stamp .. format('%02d', count) .. provisional .. ':' .. holder .. ' ' .. lock) then
    call('ZREM', lock .. '}q', member)
    return value, lease
  end
  if mode == 'x' then call('DEL', lock)
  else leaveJoint(lock, record .. terms) end
  passOver(who)
  return false
end

-- Tells the first request whose process is listening, or all requests of the first page, how many ms remain until the
-- lock becomes free. They poll at that time.
local function announce(lock, ms, toAll)
  for _, member in ipairs(call('ZRANGE', lock .. '}q', 0, PAGE - 1)) do
    local isNotified = notify(sub(member, 2, 13), format('k%.0f:%s', ms, match(member, ':(.*)$')))
    if isNotified and not toAll then return end
  end
end

-- The grant loop, run by every operation that may find the lock free. Starting at the head, it grants the lock to every request that may have
-- it. Requests of dead processes are removed: when they were only skipped, each run read 10,000 of them again. Returns the lock's value, and
-- whether a live request is left. An unknown mode letter blocks the queue, so that a later version can add a mode.
local function serve(lock, value)
  local used, smallest = usage(lock, value)
  local queue, count, soon = lock .. '}q', min(PAGE, smallest - used), nil
  while used < smallest do
    local page, dead, isBlocked = call('ZRANGE', queue, 0, count - 1), {}, false
    for _, member in ipairs(page) do
      local granted = false
      if now - lastAskOf(sub(member, 2, 13)) < LIVE then
        local mode, weight, limit = sub(member, 1, 1)
        if mode == 'l' then weight, limit = termsOf(match(member, '^%d+m?([%d ]*)', 14)) end
        isBlocked = not find('xsl', mode, 1, true) or not admits(value, used, smallest, mode, weight, limit)
        if isBlocked then break end
        local provisional
        granted, provisional = handOff(lock, value, member)
        -- All requests poll within a second anyway, so a longer lease needs no notice.
        if granted and provisional < 1000 then soon = min(soon or provisional, provisional) end
        if granted and mode == 'x' then smallest = 0
        elseif granted and mode == 'l' then used, smallest = used + weight, min(smallest, limit) end
      end
      if granted then value = granted
      elseif find(member, '^%l%x%x%x%x%x%x%x%x%x%x%x%x%d+m?[%d ]*:%w+$') then dead[#dead + 1] = member
      else refuse(queue) end
      isBlocked = used >= smallest
      if isBlocked then break end
    end
    if #dead > 0 then call('ZREM', queue, unpack(dead)) end
    if isBlocked then
      if soon then announce(lock, soon, byte(value) == 108) end -- l
      return value, true
    end
    if #page < count then break end
    count = 16 * PAGE
  end
  return value, false
end

-- Serves the queue after a holder's own operation has succeeded. If the queue cannot be read because the slot migrates, that operation must
-- still succeed. The waiters poll within a second.
local function serveIfPossible(lock, value, endsIn, toAll)
  pcall(serve, lock, value)
  if endsIn then pcall(announce, lock, endsIn, toAll) end
end
