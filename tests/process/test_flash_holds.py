"""Flash holds what lives: what fits is found again, however often it was replaced."""

import random
import unittest

from flash_support import MEBIBYTE, FlashCase
from process_support import larder_only

FLASH_MIB = 64
MEMORY_MIB = 8
VALUE_BYTES = 960
# An item of 960 B takes about a quarter of a page of 4 KiB.
ITEM_BYTES = 1024
ROUNDS = 5
# More at once, and memory evicts items that flash has no buffer for.
BATCH = 100
FOUND_MIN = 0.999


def value_of(number, version):
    """A value that tells its item and its version from beginning to end."""
    word = b"%d:%d;" % (number, version)
    return (word * (VALUE_BYTES // len(word) + 1))[:VALUE_BYTES]


@larder_only
class Holds(FlashCase):
    """Live items that take a part of the flash, stored five times over, by the defaults."""

    def store(self, client, versions, numbers):
        """Stores the next version of each item, no faster than flash takes what leaves memory."""
        for start in range(0, len(numbers), BATCH):
            request = bytearray()
            for number in numbers[start:start + BATCH]:
                versions[number] += 1
                request += b"set item-%d 0 0 %d noreply\r\n%b\r\n" % (
                    number, VALUE_BYTES, value_of(number, versions[number]))
            client.send(bytes(request))
            self.assertEqual(client.ask(b"mn"), b"MN")
            self.wait_for_flash(client)

    def found(self, client, versions):
        """How many items are found. Fails if one has a value that is not its last."""
        found = 0
        for start in range(0, len(versions), 100):
            numbers = range(start, min(start + 100, len(versions)))
            for key, _, value in self.values(client, [b"item-%d" % number for number in numbers]):
                number = int(key[len(b"item-"):])
                if value != value_of(number, versions[number]):
                    self.fail("%r has the value %r, of version %d the last" % (key, value[:30], versions[number]))
                found += 1
        return found

    def holds(self, fill, choose):
        """`choose` says which items a round after the first stores."""
        client = self.connection(self.flash_server(memory=MEMORY_MIB, flash=FLASH_MIB))
        items = int(fill * self.number(client, b"capacity_bytes", b"flash") / ITEM_BYTES)
        self.assertGreater(items * ITEM_BYTES, 2 * MEMORY_MIB * MEBIBYTE)
        versions = [0] * items
        self.store(client, versions, range(items))
        for _ in range(ROUNDS - 1):
            self.store(client, versions, choose(items))
        found = self.found(client, versions)
        stats = client.stats(b"flash")
        names = (b"demotions_shed", b"quick_drops", b"drops_forced", b"drops_of_all")
        said = {name: int(stats[name]) for name in names}
        said["alwa"] = float(stats[b"alwa"])
        self.assertGreaterEqual(found, FOUND_MIN * items, "of %d items %d are found; %s" % (items, found, said))
        self.assertEqual(said[b"drops_of_all"], 0)

    def test_half_full_stored_in_order(self):
        self.holds(0.5, range)

    def test_half_full_stored_at_random(self):
        chance = random.Random(1)
        self.holds(0.5, lambda items: [chance.randrange(items) for _ in range(items)])

    def test_seven_tenths_full_stored_at_random(self):
        chance = random.Random(2)
        self.holds(0.7, lambda items: [chance.randrange(items) for _ in range(items)])


if __name__ == "__main__":
    unittest.main()
