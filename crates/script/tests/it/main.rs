//! Scripts with a host that keeps strings in a map.

mod stops;

use larder_protocol::resp::{Args, Version, compose as words};
use larder_script::{Called, Host, Interpreter, Limits, Name, Request, Stop};
use std::collections::BTreeMap;
use std::time::Duration;

/// Long enough for what is not stopped on a busy machine, and for what is.
pub(crate) const LIMITS: Limits = Limits { time: Duration::from_millis(200), bytes: 8 << 20 };

#[derive(Default)]
pub(crate) struct Map {
    values: BTreeMap<Vec<u8>, Vec<u8>>,
    pub(crate) logged: Vec<(u8, String)>,
    /// The script is stopped at the first command.
    stops: bool,
    calls: u32,
}

impl Host for Map {
    fn call(&mut self, request: Args<'_>, version: Version, reply: &mut Vec<u8>) -> Called {
        let args: Vec<&[u8]> = request.collect();
        self.calls += 1;
        match (&args[0].to_ascii_lowercase()[..], &args[1..]) {
            _ if self.stops => return Called::Stop,
            (b"get", [key]) => match self.values.get(*key) {
                Some(value) => words::bulk(reply, value),
                None => words::null(reply, version),
            },
            (b"set", [key, value]) => {
                self.values.insert(key.to_vec(), value.to_vec());
                words::simple(reply, "OK");
            }
            (b"echo", [text]) => words::bulk(reply, text),
            (b"count", values) => words::integer(reply, values.len() as i64),
            (b"map", []) => {
                words::map_head(reply, version, 1);
                words::bulk(reply, b"a");
                words::double(reply, version, 1.5);
            }
            _ => words::error(reply, b"ERR unknown"),
        }
        Called::Answered
    }

    fn is_permitted(&mut self, request: Args<'_>) -> Option<bool> {
        request.clone().next().filter(|name| *name != b"nosuch").map(|name| name == b"get")
    }

    fn log(&mut self, level: u8, text: &[u8]) {
        self.logged.push((level, String::from_utf8_lossy(text).into_owned()));
    }
}

/// Words as a request has them.
fn composed(list: &[&str]) -> Vec<u8> {
    let mut bytes = Vec::new();
    list.iter().for_each(|word| words::bulk(&mut bytes, word.as_bytes()));
    bytes
}

/// What compiled scripts may take, in bytes.
const SCRIPTS_MAX: usize = 64 << 10;

/// Runs a script in RESP3, with two keys and an argument.
pub(crate) fn run(lua: &mut Interpreter, host: &mut Map, script: &str) -> Result<String, Stop> {
    let name = Name::of(script.as_bytes());
    if let Err(error) = lua.compile(name, script.as_bytes(), LIMITS.bytes) {
        return Ok(String::from_utf8_lossy(&error).into_owned());
    }
    let (keys, args) = (composed(&["k1", "k2"]), composed(&["a1"]));
    let request = Request {
        name,
        keys: Args::new(&keys, 2),
        args: Args::new(&args, 1),
        limits: LIMITS,
        version: Version::Resp3,
    };
    let mut reply = Vec::new();
    let ran = lua.run(&request, host, &mut reply);
    lua.settle(SCRIPTS_MAX);
    ran.map(|()| String::from_utf8_lossy(&reply).replace("\r\n", " ").trim_end().to_owned())
}

/// Runs a script on a new interpreter.
fn answer(script: &str) -> String {
    let mut lua = Interpreter::new().expect("there is memory");
    run(&mut lua, &mut Map::default(), script).expect("it is not stopped")
}

#[test]
fn values_become_replies() {
    for (script, expected) in [
        ("return 3.99", ":3"),
        ("return {-2.9, 2^63, 0/0}", "*3 :-2 :-9223372036854775808 :-9223372036854775808"),
        ("return 'x'", "$1 x"),
        ("return nil", "_"),
        ("return true", ":1"),
        ("return false", "_"),
        ("redis.setresp(3) return true", "#t"),
        ("return {KEYS[2], ARGV[1], {}, {ok = 'fine'}}", "*4 $2 k2 $2 a1 *0 +fine"),
        ("return {1, nil, 3}", "*1 :1"),
        ("return {err = 'MY error'}", "-MY error"),
        ("return {double = 2.5}", ",2.5"),
        ("return {{double = 1e100}, {double = 0/0}}", "*2 ,1e+100 ,nan"),
        ("return {map = {a = 1}}", "%1 $1 a :1"),
        ("return {set = {a = true}}", "~1 $1 a"),
        ("return {big_number = '12'}", "(12"),
        ("return {verbatim_string = {format = 'txt', string = 'ab'}}", "=6 txt:ab"),
        ("return function() end", "_"),
    ] {
        assert_eq!(answer(script), expected, "{script}");
    }
}

#[test]
fn replies_become_values() {
    for (script, expected) in [
        ("return redis.call('get', 'none') == false", ":1"),
        ("redis.setresp(3) return redis.call('get', 'none') == nil", "#t"),
        ("return redis.call('set', 'a', 'b').ok", "$2 OK"),
        ("redis.call('set', 'a', 1.5) return redis.call('get', 'a')", "$3 1.5"),
        ("redis.call('set', 'a', '\\0\\255') return #redis.call('get', 'a')", ":2"),
        ("return redis.call('count', 1, '2', 3)", ":3"),
        ("local map = redis.call('map') return {map[1], map[2]}", "*2 $1 a $3 1.5"),
        ("redis.setresp(3) return redis.call('map').map.a.double == 1.5", "#t"),
        ("return redis.pcall('nosuch').err", "$11 ERR unknown"),
        ("return {pcall(redis.call, 'nosuch')}", "*2 _ $11 ERR unknown"),
        (
            "return {xpcall(function() redis.call('nosuch') end, function(e) return 'saw ' .. e end)}",
            "*2 _ $15 saw ERR unknown",
        ),
        (
            "local co = coroutine.create(function() redis.call('nosuch') end) return {coroutine.resume(co)}",
            "*2 _ $11 ERR unknown",
        ),
        ("return redis.acl_check_cmd('get', 'x')", ":1"),
        ("return redis.acl_check_cmd('set', 'x', 'y')", "_"),
    ] {
        assert_eq!(answer(script), expected, "{script}");
    }
}

#[test]
fn errors_say_where_they_were_raised() {
    let named = |script: &str, text: &str| {
        let name = Name::of(script.as_bytes());
        format!("-{text}").replace("SCRIPT", &format!("script: {}", String::from_utf8_lossy(name.digits())))
    };
    for (script, expected) in [
        ("return redis.call('nosuch')", "ERR unknown SCRIPT, on @user_script:1."),
        ("\nlocal x = redis.call('nosuch')", "ERR unknown SCRIPT, on @user_script:2."),
        ("error('boo')", "ERR user_script:1: boo SCRIPT, on @user_script:1."),
        ("error({err = 'MY boo'})", "MY boo SCRIPT, on @user_script:1."),
        ("error()", "ERR nil SCRIPT, on @user_script:1."),
        ("error({1})", "ERR unknown error SCRIPT, on @user_script:1."),
        (
            "return nosuch",
            "ERR user_script:1: Script attempted to access nonexistent global variable 'nosuch' SCRIPT, \
                           on @user_script:1.",
        ),
        (
            "local x = table.concat({{}}) return x",
            "ERR user_script:1: invalid value (table) at index 1 in table for \
                                                   'concat' SCRIPT, on @user_script:1.",
        ),
        (
            "local x = string.find('a', '[') return x",
            "ERR user_script:1: malformed pattern (missing ']') SCRIPT, on \
                                                      @user_script:1.",
        ),
        (
            "#!lua\n\nlocal x = nil + 1",
            "ERR user_script:3: attempt to perform arithmetic on a nil value SCRIPT, on \
                                        @user_script:3.",
        ),
    ] {
        assert_eq!(answer(script), named(script, expected), "{script}");
    }
    assert_eq!(
        answer("return ("),
        "ERR Error compiling script (new function): user_script:1: unexpected symbol near \
                                    '<eof>'"
    );
    assert_eq!(answer("#!js\nreturn 1"), "ERR Could not find scripting engine 'js'");
}

#[test]
fn functions_of_lua_are_as_they_were() {
    for (script, expected) in [
        ("return ('ab'):rep(3)", "$6 ababab"),
        ("return {('hello'):find('l'), ('hello'):find('x'), ('a.b'):find('.', 2, true)}", "*1 :3"),
        ("return {('key=value'):match('(%w+)=(%w+)')}", "*2 $3 key $5 value"),
        ("return {('abc'):gsub('%w', '%0%0')}", "*2 $6 aabbcc :3"),
        ("return {('abc'):gsub('', '-')}", "*2 $7 -a-b-c- :4"),
        ("return {('abc abc'):gsub('^a', {a = 'x'})}", "*2 $7 xbc abc :1"),
        ("return {('abc'):gsub('%w', function(c) if c == 'b' then return 7 end end, 2)}", "*2 $3 a7c :2"),
        (
            "local t = {} for k, v in ('a=1, b=2'):gmatch('(%w+)=(%w+)') do t[#t + 1] = k .. v end return t",
            "*2 $2 a1 $2 b2",
        ),
        ("local t = {3, 1, 2} table.sort(t) return t", "*3 :1 :2 :3"),
        ("local t = {3, 1, 2} table.sort(t, function(a, b) return a > b end) return t", "*3 :3 :2 :1"),
        ("local t = {1} table.insert(t, 2) table.insert(t, 1, 0) table.remove(t) return t", "*2 :0 :1"),
        ("return loadstring('return ...')(7)", ":7"),
        ("return load(function() return nil end)", "_"),
        ("local f, why = loadstring('return (') return why:sub(1, 7)", "$7 [string"),
        ("local n = 0 for _ in pairs(math) do n = n + 1 end return n > 20", ":1"),
        ("local t = {1, 2, 3} table.insert(t, '2', 9) table.remove(t, 1.5) return t", "*3 :9 :2 :3"),
        ("local t = {1} return {table.remove(t, 5) == nil, #t}", "*2 :1 :1"),
        ("return select('#', unpack({1, 2, 3}))", ":3"),
        ("return redis.sha1hex('')", "$40 da39a3ee5e6b4b0d3255bfef95601890afd80709"),
        ("return redis.error_reply('oops')", "-ERR oops"),
        ("return redis.error_reply('-MY oops')", "-MY oops"),
        ("return {redis.REDIS_VERSION, redis.replicate_commands(), server.LOG_WARNING}", "*3 $5 7.4.0 :1 :3"),
    ] {
        assert_eq!(answer(script), expected, "{script}");
    }
    let (mut lua, mut host) = (Interpreter::new().expect("there is memory"), Map::default());
    assert_eq!(run(&mut lua, &mut host, "redis.log(redis.LOG_WARNING, 'a', 1)"), Ok("_".to_owned()));
    assert_eq!(host.logged, [(3, "a 1".to_owned())]);
}

#[test]
fn no_script_leaves_anything_to_the_next() {
    let (mut lua, mut host) = (Interpreter::new().expect("there is memory"), Map::default());
    let mut say = |script: &str| run(&mut lua, &mut host, script).expect("it is not stopped");
    for script in [
        "x = 1",
        "_G.x = 1",
        "rawset(_G, 'x', 1)",
        "redis.call = 1",
        "string.rep = 1",
        "table.insert(redis, 1)",
        "setmetatable(_G, {})",
        "getmetatable('').__index = 1",
        "getmetatable('').__index.upper = 1",
        "KEYS = 1",
        "cjson.encode = 1",
        "coroutine.wrap(function() x = 1 end)()",
        "pcall(function() x = 1 end) y = 1",
    ] {
        assert!(say(script).contains("Attempt to modify a readonly table"), "{script}: {}", say(script));
    }
    say("KEYS.x = 1 setmetatable(KEYS, {__index = function() return 1 end}) ARGV[1] = 'changed'");
    assert_eq!(say("return {KEYS.x or 'none', KEYS[3] or 'none', ARGV[1]}"), "*3 $4 none $4 none $2 a1");
    say("cjson.encode_sparse_array(true, 1, 1) cjson.decode_max_depth(1) cmsgpack.pack(1)");
    assert_eq!(say("return cjson.encode(cjson.decode('[[1]]'))"), "$5 [[1]]");
    say("for _, t in pairs({_G, redis, string}) do local _, all = pairs(t) all.call, all.rep = 1, 1 end");
    assert_eq!(say("return redis.call('echo', ('x'):rep(2))"), "$2 xx");
    for name in
        ["io", "require", "debug", "print", "dofile", "loadfile", "setfenv", "getfenv", "package", "module"]
    {
        assert!(say(&format!("return {name}")).contains("nonexistent global variable"), "{name}");
    }
    assert_eq!(say("return loadstring(string.dump(function() end))"), "_", "no compiled code");
    assert_eq!(say("return os.clock() >= 0 and os.time == nil"), ":1");
}

#[test]
fn the_host_may_stop_a_script() {
    let (mut lua, mut host) =
        (Interpreter::new().expect("there is memory"), Map { stops: true, ..Map::default() });
    let stopped =
        run(&mut lua, &mut host, "pcall(redis.call, 'get', 'k') redis.call('set', 'k', 'v') return 1");
    assert_eq!(stopped, Err(Stop::Host));
    assert_eq!(host.calls, 1, "a script that is to begin anew does nothing more");
    assert_eq!(run(&mut lua, &mut host, "while true do pcall(redis.call, 'get', 'k') end"), Err(Stop::Host));
    host.stops = false;
    assert_eq!(run(&mut lua, &mut host, "return redis.call('get', 'k')"), Ok("_".to_owned()));
}

#[test]
fn scripts_are_forgotten() {
    let mut lua = Interpreter::new().expect("there is memory");
    let (one, two) = (Name::of(b"return 1"), Name::of(b"#!lua flags=no-writes\nreturn 2"));
    lua.compile(one, b"return 1", LIMITS.bytes).expect("a script");
    lua.compile(two, b"#!lua flags=no-writes\nreturn 2", LIMITS.bytes).expect("a script");
    assert_eq!(lua.header(&two).map(|header| header.is_read_only), Some(true));
    lua.retain(|name| *name == one);
    assert!(lua.header(&one).is_some() && lua.header(&two).is_none());
    let used = lua.used_bytes();
    for number in 0..2000 {
        let text = format!("return {number}");
        lua.compile(Name::of(text.as_bytes()), text.as_bytes(), LIMITS.bytes).expect("a script");
        lua.settle(SCRIPTS_MAX);
        assert!(lua.used_bytes() < used + SCRIPTS_MAX + (128 << 10), "{} {used}", lua.used_bytes());
    }
    let kept =
        (0..2000).filter(|number| lua.header(&Name::of(format!("return {number}").as_bytes())).is_some());
    assert!((20..1000).contains(&kept.count()), "a part of them");
}
