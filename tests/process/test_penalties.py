"""What misses cost, through real sockets: measured, stated, remembered and counted."""

import time

from flash_support import FlashCase
from process_support import Case, larder_only

BAD_PENALTY = b"CLIENT_ERROR invalid penalty for G token, microseconds up to 4294967295 expected"


def shown(connection, key):
    """The most, in microseconds, that a miss of the key costs, as the server remembers it; -1 = unknown."""
    code, flag = connection.ask(b"mg %b g" % key).split()[:2]
    assert code == b"HD" and flag.startswith(b"g"), (code, flag)
    return int(flag[1:])


def most_of(cost_us):
    """The upper end of the subclass of a cost."""
    return next(most for most in (1000, 10_000, 100_000, 1_000_000, 5_000_000) if cost_us <= most or most == 5_000_000)


class Gap:
    """A pause between a miss and a store. What is measured lies between the pause and the time that both took."""

    def __init__(self, seconds):
        self.least_us = int(seconds * 1_000_000)
        self.began = time.monotonic()
        self.seconds = seconds

    def over(self):
        """The pause is over."""
        time.sleep(self.seconds)

    def is_right(self, shown_us):
        """Whether the server may show this, now that the store was answered."""
        took_us = (time.monotonic() - self.began) * 1_000_000
        return most_of(self.least_us) <= shown_us <= most_of(took_us)


@larder_only
class Penalties(Case):
    """The gap between a miss and the store that follows, and the client's own word."""

    def client(self, *flags):
        server = self.server("-m", "64", "--admin", "off", *flags)
        return self.connection(server)

    def test_every_kind_of_miss_is_measured(self):
        client = self.client()
        began = time.monotonic()
        for number, miss in enumerate([b"get %b", b"gets %b", b"gat 100 %b", b"gats 100 %b", b"get other %b another"]):
            key, gap = b"key%d" % number, Gap(0.02)
            self.assertEqual(client.ask(miss % key), b"END", miss)
            gap.over()
            self.assertEqual(client.set(key, b"value"), b"STORED")
            self.assertTrue(gap.is_right(shown(client, key)), miss)
        for number, miss in enumerate([b"mg %b v", b"mg %b", b"mg %b v u"]):
            key, gap = b"meta%d" % number, Gap(0.02)
            self.assertEqual(client.ask(miss % key), b"EN", miss)
            gap.over()
            self.assertEqual(client.ask(b"ms %b 5\r\nvalue" % key), b"HD")
            self.assertTrue(gap.is_right(shown(client, key)), miss)
        counts = {name: int(value) for name, value in client.stats(b"penalties").items()}
        self.assertEqual(counts[b"measured"], 8)
        self.assertEqual(counts[b"to_100_ms"] + counts[b"to_1_s"] + counts[b"to_5_s"], 8)
        took_us = (time.monotonic() - began) * 1_000_000
        self.assertTrue(8 * 20_000 <= counts[b"measured_us"] <= took_us, counts)

    def test_a_quiet_miss_is_measured(self):
        client, gap = self.client(), Gap(0.02)
        client.send(b"mg key v q\r\nmn\r\n")
        self.assertEqual(client.line(), b"MN")
        gap.over()
        client.set(b"key", b"value")
        self.assertTrue(gap.is_right(shown(client, b"key")))

    def test_miss_and_store_in_one_batch_cost_next_to_nothing(self):
        client = self.client()
        client.send(b"get key\r\nset key 0 0 5\r\nvalue\r\n")
        self.assertEqual((client.line(), client.line()), (b"END", b"STORED"))
        self.assertEqual(shown(client, b"key"), 1000)

    def test_the_store_may_come_by_another_connection(self):
        server = self.server("-m", "64", "-t", "4", "--admin", "off")
        gap = Gap(0.02)
        self.assertEqual(self.connection(server).ask(b"get key"), b"END")
        gap.over()
        for _ in range(8):
            other = self.connection(server)
            other.ask(b"mn")
        other.set(b"key", b"value")
        self.assertTrue(gap.is_right(shown(other, b"key")))

    def test_a_won_token_waits_for_the_store(self):
        client, gap = self.client(), Gap(0.02)
        self.assertEqual(client.ask(b"mg key N30"), b"HD W")
        self.assertEqual(shown(client, b"key"), -1)
        gap.over()
        self.assertEqual(client.ask(b"ms key 5\r\nvalue"), b"HD")
        self.assertTrue(gap.is_right(shown(client, b"key")))
        # A stale item is fetched anew by the client that wins its token.
        self.assertEqual(client.ask(b"md key I T30"), b"HD")
        gap = Gap(1.05)
        self.assertEqual(client.ask(b"mg key"), b"HD X W")
        gap.over()
        self.assertEqual(client.ask(b"ms key 5\r\nvalue"), b"HD")
        self.assertEqual(shown(client, b"key"), 5_000_000)

    def test_a_client_states_the_cost(self):
        client = self.client()
        stated = [(0, 1000), (1000, 1000), (1001, 10_000), (700_000, 1_000_000), (5_000_000, 5_000_000),
                  (4_294_967_295, 5_000_000)]
        for cost_us, most_us in stated:
            self.assertEqual(client.ask(b"ms key 5 G%d\r\nvalue" % cost_us), b"HD")
            self.assertEqual(shown(client, b"key"), most_us)
        for mode in (b"MA", b"MP", b"MR"):
            self.assertEqual(client.ask(b"ms key 1 %b G20000\r\n." % mode), b"HD")
            self.assertEqual(shown(client, b"key"), 100_000)
            self.assertEqual(client.ask(b"ms key 1 %b\r\n." % mode), b"HD")
            self.assertEqual(shown(client, b"key"), 100_000)
            client.ask(b"ms key 1 G1\r\n.")
        self.assertEqual(client.set(b"key", b"classic"), b"STORED")
        self.assertEqual(shown(client, b"key"), 1000)
        self.assertEqual(client.ask(b"mg key g s"), b"HD g1000 s7")
        self.assertEqual(client.ask(b"ms large 40000 G70000\r\n" + b"v" * 40000), b"HD")
        self.assertEqual(shown(client, b"large"), 100_000)

    def test_a_cost_that_is_none_is_refused_and_the_value_swallowed(self):
        client = self.client()
        for cost in (b"", b"x", b"-1", b"1.5", b"4294967296", b"99999999999999999999", b"10ms"):
            client.send(b"ms key 9 q G%b\r\nget other\r\nmn\r\n" % cost)
            self.assertEqual((client.line(), client.line()), (BAD_PENALTY, b"MN"), cost)
        client.send(b"ms key 40000 Gx\r\n" + b"v" * 40000 + b"\r\nmn\r\n")
        self.assertEqual((client.line(), client.line()), (BAD_PENALTY, b"MN"))
        self.assertEqual(client.ask(b"ms key 1 G1 G2\r\n1"), b"CLIENT_ERROR duplicate flag")
        self.assertEqual(client.ask(b"mg key v"), b"EN")

    def test_without_the_flags_the_replies_are_the_same(self):
        client = self.client()
        client.send(b"ms key 5 G70000 k s\r\nvalue\r\n")
        self.assertEqual(client.line(), b"HD kkey s5")
        self.assertEqual(client.ask(b"mg key s k G5"), b"HD s5 kkey")
        self.assertEqual(client.ask(b"ma none g"), b"NF")
        self.assertEqual(client.ask(b"md key g"), b"HD")

    def test_a_first_store_is_estimated_from_its_prefix(self):
        client = self.client("-D", "/")
        self.assertEqual(client.ask(b"ms dear/1 1 G3000000\r\n1"), b"HD")
        client.set(b"dear/2", b"value")
        client.set(b"dear:2", b"value")
        self.assertEqual((shown(client, b"dear/2"), shown(client, b"dear:2")), (5_000_000, -1))

    def test_counts_begin_anew(self):
        client = self.client()
        client.ask(b"ms key 1 G3000000\r\n1")
        counts = client.stats(b"penalties")
        self.assertEqual((counts[b"stated"], counts[b"to_5_s"], counts[b"measured"]), (b"1", b"1", b"0"))
        self.assertEqual(client.ask(b"stats reset"), b"RESET")
        self.assertEqual(set(client.stats(b"penalties").values()), {b"0"})


@larder_only
class PenaltiesOnFlash(FlashCase):
    """The subclass goes to flash and comes back."""

    def test_a_restart_keeps_it(self):
        server = self.flash_server()
        client = self.connection(server)
        costs = {b"a": (200, 1000), b"b": (30_000, 100_000), b"c": (4_000_000, 5_000_000)}
        for key, (cost_us, _) in costs.items():
            self.assertEqual(client.ask(b"ms %b 5 G%d\r\nvalue" % (key, cost_us)), b"HD")
        self.assertEqual(server.stop(), 0)
        client = self.started_again(self.flash_server())
        for key, (_, most_us) in costs.items():
            self.assertEqual(shown(client, key), most_us, key)

    def test_a_miss_that_looked_on_flash_is_measured(self):
        client = self.connection(self.flash_server())
        self.cold(client, {b"there": b"value"})
        gap = Gap(0.02)
        self.assertEqual(client.ask(b"get not-there"), b"END")
        gap.over()
        client.set(b"not-there", b"value")
        self.assertTrue(gap.is_right(shown(client, b"not-there")))
