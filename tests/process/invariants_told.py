"""What holds of messages: copies that clients keep are those of the server, and what is published is heard in order.

Beside the steps of its rule, each of the two has connections that listen all the time.
"""

import collections
import math
import random
import select
import time

import support
from invariants_numbers import Counters
from invariants_rules import Rule, Tags, base_of, by_key
from invariants_support import Act, Register, good, one_of
from resp_support import Pushed, command, receive

# What clients are told to do, one after the other. Where the server ends meanwhile, they are told the last at once.
RUN, WRITERS_STOP, COMPARE, END = range(4)
WAIT_S = 0.02


class Listener:
    """A connection that is told things. `phase()` says what to do."""

    def __init__(self, port, phase, who, seed):
        self.port, self.phase, self.who = port, phase, who
        self.chance = random.Random("%s %d" % (who, seed))
        self.acts, self.connections = [], []

    def connect(self):
        """A new connection, which is closed with the others."""
        made = support.Connection("127.0.0.1", self.port)
        self.connections.append(made)
        return made

    def close(self):
        """Closes the connections."""
        for connection in self.connections:
            connection.close()

    def hears(self, connection):
        """Whether something has come, after a short wait."""
        return bool(connection.buffer or select.select([connection.socket], [], [], WAIT_S)[0])

    def ask(self, connection, *words):
        """A reply; what is pushed before it is heard."""
        connection.send(command(*words))
        return self.reply(connection)

    def reply(self, connection):
        """The next reply that is not pushed."""
        while isinstance(reply := receive(connection), Pushed):
            self.hear(reply)
        return good(reply)

    def ping(self, connection):
        """Hears all that was sent before the answer to this. A subscriber of RESP2 is answered by a list."""
        connection.send(command(b"PING"))
        while (reply := receive(connection)) not in (b"PONG", [b"pong", b""]):
            self.hear(reply)

    def hear(self, message):
        """Takes a message."""
        raise NotImplementedError


class Copies(Rule):
    """Once nobody writes, a copy that a client keeps is what the server has."""

    name = "copies"
    KEYS = [b"copy%d" % number for number in range(6)]
    # Not with `--keep`: a restart may take everything for deleted that was there before. Not with flash: while prefixes
    # are deleted, items of any key that only flash has may be missed.
    may_delete_prefix = False
    EXPIRES = b"expires."

    def step(self):
        key, roll = self.chance.choice(self.KEYS), self.chance.random()
        if roll < 0.45:
            self.store(key, self.fresh())
        elif roll < 0.65:
            self.delete(key)
        elif roll < 0.7:
            value = self.EXPIRES + self.fresh()
            self.acts.append(self.end_of_lifetime(key, time.monotonic()))
            self.note(key, "write", "SET PX", value, lambda: self.client.ask(
                b"SET", key, value, b"PX", b"%d" % self.chance.choice((1, 50, 500))) and None)
        elif roll < 0.71 and self.may_delete_prefix:
            self.delete_prefix()
        else:
            self.read(key)

    def end_of_lifetime(self, key, sent):
        """What deletes a key at any time after it was stored."""
        over = Act(key, "delete", "its lifetime", who=self.who, sent=sent)
        over.end = math.inf
        return over

    def delete_prefix(self):
        """Deletes all keys at once."""
        acts = [Act(key, "delete", "flush_prefix", who=self.who, sent=time.monotonic()) for key in self.KEYS]
        self.acts += acts
        one_of(self.client.text.ask(b"flush_prefix copy"), b"OK")
        for act in acts:
            act.done = act.end = time.monotonic()

    def look(self):
        for key in self.KEYS:
            self.read(key)

    def faults(self, acts, looks, promise):
        wrong = []
        for act in acts:
            if act.what == "compare" and act.given != act.found and not (
                    act.found is None and act.given.startswith(self.EXPIRES)):
                wrong.append(self.fault(act, "a copy %r" % act.given, "%r, which the server has" % act.found))
        acts, looks = by_key(acts), by_key(looks)
        for key in self.KEYS:
            register = Register(self.base.get(key, []) + acts[key])
            for read in acts[key] + looks[key]:
                if read.what == "read" and read.done is not None:
                    if told := register.wrong(read, promise.may_lose and read in looks[key]):
                        wrong.append(self.fault(read, *told))
            last = looks[key][-1]
            self.base[key] = [base_of(last)]
            if last.found is not None and last.found.startswith(self.EXPIRES):
                self.base[key].append(self.end_of_lifetime(key, last.done))
        return wrong


class Tracker(Listener):
    """A client that keeps copies, in one of the ways there are."""

    KEYS = Copies.KEYS + Tags.ALL + Counters.STRINGS
    PREFIXES = [word for prefix in (b"copy", b"tag", b"count") for word in (b"PREFIX", prefix)]
    MODES = {"default": [], "broadcast": [b"BCAST", *PREFIXES], "optin": [b"OPTIN"], "noloop": [b"NOLOOP"],
             "redirect": [], "redirect broadcast": [b"BCAST", *PREFIXES]}

    def run(self):
        """Reads, and keeps copies, until the end."""
        self.copies, self.used = {}, 0
        self.mode = self.chance.choice(list(self.MODES))
        reader, other = self.connect(), self.connect()
        told, options = reader, list(self.MODES[self.mode])
        if "redirect" in self.mode:
            told = self.connect()
            options += [b"REDIRECT", b"%d" % self.ask(told, b"CLIENT", b"ID")]
            self.ask(told, b"SUBSCRIBE", b"__redis__:invalidate")
        else:
            self.ask(reader, b"HELLO", b"3")
        one_of(self.ask(reader, b"CLIENT", b"TRACKING", b"ON", *options), b"OK")
        while self.phase() < COMPARE:
            for _ in range(self.chance.randrange(20)):
                self.read(reader, self.chance.choice(self.KEYS))
            self.ping(told)
        if self.phase() == COMPARE:
            self.ping(told)
            for key, value in sorted(self.copies.items()):
                sent = time.monotonic()
                found = self.ask(other, b"GET", key)
                self.acts.append(Act(key, "compare", self.mode, value, self.who, found, sent, time.monotonic()))

    def read(self, connection, key):
        """Reads a key, from the copy if there is one."""
        if key in self.copies:
            self.used += 1
            return
        if self.mode == "optin":
            self.ask(connection, b"CLIENT", b"CACHING", b"YES")
        # A message about an earlier value may come before the reply; one about this value comes behind it.
        value = self.ask(connection, b"GET", key)
        self.copies[key] = value

    def hear(self, message):
        """Forgets copies."""
        one_of(message[0], b"invalidate", b"message")
        keys = message[-1]
        for key in self.copies.copy() if keys is None else keys:
            self.copies.pop(key, None)


class Channels(Rule):
    """A message is heard by as many as it was counted for, once by each, and in the order in which it was published."""

    name = "channels"
    CHANNELS = [b"channel0", b"channel1"]
    PATTERN, SHARD = b"channel*", b"shard0"
    PUBLISHES = {
        "PUBLISH": lambda self, channel, message: self.client.ask(b"PUBLISH", channel, message),
        "PUBLISH in EVAL": lambda self, channel, message: self.client.run(
            b"return redis.call('PUBLISH', ARGV[1], ARGV[2])", [], channel, message),
        "PUBLISH in MULTI": lambda self, channel, message: self.client.transaction(
            (b"PUBLISH", channel, message))[0],
    }

    def step(self):
        message = self.fresh() + b" " * self.chance.choice((0, 0, 0, 2000))
        if self.chance.random() < 0.2:
            self.note(self.SHARD, "publish", "SPUBLISH", message.strip(), lambda: self.client.ask(
                b"SPUBLISH", self.SHARD, message))
            return
        channel = self.chance.choice(self.CHANNELS)
        way, call = self.choice(self.PUBLISHES)
        self.note(channel, "publish", way, message.strip(), lambda: call(self, channel, message))

    def look(self):
        pass

    def faults(self, acts, looks, promise):
        wrong = []
        published = {act.given: act for act in acts if act.what == "publish"}
        subscriptions = [act for act in acts if act.what == "subscribe"]
        heard = collections.Counter()
        for act in acts:
            if act.what == "hear":
                wrong += self.faults_of_hearing(act, published, heard)
        for act in published.values():
            if act.done is None:
                continue
            mine = [one for one in subscriptions
                    if one.key == act.key or one.key == self.PATTERN and act.key in self.CHANNELS]
            least = sum(one.done is not None and one.done < act.sent and act.done < min(
                one.given[0], promise.stopping) for one in mine)
            most = sum(one.sent < act.done and one.given[1] > act.sent for one in mine)
            if not least <= act.found <= most:
                wrong.append(self.fault(act, "counted as heard by %d" % act.found, "%d to %d" % (least, most)))
            if heard[act.given] != act.found and (not promise.is_stopped or heard[act.given] > act.found):
                wrong.append(self.fault(act, "heard by %d" % heard[act.given], "%d, as it was counted" % act.found))
        return wrong

    def faults_of_hearing(self, act, published, heard):
        """What is wrong with what one connection has heard, which is added to what all have."""
        latest, known = None, set()
        for name, channel, message in act.found:
            source = published.get(message)
            if source is None or source.key != channel:
                yield self.fault(act, "%r on %r" % (message, channel), "what was published there")
                continue
            if (name, message) in known:
                yield self.fault(act, "%r twice for %r" % (message, name), "once")
            known.add((name, message))
            heard[message] += 1
            if latest and source.done is not None and source.done < latest.sent:
                yield self.fault(act, "%s behind %s" % (source, latest), "the order in which they were published")
            if not latest or source.sent > latest.sent:
                latest = source


class Subscriber(Listener):
    """A connection that hears what is published; its subscriptions come and go."""

    KINDS = {channel: (b"SUBSCRIBE", b"UNSUBSCRIBE") for channel in Channels.CHANNELS}
    KINDS[Channels.PATTERN] = (b"PSUBSCRIBE", b"PUNSUBSCRIBE")
    KINDS[Channels.SHARD] = (b"SSUBSCRIBE", b"SUNSUBSCRIBE")

    def run(self):
        """Listens until the end."""
        connection = self.connect()
        version = self.chance.choice((b"2", b"3"))
        good(self.ask(connection, b"HELLO", version))
        self.current, self.waits = {}, None
        hearing = Act(Channels.CHANNELS[0], "hear", "RESP" + version.decode(), None, self.who, [], time.monotonic())
        self.heard = hearing.found
        self.acts.append(hearing)
        try:
            while self.phase() < COMPARE:
                if self.waits is None and self.phase() == RUN and (
                        not self.current or self.chance.random() < 0.02):
                    self.change(connection)
                if self.hears(connection):
                    self.hear(receive(connection))
            if self.phase() == COMPARE:
                self.ping(connection)
                hearing.done = hearing.end = time.monotonic()
        finally:
            for act in self.current.values():
                self.acts.append(act)

    def change(self, connection):
        """Subscribes to something, or ends a subscription."""
        name = self.chance.choice(list(self.KINDS))
        self.waits = name
        if name in self.current:
            self.current[name].given = (time.monotonic(), math.inf)
        else:
            self.current[name] = Act(name, "subscribe", "", (math.inf, math.inf), self.who, None, time.monotonic())
        connection.send(command(self.KINDS[name][self.current[name].given[0] < math.inf], name))

    def hear(self, message):
        """A message, or the answer to a subscription."""
        word, name = message[:2]
        if word in (b"message", b"smessage"):
            self.heard.append((name, name, message[2].strip()))
        elif word == b"pmessage":
            self.heard.append((name, message[2], message[3].strip()))
        else:
            one_of(name, self.waits)
            act, self.waits = self.current[name], None
            one_of(word, self.KINDS[name][act.done is not None].lower())
            if act.done is None:
                act.done = act.end = time.monotonic()
            else:
                act.given = (act.given[0], time.monotonic())
                self.acts.append(self.current.pop(name))
