"""Scripts: they are executed alone, share nothing, are stopped, and reach what their client reaches."""

import threading

from flash_support import FlashCase
from process_support import Case, larder_only
from resp_support import ask, command, receive
from test_tenants import TenantsCase

# A rate limiter as libraries send it: how many calls there were since the first one, which sets the lifetime.
LIMIT = b"local n = redis.call('INCR', KEYS[1]) if n == 1 then redis.call('PEXPIRE', KEYS[1], ARGV[1]) end return n"
RELEASE = b"if redis.call('GET', KEYS[1]) == ARGV[1] then return redis.call('DEL', KEYS[1]) end return 0"
# Each would run for ever, or take all memory.
ENDLESS = [
    b"while true do end",
    b"while true do pcall(function() while true do end end) end",
    b"while true do xpcall(error, function() while true do end end) end",
    b"while true do coroutine.resume(coroutine.create(function() while true do end end)) end",
    b"local c = coroutine.wrap(function() while true do coroutine.yield() end end) while true do c() end",
    b"local function f() return pcall(f) end while true do f() end",
    b"local function f() f() end f()",
    b"local function f(s) return string.gsub(s, '.', f) end f('a')",
    b"local t = setmetatable({}, {__index = function(t, k) return t[k] end}) return t.x",
    b"local t = {} while true do t[#t + 1] = ('x'):rep(1000) end",
    b"local s = 'x' while true do s = s .. s end",
    b"return ('x'):rep(2^40)",
    b"while true do redis.call('PING') end",
    b"while true do pcall(redis.call, 'NOSUCH') end",
    b"while true do redis.pcall('NOSUCH') end",
    b"while true do loadstring('x = 1') end",
    b"for n = 1, 1e9 do collectgarbage() end",
    b"local t = {} for n = 1, 1e9 do t[n] = 1e9 - n end table.sort(t)",
    b"for n = 1, 1e9 do cjson.encode({1, 2, 3}) end",
    b"while true do string.find(('a'):rep(40), ('a-'):rep(20) .. 'b') end",
    b"while true do ('a'):rep(100000):gsub('a', function() return 'b' end) end",
    b"return cjson.decode(('['):rep(1e6))",
    b"return cmsgpack.unpack(('\\145'):rep(1e6))",
]


def script(connection, text, keys=(), args=(), name=b"EVAL"):
    """What a script answers."""
    return ask(connection, name, text, b"%d" % len(keys), *keys, *args)


class ScriptCase(Case):
    """A test case with scripts."""

    def refused(self, reply, words):
        """Fails unless a reply is an error with these words."""
        self.assertTrue(isinstance(reply, bytes) and reply.startswith(b"-") and words in reply, repr(reply))


@larder_only
class Scripts(ScriptCase):
    """Scripts on a server with nothing else."""

    def test_values_go_in_and_out_as_with_redis(self):
        connection = self.connection(self.server())
        for text, expected in (
            (b"return {KEYS[1], KEYS[2], ARGV[1], #ARGV}", [b"a", b"b", b"c", 2]),
            (b"return {1, 2.9, 'x', true, false, 4, nil, 5}", [1, 2, b"x", 1, None, 4]),
            (b"return redis.call('SET', KEYS[1], 'v')", b"OK"),
            (b"return redis.call('GET', KEYS[1])", b"v"),
            (b"return redis.call('MGET', KEYS[1], 'none')", [b"v", None]),
            (b"return redis.call('GET', 'none') == false", 1),
            (b"return redis.call('TYPE', KEYS[1])", b"string"),
            (b"return redis.status_reply('FINE')", b"FINE"),
            (b"return redis.sha1hex('')", b"da39a3ee5e6b4b0d3255bfef95601890afd80709"),
            (b"return cjson.encode({a = {1, 2}})", b'{"a":[1,2]}'),
            (b"return cjson.decode('[1, {\"b\": null}]')[2].b == cjson.null", 1),
            (b"return cmsgpack.unpack(cmsgpack.pack({1, 'x'}))", [1, b"x"]),
            (b"return bit.band(0xff, 0x0f)", 15),
            (b"return {struct.unpack('>I2', struct.pack('>I2', 258))}", [258, 3]),
            (b"return {('hello world'):gsub('o', {o = '0'})}", [b"hell0 w0rld", 2]),
            (b"return tostring(1e15)", b"1e+15"),
            (b"return redis.call('ECHO', 0.1)", b"0.1"),
        ):
            self.assertEqual(script(connection, text, (b"a", b"b"), (b"c", b"d")), expected, text)
        for text, words in (
            (b"return redis.call('INCR', KEYS[1])", b"-ERR value is not an integer or out of range script: "),
            (b"return (", b"-ERR Error compiling script (new function): user_script:1: "),
            (b"\nreturn x", b"user_script:2: Script attempted to access nonexistent global variable 'x' script: "),
            (b"return redis.call('NOSUCH')", b"-ERR Unknown Redis command called from script script: "),
            (b"return redis.call('MULTI')", b"-ERR This Redis command is not allowed from script"),
            (b"return redis.call('EVAL', 'return 1', 0)", b"-ERR This Redis command is not allowed from script"),
            (b"return redis.call('CONFIG', 'GET', 'port')", b"-ERR This Redis command is not allowed from script"),
            (b"return redis.error_reply('MY error')", b"-MY error"),
            (b"error({err = 'MY error'})", b"-MY error script: "),
            (b"return {err = 'a\\r\\nb'}", b"-a  b"),
            (b"#!lua flags=no-writes\nreturn redis.call('SET', KEYS[1], 'v')", b"-ERR Write commands are not allowed"),
        ):
            self.refused(script(connection, text, (b"a", b"b")), words)
        self.refused(script(connection, b"return redis.call('SET', 'a', 'b')", name=b"EVAL_RO"), b"Write commands")
        self.refused(ask(connection, b"EVAL", b"return 1", b"x"), b"not an integer")
        self.refused(ask(connection, b"EVAL", b"return 1", b"2", b"a"), b"greater than number of args")
        self.assertEqual(ask(connection, b"COMMAND", b"GETKEYS", b"EVAL", b"x", b"2", b"a", b"b", b"c"), [b"a", b"b"])

    def test_scripts_are_kept_for_all_connections_until_they_are_forgotten(self):
        server = self.server("-t", "4")
        doors = [self.connection(server) for _ in range(8)]
        name = ask(doors[0], b"SCRIPT", b"LOAD", RELEASE)
        self.assertEqual([ask(door, b"SCRIPT", b"EXISTS", name, b"0" * 40) for door in doors], [[1, 0]] * 8)
        ask(doors[1], b"SET", b"lock", b"mine")
        for door in doors:
            self.assertEqual(script(door, name, (b"lock",), (b"theirs",), b"EVALSHA"), 0)
        self.assertEqual(script(doors[7], name.upper(), (b"lock",), (b"mine",), b"EVALSHA"), 1)
        self.assertEqual(ask(doors[2], b"SCRIPT", b"SHOW", name), RELEASE)
        self.assertEqual(ask(doors[3], b"SCRIPT", b"FLUSH"), b"OK")
        for door in doors:
            self.refused(script(door, name, (b"lock",), (b"mine",), b"EVALSHA"), b"NOSCRIPT")
        self.assertEqual(script(doors[4], RELEASE, (b"lock",), (b"mine",)), 0)
        self.assertEqual(script(doors[5], name, (b"lock",), (b"mine",), b"EVALSHA"), 0, "EVAL keeps a script, too")
        self.refused(ask(doors[0], b"SCRIPT", b"KILL"), b"NOTBUSY")

    def test_scripts_that_each_come_once_take_bounded_memory(self):
        connection = self.connection(self.server())
        for start in range(0, 20000, 100):
            connection.send(b"".join(command(b"EVAL", b"return %d" % number, b"0")
                                     for number in range(start, start + 100)))
            self.assertEqual([receive(connection) for _ in range(100)], list(range(start, start + 100)))
        lines = dict(line.split(b":", 1) for line in ask(connection, b"INFO", b"memory").split(b"\r\n") if b":" in line)
        self.assertEqual(int(lines[b"number_of_cached_scripts"]), 500)
        self.assertLess(int(lines[b"used_memory_scripts"]), 4 << 20)

    def test_many_workers_with_little_memory_go_on_after_scripts_that_leave_garbage(self):
        server = self.server("-t", "16", "-m", "64", "--script-ms", "1000")
        connections = [self.connection(server) for _ in range(64)]
        for number in range(8):
            text = b"local t = {} for n = 1, 3000 do t[n] = ('%d'):rep(20) .. n end return #t" % number
            for connection in connections:
                connection.send(command(b"EVAL", text, b"0"))
            for connection in connections:
                reply = receive(connection)
                self.assertTrue(reply == 3000 or reply.startswith(b"-OOM"), reply)
        for connection in connections:
            self.assertEqual(script(connection, b"return #KEYS[1]", (b"key",)), 3)

    def test_nothing_comes_between_the_commands_of_a_script(self):
        server = self.server("-t", "4")
        rounds, failures = 300, []
        add = b"local n = redis.call('GET', KEYS[1]) or 0 redis.call('SET', KEYS[1], n + 1) return n"

        def by_script():
            connection = self.connection(server)
            connection.send(b"".join(command(b"EVAL", add, b"1", b"n") for _ in range(rounds)))
            failures.extend(reply for reply in (receive(connection) for _ in range(rounds)) if not reply.isdigit())

        def by_text():
            connection = self.connection(server)
            connection.send(b"incr n 1\r\n" * rounds)
            failures.extend(line for line in (connection.line() for _ in range(rounds)) if not line.isdigit())

        self.assertEqual(ask(self.connection(server), b"SET", b"n", b"0"), b"OK")
        threads = [threading.Thread(target=work) for work in [by_script] * 4 + [by_text] * 2]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        self.assertEqual(failures, [])
        self.assertEqual(ask(self.connection(server), b"GET", b"n"), b"%d" % (6 * rounds))

    def test_a_script_without_end_is_stopped_and_harms_nobody(self):
        server = self.server("-t", "2")
        connections = [self.connection(server) for _ in range(4)]
        others = [self.connection(server) for _ in range(4)]
        for text in ENDLESS:
            for connection in connections:
                connection.send(command(b"EVAL", text, b"0"))
            for other in others:
                self.assertEqual(ask(other, b"SET", b"k", b"v"), b"OK")
            for connection in connections:
                reply = receive(connection)
                self.assertTrue(reply.startswith(b"-"), (text, reply))
                self.assertEqual(script(connection, LIMIT, (b"limit",), (b"100000",)) > 0, True, text)
        kept = [ask(other, b"GET", b"k") for other in others]
        self.assertEqual(kept, [b"v"] * 4)
        self.refused(script(connections[0], ENDLESS[0]), b"the script was stopped: it took more than 5 ms")
        self.refused(script(connections[0], b"return ('x'):rep(2^40)"), b"OOM")

    def test_the_time_of_scripts_is_a_setting(self):
        connection = self.connection(self.server("--script-ms", "50"))
        self.refused(script(connection, b"while true do end"), b"more than 50 ms")
        self.assertEqual(ask(connection, b"CONFIG", b"SET", b"lua-time-limit", b"7"), b"OK")
        self.refused(script(connection, b"while true do end"), b"more than 7 ms")
        self.assertEqual(ask(connection, b"CONFIG", b"GET", b"busy-reply-threshold"), [b"busy-reply-threshold", b"7"])
        self.refused(ask(connection, b"CONFIG", b"SET", b"lua-time-limit", b"0"), b"ERR")

    def test_scripts_share_nothing(self):
        connection = self.connection(self.server("-t", "1"))
        for text in (b"x = 1", b"_G.x = 1", b"rawset(_G, 'x', 1)", b"redis.call = 1", b"rawset(redis, 'call', 1)",
                     b"string.rep = 1", b"table.insert(redis, 1)", b"table.insert(_G, 1)", b"KEYS = 1",
                     b"setmetatable(_G, {})", b"setmetatable(redis, {})", b"getmetatable('').__index = 1",
                     b"getmetatable('').__index.upper = 1", b"cjson.encode = 1", b"math.x = 1", b"os.x = 1",
                     b"loadstring('x = 1')()", b"coroutine.wrap(function() x = 1 end)()"):
            with self.subTest(text):
                self.refused(script(connection, text), b"Attempt to modify a readonly table")
        # What can be got hold of is a copy, or what scripts may not change.
        for text in (b"local _, t = pairs(redis) t.call = 1", b"local _, t = pairs(_G) t.x = 1 t.redis = 1",
                     b"for k, v in pairs(string) do k = v end", b"KEYS[1] = 'x' ARGV.x = 1",
                     b"cjson.encode_sparse_array(true, 1, 1) cjson.decode_max_depth(1)",
                     b"local t = getmetatable(_G) if t then t.x = 1 end"):
            reply = script(connection, text)
            self.assertTrue(reply is None or reply.startswith(b"-"), reply)
        self.assertEqual(script(connection, b"return cjson.encode({[1000] = 1})")[:4], b"-ERR")
        self.assertEqual(script(connection, b"return cjson.decode('[[[1]]]')[1][1][1]"), 1)
        self.assertEqual(script(connection, b"return redis.call('PING')"), b"PONG")
        self.refused(script(connection, b"return x"), b"nonexistent global variable 'x'")
        self.refused(script(connection, b"return io"), b"nonexistent global variable 'io'")
        for name in (b"dofile", b"loadfile", b"require", b"print", b"setfenv", b"getfenv", b"debug", b"package"):
            self.refused(script(connection, b"return " + name), b"nonexistent global variable")
        self.assertEqual(script(connection, b"return loadstring(string.dump(function() return 1 end))"), None)

    def test_a_script_in_a_transaction_is_a_part_of_it(self):
        server = self.server()
        connection, other = self.connection(server), self.connection(server)
        for words in ((b"MULTI",), (b"EVAL", LIMIT, b"1", b"n", b"100000"), (b"EVAL", b"return redis.call('NO')", b"0"),
                      (b"EVAL", b"while true do end", b"0"), (b"GET", b"n")):
            ask(connection, *words)
        said = ask(connection, b"EXEC")
        self.assertEqual((said[0], said[3]), (1, b"1"))
        self.refused(said[1], b"Unknown Redis command")
        self.refused(said[2], b"was stopped")
        ask(connection, b"WATCH", b"n")
        script(other, LIMIT, (b"n",), (b"100000",))
        ask(connection, b"MULTI")
        ask(connection, b"GET", b"n")
        self.assertIsNone(ask(connection, b"EXEC"))
        # A reply that is not wanted, and RESP3.
        connection.send(command(b"CLIENT", b"REPLY", b"SKIP") + command(b"EVAL", b"return 1", b"0")
                        + command(b"EVAL", b"return 2", b"0"))
        self.assertEqual(receive(connection), 2)
        ask(connection, b"HELLO", b"3")
        self.assertIsNone(script(connection, b"return false"))
        connection.send(command(b"EVAL", b"redis.setresp(3) return redis.call('GET', 'none') == nil", b"0"))
        self.assertEqual(connection.line(), b"#t")

    def test_a_script_chooses_a_database_for_itself(self):
        connection = self.connection(self.server())
        ask(connection, b"SELECT", b"1")
        text = b"redis.call('SET', 'k', '1') redis.call('SELECT', 2) redis.call('SET', 'k', '2') return 1"
        self.assertEqual(script(connection, text), 1)
        self.assertEqual(ask(connection, b"GET", b"k"), b"1")
        self.assertEqual(script(connection, b"return redis.call('KEYS', '*')"), [b"k"])
        ask(connection, b"SELECT", b"2")
        self.assertEqual(ask(connection, b"GET", b"k"), b"2")
        ask(connection, b"SELECT", b"0")
        self.assertEqual(ask(connection, b"DBSIZE"), 0)

    def test_a_full_memory_is_an_error_that_a_script_can_catch(self):
        connection = self.connection(self.server("-m", "8", "-M"))
        number = 0
        while ask(connection, b"SET", b"fill%d" % number, b"x" * 8000) == b"OK":
            number += 1
        text = (b"local said = redis.pcall('SET', KEYS[1], ('x'):rep(9000)) "
                b"return {said.err, redis.call('GET', 'fill0')}")
        said = script(connection, text, (b"more",))
        self.assertEqual((said[0][:3], said[1]), (b"OOM", b"x" * 8000))
        self.refused(script(connection, b"return redis.call('SET', KEYS[1], ('x'):rep(9000))", (b"more",)), b"OOM")
        self.assertEqual(script(connection, b"return redis.call('DEL', KEYS[1])", (b"fill0",)), 1)


@larder_only
class Users(TenantsCase, ScriptCase):
    """A script may do what its user may do, with the user's own keys."""

    def test_scripts_keep_to_the_namespace_and_the_rights_of_their_user(self):
        server = self.serve()
        ada, bob, root, eve = (self.resp_door(server, user) for user in ("ada", "bob", "root", "eve"))
        for user, door in ((b"ada", ada), (b"bob", bob), (b"root", root)):
            self.assertEqual(script(door, b"return redis.call('SET', KEYS[1], ARGV[1])", (b"k",), (user,)), b"OK")
        for user, door in ((b"ada", ada), (b"bob", bob), (b"root", root), (b"ada", eve)):
            self.assertEqual(script(door, b"return redis.call('GET', 'k')"), user)
        for door in (ada, bob, eve):
            self.assertEqual(script(door, b"return redis.call('KEYS', '*')"), [b"k"])
        self.refused(script(eve, b"return redis.call('SET', 'k', 'eve')"), b"NOPERM")
        self.assertEqual(script(eve, b"return redis.acl_check_cmd('SET', 'k', 'v')"), None)
        self.assertEqual(script(ada, b"return redis.acl_check_cmd('SET', 'k', 'v')"), 1)
        self.assertEqual(script(ada, b"return redis.call('FLUSHALL')"), b"OK")
        self.assertEqual([ask(door, b"DBSIZE") for door in (ada, bob)], [0, 1])
        ask(ada, b"MULTI")
        script(ada, b"return redis.call('SET', KEYS[1], 'in a transaction')", (b"k",))
        self.assertEqual(ask(ada, b"EXEC"), [b"OK"])
        self.assertEqual(ask(root, b"GET", b"shop:k"), b"in a transaction")
        for door in (ada, eve):
            self.refused(ask(door, b"SCRIPT", b"FLUSH"), b"NOPERM")
        self.assertEqual(ask(root, b"SCRIPT", b"FLUSH"), b"OK")


@larder_only
class OnFlash(FlashCase, ScriptCase):
    """Scripts on items that only flash has."""

    def test_scripts_find_what_is_on_flash(self):
        server = self.flash_server()
        connection = self.connection(server)
        items = {b"k%d" % number: b"%d:" % number + b"v" * 500 for number in range(400)}
        large = {b"large%d" % number: b"%d:" % number + b"L" * 40000 for number in range(8)}
        for key, value in {**items, **large}.items():
            self.assertEqual(ask(connection, b"SET", key, value), b"OK")
        # What the server saves when it ends has no copy in memory, and in no buffer of flash, when it begins again.
        self.assertEqual(server.stop(), 0)
        again = self.flash_server()
        self.started_again(again)
        connection, names = self.connection(again), list(items)
        # Named: all at once.
        self.assertEqual(script(connection, b"return redis.call('MGET', unpack(KEYS))", names[:50]),
                         [items[name] for name in names[:50]])
        # Not named: the script begins anew until everything is here.
        for start in range(50, 200, 10):
            wanted = names[start:start + 10]
            text_of_all = b"local t = {} for n = 1, #ARGV do t[n] = redis.call('GET', ARGV[n]) end return t"
            found = script(connection, text_of_all, (), wanted)
            self.assertEqual(found, [items[name] for name in wanted])
        # What is caught is not done twice.
        counts = b"local found = pcall(redis.call, 'GET', ARGV[1]) return redis.call('INCR', 'count')"
        for number, name in enumerate(names[390:400], 1):
            self.assertEqual(script(connection, counts, (), (name,)), number)
        for name, value in large.items():
            self.assertEqual(script(connection, b"return redis.call('GET', ARGV[1])", (), (name,)), value)
        # Changed before: what is not here cannot be waited for any more.
        seen = set()
        changes = b"redis.call('SET', 'mark', ARGV[1]) return redis.call('GET', ARGV[1])"
        for name in names[200:300]:
            said = script(connection, changes, (), (name,))
            seen.add(said if said[:1] == b"-" else said == items[name])
            self.assertEqual(ask(connection, b"GET", b"mark"), name)
        errors = seen - {True}
        self.assertEqual(len(errors), 1, seen)
        self.refused(errors.pop(), b"the item is on flash")
        for name in large:
            said = script(connection, b"redis.call('SET', 'mark', 1) return redis.call('STRLEN', ARGV[1])", (), (name,))
            self.assertIn(said if isinstance(said, int) else said[:4], (len(large[name]), b"-ERR"))
        # In a transaction the keys that are named are brought first.
        for name in names[300:390]:
            ask(connection, b"MULTI")
            script(connection, b"return redis.call('GETDEL', KEYS[1])", (name,))
            self.assertEqual(ask(connection, b"EXEC"), [items[name]])
        self.assertEqual(script(connection, b"return redis.call('EXISTS', unpack(KEYS))", names[300:390]), 0)
