//! Scripts that would never end, or take all memory.

use crate::{LIMITS, Map, run};
use larder_script::{Interpreter, Stop};

/// A table whose length Lua takes for 536,870,912.
const SPARSE: &str = "local s = 'return {' for n = 0, 29 do s = s .. '[' .. 2 ^ n .. ']=1,' end \
                      local t = loadstring(s .. '}')()";

/// What is tried, and why it is stopped. `None` = an error is as good.
const ENDLESS: &[(&str, Option<Stop>)] = &[
    ("while true do end", Some(Stop::Time)),
    ("while true do pcall(function() while true do end end) end", Some(Stop::Time)),
    ("while true do xpcall(error, function() while true do end end) end", Some(Stop::Time)),
    ("xpcall(function() while true do end end, function() while true do end end)", Some(Stop::Time)),
    (
        "while true do coroutine.resume(coroutine.create(function() while true do end end)) end",
        Some(Stop::Time),
    ),
    (
        "local c = coroutine.wrap(function() while true do coroutine.yield() end end) while true do c() end",
        Some(Stop::Time),
    ),
    (
        "local c = coroutine.wrap(function() while true do pcall(coroutine.yield) end end) while true do c() end",
        None,
    ),
    ("local function f() return pcall(f) end while true do f() end", Some(Stop::Time)),
    (
        "local c = coroutine.create(function() while true do end end) coroutine.resume(c) \
      while true do pcall(function() while true do end end) end",
        Some(Stop::Time),
    ),
    (
        "local function f(d) if d < 150 then coroutine.wrap(f)(d + 1) coroutine.wrap(f)(d + 1) end end f(0)",
        Some(Stop::Time),
    ),
    (
        "local function f(d) if d < 90 then for n = 1, 2 do pcall(coroutine.resume, coroutine.create(f), d + 1) end \
      end end f(0)",
        Some(Stop::Time),
    ),
    ("SPARSE while true do pcall(table.remove, t, '1') end", Some(Stop::Time)),
    ("SPARSE while true do pcall(table.remove, t, 4294967297) end", Some(Stop::Time)),
    ("SPARSE while true do pcall(table.insert, t, '1', 0) end", None),
    ("SPARSE while true do pcall(table.insert, t, -4294967295, 0) end", Some(Stop::Time)),
    (
        "local s, t = ('x'):rep(1e6), {} local one = {ok = s} for n = 1, 3e4 do t[n] = one end return t",
        Some(Stop::Memory),
    ),
    ("local t = {} local m = {map = t} t[1] = m for n = 2, 3e4 do t[n] = n end return m", None),
    ("SPARSE table.foreachi(t, getmetatable)", Some(Stop::Time)),
    ("SPARSE while true do pcall(table.remove, t, 1) end", Some(Stop::Time)),
    ("SPARSE while true do table.insert(t, 1, 0) end", None),
    (
        "local t = {} for n = 1, 1e9 do t[n % 5000 + 1] = n if n % 5000 == 0 then table.sort(t, rawequal) end end",
        None,
    ),
    ("local t = {} t[1], t[2] = t, t return t", None),
    ("local s, t = ('x'):rep(1e6), {} for n = 1, 1000 do t[n] = s end return t", Some(Stop::Memory)),
    ("local s = ('x'):rep(3e5):gsub('.+', ('%0'):rep(1e5))", Some(Stop::Memory)),
    (
        "local s, t = ('x'):rep(1e6), {} for n = 1, 7000 do t[n] = s end redis.call('echo', unpack(t))",
        Some(Stop::Memory),
    ),
    ("while true do cjson.encode(('\\1'):rep(1e6)) end", None),
    ("return ('x'):find('[' .. ('%w'):rep(9e5) .. ']')", None),
    ("while true do redis.call('get', 'k') end", Some(Stop::Time)),
    ("while true do pcall(redis.call, 'nosuch') end", Some(Stop::Time)),
    ("while true do loadstring('x = 1') end", Some(Stop::Time)),
    ("for n = 1, 1e9 do collectgarbage() end", Some(Stop::Time)),
    ("for n = 1, 1e9 do cjson.encode({1, 2, 3}) end", Some(Stop::Time)),
    ("while true do pcall(string.find, ('a'):rep(40), ('a-'):rep(20) .. 'b') end", Some(Stop::Time)),
    ("while true do ('a'):rep(1000):gsub('a', function() return 'b' end) end", Some(Stop::Time)),
    ("while true do table.sort({3, 2, 1}, function() return true end) end", None),
    ("local t = {} while true do t[#t + 1] = ('x'):rep(100000) .. #t end", Some(Stop::Memory)),
    ("local s = 'x' while true do s = s .. s end", Some(Stop::Memory)),
    ("return ('x'):rep(2^40)", Some(Stop::Memory)),
    ("local function f(...) return f(1, ...) end f()", None),
    ("local function f() f() end f()", None),
    ("local function f(s) return string.gsub(s, '.', f) end f('a')", None),
    ("local t = setmetatable({}, {__index = function(t, k) return t[k] end}) return t.x", None),
    ("local t = {} t[1] = t return t", None),
    ("return cjson.decode(('['):rep(1e6))", None),
    ("local t = {} t[1] = t return cjson.encode(t)", None),
    ("return cmsgpack.unpack(('\\145'):rep(1e6))", None),
    ("return {unpack({}, 1, 1e7)}", None),
    ("return string.format('%99999d', 1)", None),
    ("return loadstring(('x = 1 '):rep(1e6))()", None),
];

#[test]
fn what_has_no_end_is_stopped_and_the_next_script_is_executed() {
    let (mut lua, mut host) = (Interpreter::new().expect("there is memory"), Map::default());
    for (script, why) in ENDLESS {
        let ran = run(&mut lua, &mut host, &script.replace("SPARSE", SPARSE));
        match (why, &ran) {
            (Some(why), Err(stopped)) => assert_eq!(stopped, why, "{script}"),
            (Some(_), Ok(reply)) => panic!("{script}: {reply}"),
            (None, Ok(reply)) => assert!(reply.contains("ERR"), "{script}: {reply}"),
            (None, Err(_)) => {}
        }
        let after =
            run(&mut lua, &mut host, "redis.call('set', 'k', 'v') return {KEYS[1], redis.call('get', 'k')}");
        assert_eq!(after, Ok("*2 $2 k1 $1 v".to_owned()), "after {script}");
        assert!(lua.used_bytes() < LIMITS.bytes, "after {script}: {} bytes", lua.used_bytes());
    }
}
