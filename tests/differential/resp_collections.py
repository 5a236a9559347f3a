#!/usr/bin/env python3
"""Random requests of RESP on hashes, sets and sorted sets, for the differential test of RESP.

A case is about one of the families or about all. Its keys are few, and some of them hold another type or a string.
"""

# What a hash has when its fields may expire, and what an option of the test switches on.
FIELD_TIMES_COMMANDS = (b"HEXPIRE", b"HPEXPIRE", b"HEXPIREAT", b"HPEXPIREAT", b"HPERSIST", b"HTTL", b"HPTTL",
                        b"HEXPIRETIME", b"HPEXPIRETIME", b"HGETEX", b"HSETEX", b"HGETDEL")
# Which member goes is a matter of chance, so the set goes with it.
POP_AND_DELETE = (b"local got = redis.pcall('SPOP', ARGV[1]) if type(got) == 'table' then return got end "
                  b"redis.call('DEL', ARGV[1]) return type(got)")
# A call of SPOP with another number of words could take some members and leave others.
NEVER_CHANGED = (b"SPOP", b"EVAL")
# More than a set of a case has.
ALL = b"1000000"

HASHES = (b"ha", b"hb", b"hc")
SETS = (b"sa", b"sb", b"sc")
SORTED_SETS = (b"za", b"zb", b"zc")
# Every score is 0 here: where scores differ, the order of a range of texts is nobody's promise.
TEXTS = (b"ta", b"tb")
STRINGS = (b"ka", b"kb")
NOBODYS = (b"none", b"", b"L" * 300)

MEMBERS = (b"a", b"b", b"c", b"d", b"e", b"1", b"2", b"3", b"-7")
ODD_MEMBERS = (b"", b"\x00\xff\x80", b"m" * 64, b"m" * 65, b"n" * 300, b"9223372036854775807", b"-9223372036854775808",
               b"9223372036854775808", b"007", b"+1", b" 1", b"1.5", b"line\r\nline", b"A", b"32768", b"2147483648")
LONG_MEMBERS = (b"o" * 17000, b"p" * 5000)
SCORES = (b"0", b"1", b"2", b"3", b"-1", b"1.5", b"-2.25", b"10", b"1e3", b"100000")
ODD_SCORES = (b"inf", b"-inf", b"+inf", b"Infinity", b"nan", b"0x10", b"1e400", b"1e-400", b"", b" 1", b"1 ", b"abc",
              b"-0", b"+3", b"3.0", b"0.1", b"0.2", b".5", b"5.", b"1e17", b"1e21", b"1e-5", b"123456789012345678",
              b"12345678901234567890", b"9007199254740993", b"1.7976931348623157e308", b"5e-324", b"1,5", b"--1", b"0x",
              b"1e", b"infx", b"1_0", b"9223372036854775807", b"-9223372036854775808")
SCORE_BOUNDS = (b"-inf", b"+inf", b"inf", b"0", b"1", b"(1", b"2", b"(2", b"3", b"-1", b"(1.5", b"(-inf", b"(inf",
                b"10")
ODD_SCORE_BOUNDS = (b"", b"(", b"((1", b"[1", b"x", b"(x", b"nan", b"(nan", b"1 ", b" 1", b"0x2", b"(0x2", b"1e3", b"+",
                    b"-", b"1e400")
TEXT_BOUNDS = (b"-", b"+", b"[a", b"(a", b"[b", b"(c", b"[", b"(", b"[d", b"[1", b"(\xff", b"[b\x00")
ODD_TEXT_BOUNDS = (b"a", b"", b"--", b"++", b"-inf", b"+inf", b"1", b"-x", b"{a")
PATTERNS = (b"*", b"a*", b"?", b"[a-c]", b"*1*", b"", b"nothing", b"[^a]")
COUNTS = (b"0", b"1", b"2", b"3", b"10", b"1000")
ODD_COUNTS = (b"-1", b"x", b"", b"1.5", b"9223372036854775807", b"9223372036854775808", b"-9223372036854775808", b"01")
# No larger negative ones: as many members as they say are sent.
RANDOM_COUNTS = (b"0", b"1", b"2", b"5", b"100", b"-1", b"-3", b"-40")
ODD_RANDOM_COUNTS = (b"x", b"", b"1.5", b"9223372036854775807", b"9223372036854775808", b"-9223372036854775808",
                     b"4611686018427387904")


class Collections:
    """Makes the requests on collections of a case."""

    def __init__(self, chooser, with_field_times=False):
        self.chooser, self.chance, self.pick = chooser, chooser.chance, chooser.pick
        families = (self.hashes() + (self.field_times() if with_field_times else ()), self.sets(),
                    self.sorted_sets() + self.texts())
        chosen = self.chance.choice([families, families[:1], families[1:2], families[2:]])
        self.makers = self.of_any_type() + sum(chosen, ())

    def some(self, maker, most, least=1):
        """Some words that `maker` makes."""
        return [maker() for _ in range(self.chance.randint(least, most))]

    def maybe(self, words, share=0.3):
        """The words, or none."""
        return list(words) if self.chance.random() < share else []

    # Keys: mostly those of the family.

    def any_key(self):
        """A key of any family, or of a string."""
        return self.pick(HASHES[:2] + SETS[:2] + SORTED_SETS[:2], HASHES + SETS + SORTED_SETS + STRINGS + NOBODYS, 0.15)

    def hash(self):
        """The key of a hash, mostly."""
        return self.pick(HASHES[:2], HASHES + SETS + SORTED_SETS + STRINGS + NOBODYS, 0.15)

    def set(self):
        """The key of a set, mostly."""
        return self.pick(SETS[:2], SETS + HASHES + SORTED_SETS + STRINGS + NOBODYS, 0.15)

    def sorted_set(self):
        """The key of a sorted set, mostly."""
        return self.pick(SORTED_SETS[:2], SORTED_SETS + HASHES + SETS + STRINGS + NOBODYS, 0.15)

    def source(self):
        """The key of what is united with sorted sets: a set has scores of 1."""
        return self.pick(SORTED_SETS, SETS + HASHES[:1] + STRINGS + NOBODYS, 0.2)

    def text(self):
        """The key of a sorted set whose scores are all 0."""
        return self.pick(TEXTS, TEXTS + NOBODYS + HASHES[:1] + STRINGS, 0.1)

    def number_and_keys(self, maker, most=3):
        """The number of the keys that follow, and they."""
        keys = self.some(maker, most)
        wrong = (b"0", b"-1", b"x", b"%d" % (len(keys) + 1), b"9223372036854775808", b"", b"1.5")
        return [self.pick((b"%d" % len(keys),), wrong, 0.05)] + keys

    # Parts of requests.

    def member(self):
        """A member or a field."""
        return self.pick(MEMBERS, ODD_MEMBERS if self.chance.random() < 0.95 else LONG_MEMBERS, 0.12)

    def value(self):
        """The value of a field: often a number."""
        return self.chooser.number() if self.chance.random() < 0.5 else self.chooser.value()

    def fields(self, most):
        """Some fields with values."""
        return [word for _ in range(self.chance.randint(1, most)) for word in (self.member(), self.value())]

    def odd(self, words):
        """What is seldom picked. Redis takes numbers of base 16 that Valkey refuses."""
        return words if self.chooser.is_valkey else [word for word in words if b"x" not in word]

    def score(self):
        """A score, or what is none."""
        return self.pick(SCORES, self.odd(ODD_SCORES), 0.12)

    def scored(self, most):
        """Some scores with members."""
        return [word for _ in range(self.chance.randint(1, most)) for word in (self.score(), self.member())]

    def bound(self):
        """An end of a range of scores."""
        return self.pick(SCORE_BOUNDS, self.odd(ODD_SCORE_BOUNDS), 0.06)

    def text_bound(self):
        """An end of a range of texts."""
        return self.pick(TEXT_BOUNDS, ODD_TEXT_BOUNDS, 0.06)

    def rank(self):
        """An end of a range of ranks."""
        return self.pick((b"0", b"1", b"2", b"-1", b"-2", b"5", b"-100", b"100"), ODD_COUNTS, 0.06)

    def count(self):
        """How many at most."""
        return self.pick(COUNTS, ODD_COUNTS, 0.1)

    def limit(self, share=0.3):
        """The words of a LIMIT, or none."""
        usual, wrong = (b"0", b"1", b"2", b"10"), (b"x", b"", b"1.5", b"9223372036854775808")
        # From a negative number on, Valkey shows nothing of a small sorted set, and the end of a large one.
        words = [b"LIMIT", self.pick(usual, wrong), self.pick(usual + (b"-1", b"-5"), wrong)]
        return self.maybe(self.pick((words,), (words[:2], words[:1])), share)

    def limit_of_all(self):
        """The words of the LIMIT of a number of members, or none."""
        return self.maybe([b"LIMIT", self.count()] if self.chance.random() < 0.95 else [b"LIMIT"])

    def with_scores(self, share=0.4):
        """WITHSCORES, or nothing."""
        return self.maybe([self.pick((b"WITHSCORES", b"withscores"), (b"WITHSCORE", b"nonsense"))], share)

    def scan_options(self, is_hash=False):
        """What follows the cursor of a scan."""
        words = self.maybe([b"MATCH", self.pick(PATTERNS)]) + self.maybe([b"COUNT", self.count()])
        words += self.maybe([b"NOVALUES"], 0.3 if is_hash else 0.03)
        return words + self.maybe([self.pick((b"nonsense", b"TYPE", b"COUNT"))], 0.03)

    def cursor(self):
        """A cursor, mostly that of a beginning."""
        return self.pick((b"0",), (b"5", b"x", b"-1", b"", b"1.5", b"99999999999999999999999"), 0.1)

    def random_count(self, word):
        """What follows the key where members are drawn: nothing, or how many, and perhaps `word`."""
        if self.chance.random() < 0.3:
            return []
        more = self.maybe([self.pick((word,), (b"nonsense", word[:-1]))], 0.5) if word else self.maybe([b"x"], 0.03)
        return [self.pick(RANDOM_COUNTS, ODD_RANDOM_COUNTS, 0.1)] + more

    def add_options(self):
        """What stands before the scores of a ZADD."""
        words = []
        for share, choices in ((0.3, (b"NX", b"XX", b"xx")), (0.2, (b"GT", b"LT", b"gt")), (0.3, (b"CH", b"ch"))):
            words += self.maybe([self.chance.choice(choices)], share)
        words += self.maybe([self.pick((b"NX", b"XX", b"LT", b"nonsense", b"CH"))], 0.04)
        self.chance.shuffle(words)
        return words

    def add(self):
        """A ZADD."""
        if self.chance.random() < 0.15:
            # One member, but seldom.
            scored = self.scored(1 if self.chance.random() < 0.9 else 2)
            return [b"ZADD", self.sorted_set()] + self.add_options() + [b"INCR"] + scored
        return [b"ZADD", self.sorted_set()] + self.maybe(self.add_options(), 0.5) + self.scored(5)

    def by_rank_or_score(self):
        """What follows the key of a ZRANGE, without WITHSCORES."""
        if self.chance.random() < 0.4:
            words = [self.rank(), self.rank()] + self.limit(0.02)
        else:
            words = [self.bound(), self.bound(), self.pick((b"BYSCORE", b"byscore"))] + self.limit()
        return words + self.maybe([b"REV"]) + self.maybe([self.pick((b"BYLEX", b"REV", b"nonsense"))], 0.02)

    def by_text(self):
        """What follows the key of a ZRANGE by text."""
        ends = [self.text_bound(), self.text_bound()]
        return ends + [b"BYLEX"] + self.limit() + self.maybe([b"REV"]) + self.with_scores(0.03)

    def weights(self, count):
        """The words of the weights of so many sets, or none."""
        wrong = (b"inf", b"-inf", b"nan", b"x", b"", b"0x2")
        words = [self.pick((b"1", b"2", b"-1", b"0", b"0.5", b"3"), self.odd(wrong)) for _ in range(count)]
        return self.maybe([b"WEIGHTS"] + (words if self.chance.random() < 0.96 else words[1:]), 0.4)

    def combination(self, has_scores):
        """What follows the name of a ZUNION or ZINTER, and the key where it is stored."""
        words = self.number_and_keys(self.source)
        aggregates = (b"MIN", b"MAX", b"min")
        # A sum of three depends on the order, where one of them is infinite or does not fit.
        if len(words) > 3:
            return words + self.weights(len(words) - 1) + [b"AGGREGATE", self.pick(aggregates)] + has_scores
        more = [self.weights(len(words) - 1), self.maybe([b"AGGREGATE", self.pick(aggregates + (b"SUM",), (b"x",))]),
                has_scores, self.maybe([b"nonsense"], 0.02)]
        self.chance.shuffle(more)
        return words + sum(more, [])

    def many(self, name, per_member):
        """Adds so many members that the collection is stored in another way."""
        start, count = self.chance.choice((0, 100)), self.chance.choice((130, 200, 520))
        maker = {b"HSET": self.hash, b"SADD": self.set, b"ZADD": self.sorted_set}[name]
        return [name, maker()] + [word for number in range(start, start + count) for word in per_member(number)]

    # Each of the following returns pairs of a weight and a function that makes a request.

    def hashes(self):
        """Requests on a hash."""
        key, field, chance = self.hash, self.member, self.chance
        return (
            (40, lambda: [self.pick((b"HSET",), (b"HMSET",), 0.2), key()] + self.fields(5)),
            (3, lambda: [b"HSETNX", key(), field(), self.value()]),
            (6, lambda: [b"HGET", key(), field()]),
            (3, lambda: [b"HMGET", key()] + self.some(field, 4)),
            (5, lambda: [b"HDEL", key()] + self.some(field, 4)),
            (3, lambda: [self.pick((b"HEXISTS", b"HSTRLEN")), key(), field()]),
            (2, lambda: [b"HLEN", key()]),
            (6, lambda: [self.pick((b"HGETALL", b"HKEYS", b"HVALS")), key()]),
            (6, lambda: [b"HINCRBY", key(), field(), self.chooser.number()]),
            (4, lambda: [b"HINCRBYFLOAT", key(), field(), self.chooser.decimal()]),
            (4, lambda: [b"HRANDFIELD", key()] + self.random_count(b"WITHVALUES")),
            (4, lambda: [b"HSCAN", key(), self.cursor()] + self.scan_options(True)),
            (1, lambda: self.many(b"HSET", lambda number: (b"f%d" % number, b"%d" % chance.randrange(99)))),
        )

    def sets(self):
        """Requests on sets."""
        key, member = self.set, self.member
        return (
            (40, lambda: [b"SADD", key()] + self.some(member, 6)),
            (6, lambda: [b"SREM", key()] + self.some(member, 4)),
            (3, lambda: [b"SISMEMBER", key(), member()]),
            (3, lambda: [b"SMISMEMBER", key()] + self.some(member, 4)),
            (2, lambda: [b"SCARD", key()]),
            (5, lambda: [b"SMEMBERS", key()]),
            (4, lambda: [b"SMOVE", key(), key(), member()]),
            (8, lambda: [self.pick((b"SINTER", b"SUNION", b"SDIFF"))] + self.some(key, 3)),
            (6, lambda: [self.pick((b"SINTERSTORE", b"SUNIONSTORE", b"SDIFFSTORE"))] + self.some(key, 4, 2)),
            (4, lambda: [b"SINTERCARD"] + self.number_and_keys(key) + self.limit_of_all()),
            (2, lambda: [b"SPOP", key(), self.pick((ALL, b"0", b"0"), (b"-1", b"x", b"", b"9223372036854775808"))]),
            (1, lambda: [b"SPOP", key(), ALL, b"x"]),
            (1, lambda: [b"EVAL", POP_AND_DELETE, b"0", key()]),
            (4, lambda: [b"SRANDMEMBER", key()] + self.random_count(None)),
            (4, lambda: [b"SSCAN", key(), self.cursor()] + self.scan_options()),
            (1, lambda: self.many(b"SADD", lambda number: (b"%d" % number,))),
            (1, lambda: self.many(b"SADD", lambda number: (b"m%d" % number,))),
        )

    def sorted_sets(self):
        """Requests on sorted sets."""
        key, member, chance = self.sorted_set, self.member, self.chance
        return (
            (50, self.add),
            (5, lambda: [b"ZINCRBY", key(), self.score(), member()]),
            (5, lambda: [b"ZREM", key()] + self.some(member, 4)),
            (3, lambda: [b"ZSCORE", key(), member()]),
            (3, lambda: [b"ZMSCORE", key()] + self.some(member, 4)),
            (2, lambda: [b"ZCARD", key()]),
            (4, lambda: [self.pick((b"ZRANK", b"ZREVRANK")), key(), member()]
             + self.maybe([self.pick((b"WITHSCORE", b"withscore"), (b"WITHSCORES", b"x"))])),
            (4, lambda: [b"ZCOUNT", key(), self.bound(), self.bound()]),
            (14, lambda: [b"ZRANGE", key()] + self.by_rank_or_score() + self.with_scores()),
            (3, lambda: [b"ZREVRANGE", key(), self.rank(), self.rank()] + self.with_scores()),
            (5, lambda: [self.pick((b"ZRANGEBYSCORE", b"ZREVRANGEBYSCORE")), key(), self.bound(), self.bound()]
             + self.with_scores() + self.limit()),
            (4, lambda: [b"ZRANGESTORE", key(), key()] + self.by_rank_or_score() + self.with_scores(0.03)),
            (2, lambda: [b"ZREMRANGEBYRANK", key(), self.rank(), self.rank()]),
            (2, lambda: [b"ZREMRANGEBYSCORE", key(), self.bound(), self.bound()]),
            (4, lambda: [self.pick((b"ZPOPMIN", b"ZPOPMAX")), key()] + self.maybe([self.count()], 0.6)
             + self.maybe([b"x"], 0.03)),
            (4, lambda: [b"ZMPOP"] + self.number_and_keys(key) + [self.pick((b"MIN", b"MAX", b"min"), (b"MID",))]
             + self.maybe([b"COUNT", self.count()], 0.4) + self.maybe([b"COUNT"], 0.02)),
            (4, lambda: [b"ZRANDMEMBER", key()] + self.random_count(b"WITHSCORES")),
            (6, lambda: [self.pick((b"ZUNION", b"ZINTER"))] + self.combination(self.with_scores())),
            (6, lambda: [self.pick((b"ZUNIONSTORE", b"ZINTERSTORE")), key()]
             + self.combination(self.with_scores(0.02))),
            (3, lambda: [b"ZDIFF"] + self.number_and_keys(self.source) + self.with_scores()),
            (3, lambda: [b"ZDIFFSTORE", key()] + self.number_and_keys(self.source)),
            (3, lambda: [b"ZINTERCARD"] + self.number_and_keys(self.source) + self.limit_of_all()),
            (4, lambda: [b"ZSCAN", key(), self.cursor()] + self.scan_options()),
            (1, lambda: self.many(b"ZADD", lambda number: (b"%d" % chance.randrange(50), b"m%d" % number))),
        )

    def texts(self):
        """Requests on sorted sets whose scores are all 0."""
        key, bound = self.text, self.text_bound
        return (
            (16, lambda: [b"ZADD", self.pick(TEXTS)] + [word for m in self.some(self.member, 5) for word in (b"0", m)]),
            (1, lambda: [b"ZREM", self.pick(TEXTS)] + self.some(self.member, 4)),
            (4, lambda: [b"ZRANGE", key()] + self.by_text()),
            (2, lambda: [b"ZRANGEBYLEX", key(), bound(), bound()] + self.limit() + self.with_scores(0.03)),
            (2, lambda: [b"ZREVRANGEBYLEX", key(), bound(), bound()] + self.limit()),
            (2, lambda: [b"ZLEXCOUNT", key(), bound(), bound()]),
            (2, lambda: [b"ZREMRANGEBYLEX", self.pick(TEXTS), bound(), bound()]),
            (1, lambda: [b"ZRANGESTORE", self.pick(TEXTS), self.pick(TEXTS)] + self.by_text()),
            (1, lambda: [self.pick((b"COPY", b"RENAME")), self.pick(TEXTS), self.pick(TEXTS)]),
            (1, lambda: [self.pick((b"ZPOPMIN", b"ZPOPMAX")), self.pick(TEXTS)]),
        )

    def of_any_type(self):
        """Requests that take a key of any type, or refuse one of another."""
        key, chooser = self.any_key, self.chooser
        types = (b"hash", b"set", b"zset", b"string", b"ZSET")
        return (
            (3, lambda: [b"TYPE", key()]),
            (3, lambda: [b"OBJECT", self.pick((b"ENCODING",), (b"REFCOUNT",)), key()]),
            (3, lambda: [self.pick((b"DEL", b"UNLINK"))] + self.some(key, 2)),
            (2, lambda: [self.pick((b"EXISTS", b"TOUCH"))] + self.some(key, 4)),
            (4, lambda: [b"COPY", key(), key()] + chooser.copy_options()),
            (3, lambda: [self.pick((b"RENAME", b"RENAMENX")), key(), key()]),
            (3, lambda: [b"EXPIRE", key(), chooser.seconds()] + chooser.expire_options()),
            (1, lambda: [b"PEXPIREAT", key(), chooser.unix_milliseconds()]),
            (3, lambda: [self.pick((b"TTL", b"PTTL", b"EXPIRETIME", b"PERSIST")), key()]),
            (1, lambda: [b"MOVE", key(), chooser.database()]),
            (2, lambda: [b"SET", key(), chooser.value()] + chooser.set_options()),
            (1, lambda: [b"GET", key()]),
            (1, lambda: [b"MGET"] + self.some(key, 4)),
            (1, lambda: [self.pick((b"GETSET", b"SETNX", b"APPEND")), key(), chooser.value()]),
            (1, lambda: [self.pick((b"INCR", b"STRLEN", b"GETDEL", b"BITCOUNT")), key()]),
            (1, lambda: [b"SETRANGE", key(), b"0", self.pick((b"", b"v"))]),
            (3, lambda: [b"SCAN", b"0", b"COUNT", b"1000", b"TYPE",
                         self.pick(types, (b"nonsense",) if chooser.is_valkey else ())]),
            (1, lambda: [b"KEYS", b"*"]),
        )

    def field_times(self):
        """Requests on the lifetimes of fields."""
        chooser = self.chooser
        makers = {b"HEXPIRE": chooser.seconds, b"HPEXPIRE": chooser.milliseconds, b"HEXPIREAT": chooser.unix_seconds,
                  b"HPEXPIREAT": chooser.unix_milliseconds}
        conditions = (b"NX", b"XX", b"GT", b"LT")

        def expire():
            name = self.chance.choice(list(makers))
            condition = self.maybe([self.pick(conditions, (b"nonsense",))])
            return [name, self.hash(), makers[name]()] + condition + self.of_fields(self.member)
        shown = [name for name in FIELD_TIMES_COMMANDS if name not in makers and name[-2:] not in (b"EX", b"EL")]
        return (
            (8, expire),
            (6, lambda: [self.pick(shown), self.hash()] + self.of_fields(self.member)),
            (3, lambda: [b"HGETEX", self.hash()] + self.maybe(chooser.getex_options()) + self.of_fields(self.member)),
            (3, lambda: [b"HSETEX", self.hash()] + self.maybe([self.pick((b"FNX", b"FXX", b"NX", b"XX"))])
             + self.maybe(chooser.expiry_option() if self.chance.random() < 0.8 else [b"KEEPTTL"], 0.6)
             + self.of_fields(self.member, self.value)),
            (2, lambda: [b"HGETDEL", self.hash()] + self.of_fields(self.member)),
        )

    def of_fields(self, *makers):
        """The words of some fields, each with what the further makers add."""
        count = self.chance.randint(1, 3)
        said = self.pick((b"%d" % count,), (b"0", b"-1", b"x", b"4", b"9223372036854775808"), 0.05)
        return [b"FIELDS", said] + [maker() for _ in range(count) for maker in makers]
