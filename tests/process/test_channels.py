"""Channels: who has subscribed hears what is published, and nobody waits for anybody."""

import threading

from process_support import Case, larder_only
from resp_support import Pushed, ask, command, receive
from support import until
from test_tenants import TenantsCase


class ChannelsCase(Case):
    """A test case with subscribers."""

    def subscriber(self, server, *names, word=b"SUBSCRIBE", version=b"2"):
        """A connection that has subscribed."""
        connection = self.connection(server)
        ask(connection, b"HELLO", version)
        for count, name in enumerate(names):
            self.assertEqual(ask(connection, word, name), [word.lower(), name, count + 1])
        return connection


@larder_only
class Channels(ChannelsCase):
    """On a server with nothing else."""

    def test_each_kind_of_subscription_hears_what_it_should(self):
        server = self.server("-t", "3")
        for version in (b"2", b"3"):
            plain = self.subscriber(server, b"news", b"\x00odd", version=version)
            pattern = self.subscriber(server, b"n*", b"*", word=b"PSUBSCRIBE", version=version)
            shard = self.subscriber(server, b"news", word=b"SSUBSCRIBE", version=version)
            publisher = self.connection(server)
            self.assertEqual(ask(publisher, b"PUBLISH", b"news", b"a\r\nb"), 3)
            self.assertEqual(ask(publisher, b"PUBLISH", b"\x00odd", b""), 2)
            self.assertEqual(ask(publisher, b"SPUBLISH", b"news", b"to shards"), 1)
            self.assertEqual(ask(publisher, b"PUBLISH", b"of none", b"x" * 100_000), 1)
            self.assertEqual(receive(plain), [b"message", b"news", b"a\r\nb"])
            heard = receive(plain)
            self.assertEqual((heard, isinstance(heard, Pushed)), ([b"message", b"\x00odd", b""], version == b"3"))
            self.assertEqual(sorted(receive(pattern) for _ in range(2)),
                             [[b"pmessage", b"*", b"news", b"a\r\nb"], [b"pmessage", b"n*", b"news", b"a\r\nb"]])
            self.assertEqual(receive(pattern), [b"pmessage", b"*", b"\x00odd", b""])
            self.assertEqual(receive(pattern), [b"pmessage", b"*", b"of none", b"x" * 100_000])
            self.assertEqual(receive(shard), [b"smessage", b"news", b"to shards"])
            self.assertEqual(ask(publisher, b"PUBSUB", b"NUMSUB", b"news", b"other"), [b"news", 1, b"other", 0])
            self.assertEqual(sorted(ask(publisher, b"PUBSUB", b"CHANNELS")), [b"\x00odd", b"news"])
            self.assertEqual(ask(publisher, b"PUBSUB", b"CHANNELS", b"n?ws"), [b"news"])
            self.assertEqual(ask(publisher, b"PUBSUB", b"NUMPAT"), 2)
            self.assertEqual(ask(publisher, b"PUBSUB", b"SHARDNUMSUB", b"news"), [b"news", 1])
            self.assertEqual(ask(publisher, b"PUBSUB", b"SHARDCHANNELS"), [b"news"])
            self.assertIn(b" sub=0 psub=2 ssub=0 ", ask(publisher, b"CLIENT", b"LIST", b"TYPE", b"PUBSUB"))
            # Those of the round before may not be gone yet.
            until(lambda: b"\r\npubsub_clients:3\r\n" in ask(publisher, b"INFO", b"clients"), "three subscribers")
            publisher.send(command(b"CLIENT", b"KILL", b"TYPE", b"pubsub") + command(b"PUBLISH", b"news", b"x")
                           + command(b"PUBSUB", b"NUMPAT") + command(b"PUBSUB", b"NUMSUB", b"news")
                           + command(b"PUBSUB", b"CHANNELS"))
            self.assertEqual([receive(publisher) for _ in range(5)], [3, 0, 0, [b"news", 0], []], "at once")

    def test_subscriptions_end_one_by_one_or_all(self):
        connection = self.subscriber(self.server(), b"a", b"b", b"c")
        self.assertEqual(ask(connection, b"PSUBSCRIBE", b"a*"), [b"psubscribe", b"a*", 4])
        self.assertEqual(ask(connection, b"SUBSCRIBE", b"a"), [b"subscribe", b"a", 4], "once is enough")
        self.assertEqual(ask(connection, b"UNSUBSCRIBE", b"b"), [b"unsubscribe", b"b", 3])
        self.assertEqual(ask(connection, b"UNSUBSCRIBE", b"none"), [b"unsubscribe", b"none", 3])
        connection.send(command(b"UNSUBSCRIBE"))
        self.assertEqual([receive(connection)[1:] for _ in range(2)], [[b"a", 2], [b"c", 1]])
        self.assertEqual(ask(connection, b"UNSUBSCRIBE"), [b"unsubscribe", None, 1])
        self.assertEqual(ask(connection, b"PUNSUBSCRIBE"), [b"punsubscribe", b"a*", 0])
        self.assertEqual(ask(connection, b"SET", b"k", b"v"), b"OK")

    def test_a_subscriber_of_resp2_may_do_little_else(self):
        server = self.server()
        connection = self.subscriber(server, b"a")
        for words in ((b"GET", b"k"), (b"SET", b"k", b"v"), (b"MULTI",), (b"CLIENT", b"ID"), (b"PUBLISH", b"a", b"x")):
            self.assertIn(b"are allowed in this context", ask(connection, *words))
        self.assertEqual(ask(connection, b"PING"), [b"pong", b""])
        self.assertEqual(ask(connection, b"PING", b"x"), [b"pong", b"x"])
        self.assertEqual(ask(connection, b"RESET"), b"RESET")
        self.assertEqual(ask(connection, b"GET", b"k"), None)
        free = self.subscriber(server, b"a", version=b"3")
        self.assertEqual(ask(free, b"SET", b"k", b"v"), b"OK")
        self.assertEqual(ask(free, b"PUBLISH", b"a", b"own"), 1)
        self.assertEqual(receive(free), [b"message", b"a", b"own"])
        self.assertEqual(ask(free, b"PING"), b"PONG")

    def test_transactions_and_scripts_publish(self):
        server = self.server()
        subscriber, connection = self.subscriber(server, b"a"), self.connection(server)
        for words in ((b"MULTI",), (b"PUBLISH", b"a", b"1"), (b"SET", b"k", b"v"), (b"PUBLISH", b"a", b"2")):
            ask(connection, *words)
        self.assertEqual(ask(connection, b"EXEC"), [1, b"OK", 1])
        self.assertEqual(ask(connection, b"EVAL", b"return redis.call('PUBLISH', 'a', '3')", b"0"), 1)
        self.assertEqual([receive(subscriber)[2] for _ in range(3)], [b"1", b"2", b"3"])

    def test_messages_come_in_order_from_each_of_many(self):
        server = self.server("-t", "4")
        subscribers = [self.subscriber(server, b"a", version=version) for version in (b"2", b"3", b"2", b"3")]
        count = 2000

        def publish(name):
            connection = self.connection(server)
            for start in range(0, count, 50):
                connection.send(b"".join(command(b"PUBLISH", b"a", b"%b %d" % (name, number))
                                         for number in range(start, start + 50)))
                replies = [receive(connection) for _ in range(50)]
                if replies != [4] * 50:
                    return

        publishers = [threading.Thread(target=publish, args=(b"p%d" % number,)) for number in range(3)]
        for thread in publishers:
            thread.start()
        for subscriber in subscribers:
            heard = {}
            for _ in range(3 * count):
                name, number = receive(subscriber)[2].split()
                self.assertEqual(int(number), heard.get(name, -1) + 1)
                heard[name] = int(number)
        for thread in publishers:
            thread.join()

    def test_who_takes_no_messages_is_closed_and_delays_nobody(self):
        server = self.server("-m", "64")
        slow, quick = self.subscriber(server, b"a"), self.subscriber(server, b"a")
        publisher = self.connection(server)
        sent = 0
        while ask(publisher, b"PUBLISH", b"a", b"x" * 50_000) == 2 and sent < 2000:
            self.assertEqual(len(receive(quick)[2]), 50_000)
            sent += 1
        self.assertLess(sent, 2000)
        self.assertEqual(len(receive(quick)[2]), 50_000)
        rows = dict(line.split(b":", 1) for line in ask(publisher, b"INFO", b"stats").split(b"\r\n") if b":" in line)
        self.assertEqual(int(rows[b"client_output_buffer_limit_disconnections"]), 1)
        slow.close()

    def test_a_subscriber_may_wait_for_any_time(self):
        server = self.server("-o", "idle_timeout=1")
        subscriber, other = self.subscriber(server, b"a"), self.connection(server)
        ask(other, b"PING")
        until(lambda: other.is_closed(), "an idle connection is closed")
        self.assertEqual(ask(self.connection(server), b"PUBLISH", b"a", b"x"), 1)
        self.assertEqual(receive(subscriber), [b"message", b"a", b"x"])

    def test_no_message_follows_the_end_of_a_subscription(self):
        server = self.server("-t", "2")
        connection, over = self.connection(server), threading.Event()

        def publish():
            publisher = self.connection(server)
            while not over.is_set():
                publisher.send(command(b"PUBLISH", b"a", b"x") * 20)
                for _ in range(20):
                    receive(publisher)

        publishers = [threading.Thread(target=publish) for _ in range(2)]
        for thread in publishers:
            thread.start()
        try:
            for word, end in [(b"UNSUBSCRIBE", [b"unsubscribe", b"a", 0]), (b"RESET", b"RESET")] * 100:
                connection.send(command(b"SUBSCRIBE", b"a") + command(word) + command(b"ECHO", b"next"))
                self.assertEqual(receive(connection), [b"subscribe", b"a", 1])
                while (reply := receive(connection)) != end:
                    self.assertEqual(reply, [b"message", b"a", b"x"])
                self.assertEqual(receive(connection), b"next")
        finally:
            over.set()
            for thread in publishers:
                thread.join()

    def test_who_reads_gets_messages_of_any_length(self):
        server = self.server("-m", "128")
        subscriber, publisher = self.subscriber(server, b"a"), self.connection(server)
        for size in (1000, 300_000, 1 << 20, 1000):
            self.assertEqual(ask(publisher, b"PUBLISH", b"a", b"x" * size), 1)
            self.assertEqual(receive(subscriber), [b"message", b"a", b"x" * size])
        self.assertIn(b"message is too long (1048576 bytes", ask(publisher, b"PUBLISH", b"a", b"x" * 1_048_577))

    def test_a_transaction_that_ends_a_subscription_keeps_the_messages_of_others(self):
        server = self.server("-t", "1")
        connection = self.subscriber(server, b"kept", version=b"3")
        connection.send(b"".join(command(*words) for words in (
            (b"MULTI",), (b"SUBSCRIBE", b"gone"), (b"PUBLISH", b"kept", b"x"), (b"UNSUBSCRIBE", b"gone"), (b"EXEC",))))
        self.assertEqual([receive(connection) for _ in range(4)], [b"OK"] + [b"QUEUED"] * 3)
        self.assertEqual(receive(connection), [[b"subscribe", b"gone", 2], 1, [b"unsubscribe", b"gone", 1]])
        self.assertEqual(receive(connection), [b"message", b"kept", b"x"])

    def test_a_script_of_a_subscriber_reads(self):
        connection = self.connection(self.server())
        ask(connection, b"HELLO", b"3")
        ask(connection, b"SELECT", b"1")
        ask(connection, b"SET", b"k", b"v")
        ask(connection, b"SUBSCRIBE", b"a")
        self.assertEqual(ask(connection, b"EVAL", b"return redis.call('GET', KEYS[1])", b"1", b"k"), b"v")

    def test_confirmations_come_though_no_replies_are_wanted(self):
        connection = self.connection(self.server())
        connection.send(command(b"CLIENT", b"REPLY", b"OFF") + command(b"SET", b"k", b"v")
                        + command(b"SUBSCRIBE", b"a") + command(b"UNSUBSCRIBE", b"a")
                        + command(b"CLIENT", b"REPLY", b"ON"))
        self.assertEqual([receive(connection) for _ in range(3)],
                         [[b"subscribe", b"a", 1], [b"unsubscribe", b"a", 0], b"OK"])

    def test_a_subscription_that_ends_gives_its_memory_back(self):
        connection = self.subscriber(self.server("-m", "64"), b"kept")
        for start in range(0, 20_000, 200):
            names = [b"channel%d" % number for number in range(start, start + 200)]
            connection.send(command(b"SUBSCRIBE", *names) + command(b"UNSUBSCRIBE", *names))
            self.assertEqual([receive(connection)[2] for _ in range(400)],
                             list(range(2, 202)) + list(range(200, 0, -1)))

    def test_many_names_take_bounded_memory(self):
        connection = self.connection(self.server("-m", "64"))
        ask(connection, b"HELLO", b"3")
        self.assertIn(b"1024 bytes at most", ask(connection, b"PSUBSCRIBE", b"x" * 1025))
        refused, count = None, 0
        while refused is None and count < 100_000:
            connection.send(b"".join(command(b"SUBSCRIBE", b"channel%d" % number)
                                     for number in range(count, count + 100)))
            replies = [receive(connection) for _ in range(100)]
            refused = next((reply for reply in replies if isinstance(reply, bytes)), None)
            count += 100
        self.assertIn(b"do not fit", refused)
        self.assertEqual(ask(connection, b"RESET"), b"RESET")
        self.assertEqual(ask(connection, b"PUBSUB", b"CHANNELS"), [])


class Users(TenantsCase, ChannelsCase):
    """Users with a namespace have channels of their own."""

    def test_a_user_has_channels_that_nobody_else_hears(self):
        server = self.serve()
        doors = {}
        for user in ("ada", "bob", "root"):
            doors[user] = self.resp_door(server, user)
            ask(doors[user], b"HELLO", b"3")
            ask(doors[user], b"SUBSCRIBE", b"a")
            ask(doors[user], b"PSUBSCRIBE", b"*")
        self.assertEqual(ask(doors["ada"], b"PUBLISH", b"a", b"x"), 3)
        heard = sorted(receive(doors["ada"]) for _ in range(2))
        self.assertEqual(heard, [[b"message", b"a", b"x"], [b"pmessage", b"*", b"a", b"x"]])
        self.assertEqual(receive(doors["root"]), [b"pmessage", b"*", b"shop:a", b"x"])
        self.assertEqual(ask(doors["bob"], b"PING"), b"PONG", "bob hears nothing")
        self.assertEqual(ask(doors["bob"], b"PUBSUB", b"CHANNELS"), [b"a"])
        self.assertEqual(ask(doors["bob"], b"PUBSUB", b"NUMPAT"), 1)
        self.assertEqual(ask(doors["root"], b"PUBLISH", b"page:a", b"y"), 3)
        self.assertEqual(sorted(receive(doors["bob"]) for _ in range(2)),
                         [[b"message", b"a", b"y"], [b"pmessage", b"*", b"a", b"y"]])
        self.assertIn(b"NOPERM", ask(self.resp_door(server, "eve"), b"PUBLISH", b"a", b"x"))
        # A pattern of root and one of ada may read alike behind ada's namespace.
        patterns = {user: self.resp_door(server, user) for user in ("root", "ada")}
        ask(patterns["root"], b"PSUBSCRIBE", b"shop:p*")
        ask(patterns["ada"], b"PSUBSCRIBE", b"p*")
        self.assertEqual(ask(self.resp_door(server, "ada"), b"PUBLISH", b"page", b"x"), 4)
        self.assertEqual(receive(patterns["root"]), [b"pmessage", b"shop:p*", b"shop:page", b"x"])
        self.assertEqual(receive(patterns["ada"]), [b"pmessage", b"p*", b"page", b"x"])
        self.assertEqual(receive(doors["ada"]), [b"pmessage", b"*", b"page", b"x"])
        # Who logs in as another user hears no more of the channels of the first.
        self.assertEqual(ask(doors["ada"], b"AUTH", b"bob", b"b"), b"OK")
        self.assertEqual(ask(self.resp_door(server, "ada"), b"PUBLISH", b"a", b"z"), 1)
        self.assertEqual(ask(doors["ada"], b"PING"), b"PONG")
