// The kernels of the hitmap, for both layouts. Each thread processes one reference, one line or one word.
//
// Two kernels mark a batch: *_zones computes the zone of every reference from the map as it was before, and *_mark ORs
// each reference's bits into the level above its zone. OR commutes, so the bits are those of the CPU's map, whatever the
// order of the threads.
#include "port.h"

// A reference is a digest of 31 bits and this bit, which is set for a store.
static const u32 STORE = 1u << 31;

HERE u64 mix(u32 reference)
{
    u64 x = ((u64)(reference & ~STORE) + 1) * 0x9E3779B97F4A7C15ull;
    x ^= x >> 32;
    x *= 0xD6E8FEB86659FD93ull;
    x ^= x >> 32;
    return x;
}

// ---- Layout "one line": words 0 and 1 are level 1, words 2 and 3 level 2, words 4 to 7 level 3.

static const u32 LINE_WORDS = 8;
static const u32 LINE_LEVELS = 3;

HERE u64 line_first_word(u64 x, u64 lines)
{
    return (((x >> 32) * lines) >> 32) * LINE_WORDS;
}

// The word of a level within the line, level 1 to 3.
HERE u32 line_word(u64 x, u32 level)
{
    const u32 choice = (u32)(x >> 18) & 3;
    return level < LINE_LEVELS ? 2 * (level - 1) + (choice & 1) : 4 + choice;
}

// The bits of a key in its word. They are the same on every level.
HERE u64 line_mask(u64 x)
{
    return (1ull << (x & 63)) | (1ull << ((x >> 6) & 63)) | (1ull << ((x >> 12) & 63));
}

KERNEL line_zones(const u64 *map, u64 lines, const u32 *references, u32 count, u8 *zones)
{
    const u64 i = thread_number();
    if (i >= count)
        return;
    const u64 x = mix(references[i]);
    const u64 *line = map + line_first_word(x, lines);
    const u64 mask = line_mask(x);
    u32 zone = 0;
    while (zone < LINE_LEVELS && (line[line_word(x, zone + 1)] & mask) == mask)
        zone++;
    zones[i] = (u8)zone;
}

KERNEL line_mark(u64 *map, u64 lines, const u32 *references, const u8 *zones, u32 count)
{
    const u64 i = thread_number();
    if (i >= count)
        return;
    const u32 level = zones[i] + 1u;
    if (level > LINE_LEVELS)
        return;
    const u64 x = mix(references[i]);
    atomic_or(map + line_first_word(x, lines) + line_word(x, level), line_mask(x));
}

// Ages `count` lines, beginning with line `first`.
KERNEL line_fold(u64 *map, u64 first, u64 count)
{
    const u64 i = thread_number();
    if (i >= count)
        return;
    u64 *line = map + (first + i) * LINE_WORDS;
    line[0] = line[2];
    line[1] = line[3];
    line[2] = line[4] | line[6];
    line[3] = line[5] | line[7];
    line[4] = 0;
    line[5] = 0;
    line[6] = 0;
    line[7] = 0;
}

// ---- Layout "published": level 1 of `bits` bits, then levels each twice as large as the one below, then the set
// counter of `bits` bits.

// The first word of a level, from level 1 to `levels`. The set counter follows the last level as if it were one more.
HERE u64 published_first_word(u64 bits, u32 level)
{
    return (bits >> 6) * ((1ull << (level - 1)) - 1);
}

HERE u64 rotate_left(u64 x, u32 by)
{
    return by == 0 ? x : x << by | x >> (64 - by);
}

// The position of hash bit number `hash` of a key, in a level of `size` bits.
HERE u64 published_position(u64 x, u32 hash, u64 size)
{
    return rotate_left(x, 21 * hash) & (size - 1);
}

KERNEL published_zones(const u64 *map, u64 bits, u32 levels, u32 hashes, const u32 *references, u32 count, u8 *zones)
{
    const u64 i = thread_number();
    if (i >= count)
        return;
    const u64 x = mix(references[i]);
    u32 zone = 0;
    while (zone < levels) {
        const u64 *level = map + published_first_word(bits, zone + 1);
        u32 hash = 0;
        while (hash < hashes) {
            const u64 position = published_position(x, hash, bits << zone);
            if (!(level[position >> 6] >> (position & 63) & 1))
                break;
            hash++;
        }
        if (hash < hashes)
            break;
        zone++;
    }
    zones[i] = (u8)zone;
}

KERNEL published_mark(u64 *map, u64 bits, u32 levels, u32 hashes, u32 set_counter, const u32 *references,
                      const u8 *zones, u32 count)
{
    const u64 i = thread_number();
    if (i >= count)
        return;
    const u32 zone = zones[i];
    if (zone >= levels)
        return;
    const u64 x = mix(references[i]);
    u64 *level = map + published_first_word(bits, zone + 1);
    u64 *set = map + published_first_word(bits, levels + 1);
    const bool in_set = set_counter && zone == 0 && (references[i] & STORE);
    for (u32 hash = 0; hash < hashes; hash++) {
        const u64 position = published_position(x, hash, bits << zone);
        atomic_or(level + (position >> 6), 1ull << (position & 63));
        if (in_set)
            atomic_or(set + (position >> 6), 1ull << (position & 63));
    }
}

// Ages one level: its `words` words become the low half OR the high half of the level above. If `also` is not null, it is
// the set counter, which is ORed into level 1.
KERNEL published_fold(u64 *below, const u64 *above, const u64 *also, u64 words)
{
    const u64 i = thread_number();
    if (i >= words)
        return;
    below[i] = above[i] | above[i + words] | (also ? also[i] : 0);
}
