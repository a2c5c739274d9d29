--[[
The handoff: the grant to the next waiter, and the notice of it to its process.
]]
-- So many tokens are reserved for a process that is handed the lock, because more callers may have come to it since it asked.
local COHORT = 64
-- So many of the queue are read at first: usually the head is granted.
local PAGE = 16
local notices = {}

-- Notifies a process: the calling one in this call's reply, others by a message. Answers whether it is received.
local function notify(who, notice)
  if who == process then
    notices[#notices + 1] = notice
    return true
  end
  return call('PUBLISH', counter .. who, notice) > 0
end

-- Hands the lock to a member of the queue, with a provisional lease: its process must confirm. A writer gets tokens for a cohort, unless
-- it has a minHold: the server would only record that of the first caller, and that of the next would end if its process crashed.
-- Answers the lock's value and that lease, or false when the process does not listen. The value is written before the message is sent, because a
-- message about a grant that could not be written would be believed.
local function handOff(lock, value, member)
  local mode, who = sub(member, 1, 1), sub(member, 2, 13)
  local provisional, sole, terms, holder = match(member, '^(%d+)(m?)([%d ]*):(.*)$', 14)
  local token, count, record, lease = nil, 1, 'c' .. who .. holder, tonumber(provisional)
  if mode == 'x' then
    token, count = takeTokens(sole == '' and COHORT or 1, true)
    -- Joined as text: a number keeps 14 digits, and this has 13 until the year 2286.
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

-- Notifies the first request whose process listens, or all of the first ones, in how many ms the lock frees itself: they ask again then.
local function announce(lock, ms, toAll)
  for _, member in ipairs(call('ZRANGE', lock .. '}q', 0, PAGE - 1)) do
    local isNotified = notify(sub(member, 2, 13), format('k%.0f:%s', ms, match(member, ':(.*)$')))
    if isNotified and not toAll then return end
  end
end

-- The grant loop, run by every look that may find the lock free: from the head, every request that may enter is granted. Those of dead
-- processes are removed: when they were only passed over, 10 000 of them were read again by each look. Answers the lock's value, and
-- whether a live one was left. A mode letter that it does not know blocks the queue, so that a later version can add one.
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
        -- A longer one ends after all have asked again.
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

-- After what a holder came for was done. A queue that cannot be read, because the slot of the lock migrates, must not deny that: its waiters
-- look for themselves within a second.
local function serveIfPossible(lock, value, endsIn, toAll)
  pcall(serve, lock, value)
  if endsIn then pcall(announce, lock, endsIn, toAll) end
end
