-- What scripts see. The chunk gets the functions of `native.rs` and of `libraries`, and returns what
-- `interpreter.rs` needs: the table of global variables, the environment of scripts, and the function that runs one.
local native, libraries = ...

local error, type, tostring, rawget, rawset, select = error, type, tostring, rawget, rawset, select
local next, pcall, xpcall, setmetatable, getmetatable = next, pcall, xpcall, setmetatable, getmetatable
local is_over = native.is_over

local READONLY = "Attempt to modify a readonly table"

-- The tables that scripts see instead of those that they may not change, and what is behind each.
local behind = setmetatable({}, {__mode = "k"})

local function readonly(real)
  local shown = setmetatable({}, {
    __index = real,
    __newindex = function() error(READONLY, 2) end,
    __metatable = false,
  })
  behind[shown] = real
  return shown
end

-- A native function answers whether it has done it, and what came of it.
local function finish(done, ...)
  if done then return ... end
  error((...), 3)
end

local function guarded(f)
  return function(...) return finish(f(...)) end
end

-- A function of Lua that may take long. The one that runs when the time is over is the last.
local function stoppable(f)
  return function(...)
    if is_over() then error("script stopped", 0) end
    return f(...)
  end
end

-- Functions of Lua that are not quite what they were.

local global = {
  _VERSION = _VERSION, assert = assert, error = error, getmetatable = getmetatable, ipairs = ipairs,
  rawequal = rawequal, select = select, tonumber = tonumber, tostring = tostring, type = type, unpack = unpack,
}

-- What a script sees of an error that it catches: the text, where Redis has a table or Rust an object.
local function seen(failure)
  if type(failure) == "table" and type(rawget(failure, "err")) == "string" then return rawget(failure, "err") end
  return native.error_seen(failure)
end

local function caught(done, ...)
  if done then return done, ... end
  return done, seen((...))
end

function global.pcall(...) return caught(pcall(...)) end

function global.xpcall(f, handle)
  return xpcall(f, function(failure)
    -- What stops a script does not look at the clock while its own error is handled.
    if is_over() then return failure end
    return handle(seen(failure))
  end)
end

function global.rawget(t, k)
  return rawget(behind[t] or t, k)
end

function global.rawset(t, k, v)
  if behind[t] then error(READONLY, 2) end
  return rawset(t, k, v)
end

function global.setmetatable(t, meta)
  if behind[t] then error(READONLY, 2) end
  return setmetatable(t, meta)
end

function global.next(t, k)
  return next(behind[t] or t, k)
end

function global.pairs(t)
  local real = behind[t]
  if real == nil then
    if type(t) ~= "table" then
      error("bad argument #1 to 'pairs' (table expected, got " .. (t == nil and "nil" or type(t)) .. ")", 2)
    end
    return next, t, nil
  end
  local copy = {}
  for k, v in next, real do copy[k] = v end
  return next, copy, nil
end

function global.collectgarbage(what)
  if what == "count" then return native.used_bytes() / 1024 end
  return 0
end

function global.gcinfo()
  return math.floor(native.used_bytes() / 1024)
end

global.loadstring = function(text, name)
  if type(text) ~= "string" then error("bad argument #1 to 'loadstring' (string expected)", 2) end
  return native.compile(text, name)
end

global.load = function(piece, name)
  if type(piece) ~= "function" then error("bad argument #1 to 'load' (function expected)", 2) end
  local pieces = {}
  while true do
    local text = piece()
    if text == nil or text == "" then break end
    if type(text) ~= "string" then return nil, "reader function must return a string" end
    pieces[#pieces + 1] = text
  end
  return native.compile(table.concat(pieces), name or "=(load)")
end

-- Strings. Patterns are searched for by `native`: a search of Lua's own cannot be stopped.

local strings = {}
for name, f in next, string do strings[name] = f end
for _, name in next, {"lower", "reverse", "upper"} do strings[name] = stoppable(strings[name]) end
strings.rep = guarded(native.repeated)
strings.find = guarded(native.find)
strings.match = guarded(native.match)

function strings.gmatch(text, pattern)
  local at = 1
  local function captures(done, first, last, ...)
    if not done then error(first, 3) end
    if first == nil then return nil end
    at = math.max(first, last) + 1
    return ...
  end
  return function() return captures(native.search(text, pattern, at, true)) end
end
strings.gfind = strings.gmatch

-- What stands for one match: `whole`, unless `by` has something else for its captures.
local function replacement(by, kind, whole, ...)
  local value
  if kind == "function" then
    value = by(...)
  elseif kind == "table" then
    value = by[(...)]
  else
    value = finish(native.expand(by, whole, ...))
  end
  if not value then return whole end
  if type(value) ~= "string" and type(value) ~= "number" then
    error("invalid replacement value (a " .. type(value) .. ")", 4)
  end
  return value
end

function strings.gsub(text, pattern, by, most)
  text, pattern, by = native.text(text) or text, native.text(pattern) or pattern, native.text(by) or by
  local kind = type(by)
  if kind ~= "string" and kind ~= "function" and kind ~= "table" then
    error("bad argument #3 to 'gsub' (string/function/table expected)", 2)
  end
  local pieces, at, copied, count, limit = {}, 1, 1, 0, tonumber(most) or math.huge
  local function replace_next(done, first, last, ...)
    if not done then error(first, 3) end
    if first == nil then return false end
    pieces[#pieces + 1] = strings.sub(text, copied, first - 1)
    pieces[#pieces + 1] = replacement(by, kind, strings.sub(text, first, last), ...)
    at, copied = math.max(first, last) + 1, last + 1
    return true
  end
  while count < limit and replace_next(native.search(text, pattern, at)) do
    count = count + 1
    if strings.byte(pattern) == 94 then break end
  end
  pieces[#pieces + 1] = strings.sub(text, copied)
  return table.concat(pieces), count
end

-- Tables. Nothing is put into those that scripts may not change.

local tables = {}
for name, f in next, table do tables[name] = f end

local function writable(f)
  return function(t, ...)
    if behind[t] then error(READONLY, 2) end
    if is_over() then error("script stopped", 0) end
    return f(t, ...)
  end
end

-- More elements than these are moved, or given to a function, one by one in Lua: a loop of its library cannot be stopped.
local AT_ONCE = 10000

tables.concat = stoppable(table.concat)

local insert, remove, sort = table.insert, table.remove, table.sort

-- A place in a table, as the library has it: a whole number of 32 bits.
local function place(at, name)
  local number = tonumber(at)
  if not number or number < -2147483648 or number > 2147483647 then
    error("bad argument #2 to '" .. name .. "' (number expected, got " .. type(at) .. ")", 4)
  end
  return number < 0 and math.ceil(number) or math.floor(number)
end

tables.insert = writable(function(t, ...)
  if select("#", ...) ~= 2 or type(t) ~= "table" then return insert(t, ...) end
  local at, value = ...
  local last = #t + 1
  at = place(at, "insert")
  if last - at < AT_ONCE then return insert(t, at, value) end
  for to = last, at + 1, -1 do t[to] = t[to - 1] end
  t[at] = value
end)

tables.remove = writable(function(t, at)
  if at == nil or type(t) ~= "table" then return remove(t) end
  local last = #t
  at = place(at, "remove")
  if at < 1 or at > last then return nil end
  if last - at < AT_ONCE then return remove(t, at) end
  local value = t[at]
  for to = at, last - 1 do t[to] = t[to + 1] end
  t[last] = nil
  return value
end)

tables.maxn = stoppable(table.maxn)

local function less(a, b) return a < b end
tables.sort = writable(function(t, before)
  -- A comparison that is not in Lua could not be stopped.
  if before == nil then return sort(t, less) end
  return sort(t, function(a, b) return (before(a, b)) end)
end)

function tables.foreachi(t, f)
  for at = 1, #t do
    local value = f(at, t[at])
    if value ~= nil then return value end
  end
end

function tables.foreach(t, f)
  for k, v in next, t do
    local value = f(k, v)
    if value ~= nil then return value end
  end
end

-- `redis`, which is also called `server`.

local redis = {
  LOG_DEBUG = 0, LOG_VERBOSE = 1, LOG_NOTICE = 2, LOG_WARNING = 3,
  REPL_NONE = 0, REPL_AOF = 1, REPL_SLAVE = 2, REPL_REPLICA = 2, REPL_ALL = 3,
  REDIS_VERSION = native.version, REDIS_VERSION_NUM = native.version_number,
}

redis.call = native.call
local call = native.call

function redis.pcall(...) return call(native.ASK_PCALL, ...) end

function redis.error_reply(text, ...)
  if type(text) ~= "string" or select("#", ...) > 0 then
    return {err = "ERR wrong number or type of arguments"}
  end
  return {err = native.error_text(text)}
end

function redis.status_reply(text, ...)
  if type(text) ~= "string" or select("#", ...) > 0 then
    return {err = "ERR wrong number or type of arguments"}
  end
  return {ok = text}
end

function redis.log(level, ...)
  if select("#", ...) == 0 then error("server.log() requires two arguments or more.", 2) end
  if type(level) ~= "number" then error("First argument must be a number (log level).", 2) end
  if level < 0 or level > 3 then error("Invalid log level.", 2) end
  local words = {}
  for at = 1, select("#", ...) do words[at] = tostring((select(at, ...))) end
  call(native.ASK_LOG, level, table.concat(words, " "))
end

redis.sha1hex = guarded(stoppable(native.sha1hex))
redis.setresp = guarded(native.set_version)

function redis.acl_check_cmd(...)
  return finish(call(native.ASK_PERMISSION, ...))
end

function redis.set_repl() end
function redis.replicate_commands() return true end
function redis.breakpoint() return false end
function redis.debug() end

-- Everything together.

local function library(functions, shows)
  local all = {}
  for name, f in next, functions do
    all[name] = type(f) == "function" and guarded(stoppable(f)) or f
  end
  return shows(all)
end

for _, name in next, {"bit", "cmsgpack", "struct"} do global[name] = library(libraries[name], readonly) end

-- What a script sets of `cjson` is in effect until it ends.

local json_changed = false

local new_json
function new_json(shows)
  return library(finish(libraries.cjson.new()), function(all)
    local encode, decode = all.encode, all.decode
    for name, f in next, all do
      if type(f) == "function" and f ~= encode and f ~= decode then
        all[name] = function(...)
          json_changed = true
          return f(...)
        end
      end
    end
    function all.new()
      return new_json(function(own) return own end)
    end
    return shows(all)
  end)
end

global.string, global.table, global.math = readonly(strings), readonly(tables), readonly(math)
global.os = readonly({clock = os.clock})
local coroutines = {}
for name, f in next, coroutine do coroutines[name] = f end
-- Each coroutine counts its own instructions, so a tree of short ones is never looked at.
coroutines.create, coroutines.wrap = stoppable(coroutine.create), stoppable(coroutine.wrap)
coroutines.resume = stoppable(function(...) return caught(coroutine.resume(...)) end)
global.coroutine = readonly(coroutines)
global.redis = readonly(redis)
global.server = global.redis

setmetatable(global, {__index = function(_, name)
  error("Script attempted to access nonexistent global variable '" .. tostring(name) .. "'", 2)
end})
local environment = readonly(global)
global._G = environment
global.cjson = new_json(readonly)

-- The methods of strings are those of the library, and stay so.
local of_strings = getmetatable("")
of_strings.__index = strings
of_strings.__metatable = readonly({__index = global.string})

local failed_at
local function describe(failure)
  failed_at = native.line()
  return failure
end

local function run(script)
  if json_changed then
    global.cjson, json_changed = new_json(readonly), false
  end
  failed_at = nil
  local done, value = xpcall(script, describe)
  return done, value, failed_at
end

return global, environment, run
