"""The binary protocol over real sockets: large values, how input is cut, UDP, and clients that misbehave."""

import os
import socket
import struct

import packets
import support
from packets import packet, store
from process_support import Case, is_larder, larder_only

LARGE = bytes(range(256)) * 3600


class Values(Case):
    """Values of all sizes, however they are cut."""

    def setUp(self):
        self.running = self.server()

    def test_large_values_in_pieces(self):
        connection = self.connection(self.running)
        request = store(b"large", LARGE, flags=7, opaque=9)
        for start in range(0, len(request), 50_001):
            connection.send(request[start:start + 50_001])
            connection.wait_until_read()
        stored = packets.receive(connection)
        self.assertEqual((stored.status, stored.opaque, stored.value), (packets.OK, 9, b""))
        found = packets.ask(connection, packet(packets.GETK, b"large", opaque=10))
        self.assertEqual(found, packets.Reply(packets.GETK, packets.OK, 10, stored.cas, struct.pack(">I", 7), b"large",
                                              LARGE))
        joined = packets.ask(connection, packet(packets.APPEND, b"large", b"more"))
        self.assertEqual(joined.status, packets.OK)
        self.assertEqual(packets.ask(connection, packet(packets.GET, b"large")).value, LARGE + b"more")

    def test_a_byte_at_a_time(self):
        connection = self.connection(self.running)
        requests = store(b"k", b"value") + packet(packets.GETQ, b"absent") + packet(packets.GET, b"k", opaque=3)
        for byte in requests:
            connection.send(bytes([byte]))
        self.assertEqual(packets.receive(connection).opcode, packets.SET)
        found = packets.receive(connection)
        self.assertEqual((found.opaque, found.value), (3, b"value"))

    def test_a_pipeline_of_quiet_requests_is_answered_in_order(self):
        connection = self.connection(self.running)
        stores = b"".join(store(b"k%d" % number, b"v%d" % number, packets.SETQ) for number in range(0, 2000, 2))
        gets = b"".join(packet(packets.GETKQ, b"k%d" % number, opaque=number) for number in range(2000))
        connection.send(stores + gets + packet(packets.NOOP, opaque=77))
        for number in range(0, 2000, 2):
            found = packets.receive(connection)
            self.assertEqual((found.opaque, found.key, found.value), (number, b"k%d" % number, b"v%d" % number))
        self.assertEqual(packets.receive(connection).opaque, 77)

    def test_a_client_that_reads_slowly_gets_everything(self):
        connection = self.connection(self.running, receive_buffer=4096)
        self.assertEqual(packets.ask(connection, store(b"large", LARGE)).status, packets.OK)
        connection.send(packet(packets.GET, b"large") * 8)
        connection.wait_until_answered()
        for _ in range(8):
            self.assertEqual(packets.receive(connection).value, LARGE)

    def test_it_ends_with_a_word_or_without(self):
        for opcode, said in ((packets.QUIT, 24), (0x17, 0)):
            connection = self.connection(self.running)
            connection.send(packet(opcode) + packet(packets.NOOP))
            if said:
                self.assertEqual(packets.receive(connection).opcode, opcode)
            self.assertTrue(connection.is_closed())


class Detection(Case):
    """Which protocol a connection speaks."""

    @larder_only
    def test_the_first_byte_tells_once_and_for_all(self):
        server = self.server()
        text, binary = self.connection(server), self.connection(server)
        self.assertEqual(text.set(b"k", b"both"), b"STORED")
        self.assertEqual(packets.ask(binary, packet(packets.GET, b"k")).value, b"both")
        binary.send(b"get k\r\n" + b" " * 30)
        self.assertTrue(binary.is_closed())
        self.assertIn(b"ERROR", text.ask(packet(packets.VERSION)))
        self.assertEqual(text.get(b"k"), b"both")

    def test_a_server_of_one_protocol(self):
        server = self.server("-B", "binary", wait=False)
        server.wait_until_listening()
        connection = self.connection(server)
        self.assertEqual(packets.ask(connection, store(b"k", b"v")).status, packets.OK)
        other = self.connection(server)
        other.send(b"get k\r\n" + b" " * 30)
        self.assertTrue(other.is_closed())
        server = self.server("-B", "ascii")
        connection = self.connection(server)
        self.assertIn(b"ERROR", connection.ask(packet(packets.VERSION)))

    @larder_only
    def test_it_is_named_in_the_statistics(self):
        for flag, name in (("auto", b"auto-negotiate"), ("ascii", b"ascii")):
            connection = self.connection(self.server("-B", flag))
            self.assertEqual(connection.stats(b"settings")[b"binding_protocol"], name)


class Udp(Case):
    """Packets in datagrams."""

    def test_requests_and_answers_of_several_datagrams(self):
        port = support.free_port()
        server = self.server("-U", str(port))
        client = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
        self.addCleanup(client.close)
        client.settimeout(support.WAIT_SECONDS_MAX)

        def ask(request, number):
            client.sendto(struct.pack(">HHHH", number, 0, 1, 0) + request, ("127.0.0.1", port))
            parts, count = {}, 1
            while len(parts) < count:
                datagram = client.recv(65536)
                got, sequence, count, _ = struct.unpack(">HHHH", datagram[:8])
                self.assertEqual(got, number)
                parts[sequence] = datagram[8:]
            return b"".join(parts[sequence] for sequence in sorted(parts))
        reply, rest = packets.take(ask(store(b"k", b"value", opaque=4), 1))
        self.assertEqual((reply.status, reply.opaque, rest), (packets.OK, 4, b""))
        self.assertEqual(packets.take(ask(packet(packets.GET, b"k"), 2))[0].value, b"value")
        with support.Connection("127.0.0.1", server.port) as connection:
            self.assertEqual(packets.ask(connection, store(b"long", LARGE[:9000])).status, packets.OK)
        reply, rest = packets.take(ask(packet(packets.GETK, b"long") + packet(packets.NOOP, opaque=6), 3))
        self.assertEqual(reply.value, LARGE[:9000])
        # memcached answers one request of a datagram.
        self.assertEqual(rest[12:16], struct.pack(">I", 6) if is_larder() else b"")
        # A conversation of datagrams does not know of the one before.
        self.assertEqual(ask(b"get k\r\n", 4), b"VALUE k 0 5\r\nvalue\r\nEND\r\n")


@larder_only
class Misbehaviour(Case):
    """Clients that harm no others."""

    def test_what_is_not_complete_costs_little(self):
        server = self.server("-m", "64")
        resident = server.resident_bytes()
        half = [packet(packets.SET, b"k", b"v" * 100, bytes(8))[:length] for length in (1, 23, 30)]
        half += [packets.HEADER.pack(0x80, packets.SET, 250, 8, 0, 0, 1 << 30, 0, 0) + b"k" * 200]
        # As much as a header can announce before its key is here.
        longest = packets.HEADER.pack(0x80, 0x99, 65535, 255, 0, 0, 0xffffffff, 0, 0) + b"k" * 65_000
        for start in half * 100 + [longest] * 20:
            connection = support.Connection("127.0.0.1", server.port)
            self.addCleanup(connection.close)
            connection.send(start)
        other = self.connection(server)
        self.assertEqual(packets.ask(other, store(b"k", LARGE)).status, packets.OK)
        self.assertEqual(packets.ask(other, packet(packets.GET, b"k")).value, LARGE)
        self.assertLess(server.resident_bytes() - resident, 16 << 20)

    def test_random_bytes_end_their_connection_at_most(self):
        server = self.server()
        for _ in range(200):
            connection = self.connection(server)
            try:
                connection.send(b"\x80" + os.urandom(300))
                connection.socket.shutdown(socket.SHUT_WR)
            except OSError:
                pass
            connection.close()
        self.assertEqual(packets.ask(self.connection(server), packet(packets.NOOP)).status, packets.OK)

