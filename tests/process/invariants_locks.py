"""Locks: who takes one in whatever way has it alone, until it is released with its token or its lifetime is over."""

import math
import time

import packets
from invariants_rules import EARLY_S, FRACTION_S, Rule, by_key
from invariants_support import Act, Client, Register, one_of

# A lifetime of memcached is in whole seconds, of a clock that is looked at once a second and whose looks may be late.
SECONDS, SECONDS_SURE = 60, 20
COMPARE_AND_DELETE = b"if redis.call('GET', KEYS[1]) == ARGV[1] then return redis.call('DEL', KEYS[1]) end return 0"


class Locks(Rule):
    """No two clients hold a lock at a time, nobody loses one within its lifetime, and only its token releases it."""

    name = "locks"
    # Clients that die hold the first.
    KEYS = [b"lock0", b"lock1", b"lock2"]
    FREE = b"free"

    def take_watched(self, key, token, milliseconds):
        """By `WATCH`, where nobody has it."""
        self.client.ask(b"WATCH", key)
        if self.client.ask(b"EXISTS", key):
            return self.client.ask(b"UNWATCH") != b"OK"
        return self.client.transaction((b"SET", key, token, b"PX", milliseconds)) is not None

    def take_free(self, key, token, _):
        """By `cas`, where it is marked as free."""
        value, cas = self.client.gets(key)
        if value != self.FREE:
            return False
        answer = self.client.store(b"cas %b 0 %d %d %d" % (key, SECONDS, len(token), cas), token)
        return one_of(answer, b"STORED", b"EXISTS", b"NOT_FOUND") == b"STORED"

    # Each says no only where the key is there.
    TAKES_PX = {
        "SET NX PX": lambda self, key, token, ms: self.client.ask(b"SET", key, token, b"NX", b"PX", ms) is not None,
        "SET NX PX in EVAL": lambda self, key, token, ms: self.client.run(
            b"return redis.call('SET', KEYS[1], ARGV[1], 'NX', 'PX', ARGV[2])", [key], token, ms) is not None,
        "SET NX PX in MULTI": lambda self, key, token, ms: self.client.transaction(
            (b"SET", key, token, b"NX", b"PX", ms))[0] is not None,
    }
    TAKES_SECONDS = {
        "add": lambda self, key, token, _: one_of(
            self.client.store(b"add %b 0 %d %d" % (key, SECONDS, len(token)), token),
            b"STORED", b"NOT_STORED") == b"STORED",
        "ms ME": lambda self, key, token, _: one_of(
            self.client.store(b"ms %b %d ME T%d" % (key, len(token), SECONDS), token), b"HD", b"NS") == b"HD",
        "binary add": lambda self, key, token, _: self.client.binary_store(key, token, packets.ADD, SECONDS),
    }
    # These may say no for other reasons.
    TAKES_PERHAPS = {
        "WATCH": take_watched,
        "SET IFEQ free": lambda self, key, token, ms: self.client.ask(
            b"SET", key, token, b"IFEQ", self.FREE, b"PX", ms) is not None,
        "cas free": take_free,
    }
    TAKES = {**TAKES_PX, **TAKES_SECONDS, **TAKES_PERHAPS}

    def release_watched(self, key, token):
        """By `WATCH`, where it has the token."""
        self.client.ask(b"WATCH", key)
        if self.client.ask(b"GET", key) != token:
            return self.client.ask(b"UNWATCH") != b"OK"
        return self.client.transaction((b"DEL", key)) is not None

    def compared(self, key, token, get, change):
        """By a CAS number, where it has the token."""
        value, cas = get(self.client, key)
        return value == token and change(cas)

    def cas(self, key, cas, value, exptime):
        """Whether a `cas` stored."""
        answer = self.client.store(b"cas %b 0 %d %d %d" % (key, exptime, len(value), cas), value)
        return one_of(answer, b"STORED", b"EXISTS", b"NOT_FOUND") == b"STORED"

    RELEASES = {
        "EVAL": lambda self, key, token: self.client.run(COMPARE_AND_DELETE, [key], token) == 1,
        "DELIFEQ": lambda self, key, token: self.client.ask(b"DELIFEQ", key, token) == 1,
        "DELEX IFEQ": lambda self, key, token: self.client.ask(b"DELEX", key, b"IFEQ", token) == 1,
        "WATCH": release_watched,
        "gets, cas of the past": lambda self, key, token: self.compared(
            key, token, Client.gets, lambda cas: self.cas(key, cas, b"", -1)),
        "mg, md C": lambda self, key, token: self.compared(key, token, Client.meta_get, lambda cas: one_of(
            self.client.text.ask(b"md %b C%d" % (key, cas)), b"HD", b"EX", b"NF") == b"HD"),
        "binary delete": lambda self, key, token: self.compared(
            key, token, Client.binary_get, lambda cas: self.client.packet(
                packets.DELETE, key, cas=cas, allowed=(packets.OK, packets.NOT_FOUND, 2)).status == packets.OK),
        "cas to free": lambda self, key, token: self.compared(
            key, token, Client.gets, lambda cas: self.cas(key, cas, self.FREE, SECONDS)),
    }

    def step(self):
        key, roll = self.chance.choice(self.KEYS), self.chance.random()
        if roll < 0.15:
            self.read(key)
            return
        if roll < 0.3:
            way, call = self.choice(self.RELEASES)
            self.note(key, "steal", way, token := self.fresh(), lambda: call(self, key, token))
            return
        way, call = self.choice(self.TAKES)
        milliseconds = self.chance.choice((20, 100, 1000, 5000))
        lifetime = SECONDS_SURE if way in self.TAKES_SECONDS or way == "cas free" else milliseconds / 1000
        token = self.fresh()
        took = self.note(key, "take", way, (token, lifetime), lambda: call(self, key, token, b"%d" % milliseconds))
        if took.found:
            self.hold(key, token, max(milliseconds, int(lifetime * 1000)))

    def hold(self, key, token, milliseconds):
        """What is done with a lock that was taken."""
        for _ in range(self.chance.randrange(3)):
            kind = self.chance.randrange(4)
            if kind == 0:
                self.note(key, "extend", "SET IFEQ PX", (token, milliseconds / 1000), lambda: self.client.ask(
                    b"SET", key, token, b"IFEQ", token, b"PX", b"%d" % milliseconds) is not None)
            elif kind == 1:
                self.read(key)
            elif kind == 2:
                time.sleep(self.chance.random() / 200)
            elif self.chance.random() < 0.2:
                # Nearly as long as a short one lasts.
                time.sleep(min(0.9 * milliseconds / 1000, 0.1))
        if milliseconds <= 100 and self.chance.random() < 0.3:
            # It ends by itself.
            time.sleep(milliseconds / 1000)
        released = True
        if self.chance.random() < 0.9 or milliseconds > 100:
            way, call = self.choice(self.RELEASES)
            released = self.note(key, "release", way, token, lambda: call(self, key, token)).found
        if released and self.chance.random() < 0.2:
            way, call = self.choice(self.RELEASES)
            self.note(key, "release", way, token, lambda: call(self, key, token))

    def look(self):
        for key in self.KEYS:
            self.read(key)

    def prepare(self):
        # Its holder may have been cut off.
        for key in list(self.base):
            if self.chance.random() < 0.5:
                self.client.ask(b"DEL", key)
                del self.base[key]

    def faults(self, acts, looks, promise):
        wrong = []
        acts, looks = by_key(acts), by_key(looks)
        for key in self.KEYS:
            holds = {}
            if key in self.base:
                hold = self.base[key]
                holds[hold.token] = hold
            wrong += self.wrong_of(key, acts[key], looks[key], holds, promise)
            look = looks[key][-1]
            self.base.pop(key, None)
            if look.found is not None:
                hold = holds.get(look.found) or Hold(look.found, look)
                hold.began = look.done
                hold.until = 0 if promise.may_lose else hold.until - EARLY_S * promise.is_stopped
                hold.over, hold.freed, hold.sent = math.inf, math.inf, look.sent
                self.base[key] = hold
        return wrong

    def wrong_of(self, key, acts, looks, holds, promise):
        """What is wrong with one lock."""
        wrong = []
        for act in sorted(acts, key=lambda act: act.sent):
            wrong += self.follow(holds, act)
        held = sorted((hold for hold in holds.values() if hold.took.done and hold.began < min(hold.until, hold.over)),
                      key=lambda hold: hold.began)
        last = None
        for hold in held:
            if last and hold.began < min(last.until, last.over):
                wrong.append(self.fault(hold.took, "taken at %.6f" % hold.began, "refused: %r holds it until %.6f, and "
                                        "releases it at %.6f" % (last.token, last.until, last.over)))
            if not last or min(hold.until, hold.over) > min(last.until, last.over):
                last = hold
        register = Register([act for hold in holds.values() for act in hold.as_register(key)])
        for read in [act for act in acts if act.what == "read" and act.done] + looks:
            lost = promise.may_lose and read in looks
            if read.found is None:
                for hold in held:
                    if hold.began < read.sent and read.done < min(hold.until, hold.over) and not lost:
                        wrong.append(self.fault(read, "nobody", "%r, until %.6f" % (hold.token, hold.until)))
            elif read.found != self.FREE and not read.found.startswith(b"victim"):
                if told := register.wrong(read):
                    wrong.append(self.fault(read, *told))
        if key != self.KEYS[0]:
            refused = [act for act in acts if act.what == "take" and act.found is False
                       and act.way not in self.TAKES_PERHAPS]
            wrong += self.refused_without_reason(refused, holds)
        return wrong

    def follow(self, holds, act):
        """Notes in the holds what an act has done; yields what is wrong with it."""
        if act.what == "take":
            if act.done is None or act.found:
                holds[act.given[0]] = Hold(act.given[0], act, act.sent + act.given[1] - FRACTION_S)
        elif act.what == "steal":
            if act.found:
                yield self.fault(act, "released", "refused: the token is of nobody")
        elif act.what in ("extend", "release"):
            hold = holds.get(act.given[0] if act.what == "extend" else act.given)
            if act.done is not None and not act.found:
                if act.done < min(hold.until, hold.over):
                    yield self.fault(act, "not this client's", "this client's until %.6f" % hold.until)
            elif hold.freed < math.inf and act.done is not None:
                yield self.fault(act, "held", "refused: it was released at %.6f" % hold.freed)
            elif act.what == "release" and hold.freed == math.inf:
                hold.over = act.sent
                hold.freed = hold.freed if act.done is None else act.done
                hold.is_marked = act.way == "cas to free"
            elif act.what == "extend" and act.done is not None:
                hold.until = act.sent + act.given[1] - FRACTION_S

    def refused_without_reason(self, refused, holds):
        """Those that were told that somebody has the lock where nobody can have had it."""
        holds = sorted(holds.values(), key=lambda hold: hold.sent, reverse=True)
        for act in refused:
            since = -math.inf
            for hold in holds:
                if hold.sent >= act.done:
                    continue
                if hold.took.done and hold.began < act.sent:
                    # Whatever was taken before this was sent is over.
                    possible = hold.began >= since and (hold.is_marked or hold.freed >= act.sent)
                    since = max(since, hold.sent)
                else:
                    possible = hold.took.end >= since
                if possible:
                    break
            else:
                yield self.fault(act, "refused", "taken: everybody has released it")


class Hold:
    """One client's time with a lock: sure from `began` to `until`, unless it was released, from `over` to `freed`."""

    def __init__(self, token, took, until=0.0):
        self.token, self.took, self.until = token, took, until
        self.sent, self.began = took.sent, took.done
        self.over = self.freed = math.inf
        self.is_marked = False

    def as_register(self, key):
        """The same as a write and a delete."""
        taken = Act(key, "write", given=self.token, sent=self.sent, done=self.began)
        taken.end = self.took.end if self.began is None else self.began
        yield taken
        if self.over < math.inf:
            freed = Act(key, "delete", sent=self.over, done=self.freed if self.freed < math.inf else None)
            freed.end = self.freed
            yield freed
