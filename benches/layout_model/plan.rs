//! What a run does: the items, the order in which they are stored, and the requests. The parent makes it once, so that
//! every variant does the same, and the simulated run does not pay for it.

use larder_sim::workload;
use std::io::{self, Read, Write};
use std::path::Path;

/// The lengths of one item, in bytes.
#[derive(Clone, Copy)]
pub(crate) struct Item {
    pub(crate) key_bytes: u16,
    pub(crate) value_bytes: u16,
}

/// The longest value that a run stores: longer ones are cut. They are a thousandth of ETC's.
const VALUE_BYTES_MAX: u32 = 4096;
/// The length of keys beside values of one length.
const FIXED_KEY_BYTES: u32 = 30;
const KEY_BYTES_MIN: u16 = 18;
/// The longest key that a run stores.
pub(crate) const KEY_BYTES_MAX: usize = 64;

pub(crate) struct Plan {
    pub(crate) items: Vec<Item>,
    pub(crate) order: Vec<u32>,
    pub(crate) requests: Vec<u32>,
}

impl Plan {
    /// A plan over `keys` keys with the sizes `sizes`, those of a workload or the length of all values, and `requests`
    /// requests of `law`.
    pub(crate) fn make(sizes: &str, law: &str, keys: usize, requests: usize) -> Plan {
        let sizes = match sizes.parse::<u32>() {
            Ok(value_bytes) => format!("fixed:{value_bytes},key-bytes={FIXED_KEY_BYTES}"),
            Err(_) => sizes.to_string(),
        };
        // The seed and the number of a key decide its sizes, whatever the law: uniform requests show those of all keys.
        let mut items = vec![None; keys];
        let mut missing = keys;
        let mut source =
            workload::parse(&format!("uniform:keys={keys},requests=1g,sizes={sizes},seed=7")).expect("a law");
        let mut chunk = Vec::new();
        while missing > 0 {
            chunk.clear();
            source.fill(&mut chunk, 1 << 16).expect("a workload has no errors");
            for request in &chunk {
                let item = &mut items[request.key as usize];
                if item.is_none() {
                    missing -= 1;
                    *item = Some(Item {
                        key_bytes: request.key_bytes.clamp(KEY_BYTES_MIN, KEY_BYTES_MAX as u16),
                        value_bytes: request.value_bytes.min(VALUE_BYTES_MAX) as u16,
                    });
                }
            }
        }
        let items: Vec<Item> = items.into_iter().flatten().collect();
        let words = format!("{law},keys={keys},requests={requests},seed=7");
        let words = if law.contains(':') { words } else { words.replacen(',', ":", 1) };
        let mut source = workload::parse(&words).expect("a law");
        let mut drawn = Vec::new();
        while source.fill(&mut drawn, 1 << 16).expect("a workload has no errors") > 0 {}
        let requests = drawn.iter().map(|request| request.key as u32 % keys as u32).collect();
        // Items are stored in an order that has nothing to do with how they are read.
        let mut order: Vec<u32> = (0..keys as u32).collect();
        order.sort_unstable_by_key(|number| {
            u64::from(*number).wrapping_mul(0x9e37_79b9_7f4a_7c15).rotate_left(29)
        });
        Plan { items, order, requests }
    }

    /// The share of the lines of the last `measured` requests that a cache of `lines` lines would have if it knew the
    /// future and kept the items with the most requests for a line, and their buckets, from the start.
    pub(crate) fn share_of_hottest(&self, lines: usize, measured: usize) -> f64 {
        let mut counts = vec![0u32; self.items.len()];
        let measured = &self.requests[self.requests.len() - measured..];
        measured.iter().for_each(|number| counts[*number as usize] += 1);
        // Key, value and header; items begin anywhere in a line. And one line of the index.
        let lines_of = |item: &Item| (usize::from(item.key_bytes + item.value_bytes) + 10 + 60) / 64 + 1;
        let mut items: Vec<_> = counts.iter().zip(self.items.iter().map(lines_of)).collect();
        items.sort_unstable_by_key(|(count, _)| std::cmp::Reverse(**count));
        let (mut room, mut hits, mut all) = (lines, 0, 0);
        for (count, lines) in items {
            let accesses = *count as usize * lines;
            all += accesses;
            if lines <= room {
                (room, hits) = (room - lines, hits + accesses);
            }
        }
        hits as f64 / all.max(1) as f64
    }

    pub(crate) fn write(&self, path: &Path) -> io::Result<()> {
        let mut file = io::BufWriter::new(std::fs::File::create(path)?);
        for length in [self.items.len(), self.requests.len()] {
            file.write_all(&(length as u64).to_le_bytes())?;
        }
        for item in &self.items {
            file.write_all(&item.key_bytes.to_le_bytes())?;
            file.write_all(&item.value_bytes.to_le_bytes())?;
        }
        for number in self.order.iter().chain(&self.requests) {
            file.write_all(&number.to_le_bytes())?;
        }
        file.flush()
    }

    pub(crate) fn read(path: &Path) -> io::Result<Plan> {
        let mut bytes = Vec::new();
        std::fs::File::open(path)?.read_to_end(&mut bytes)?;
        let (lengths, rest) = bytes.split_at(16);
        let length =
            |at: usize| u64::from_le_bytes(lengths[at..at + 8].try_into().expect("eight bytes")) as usize;
        let (items, rest) = rest.split_at(4 * length(0));
        let half = |bytes: &[u8]| u16::from_le_bytes([bytes[0], bytes[1]]);
        let items =
            items.chunks_exact(4).map(|item| Item { key_bytes: half(item), value_bytes: half(&item[2..]) });
        let (order, requests) = rest.split_at(4 * length(0));
        let numbers = |bytes: &[u8]| {
            bytes
                .chunks_exact(4)
                .map(|word| u32::from_le_bytes(word.try_into().expect("four bytes")))
                .collect()
        };
        Ok(Plan { items: items.collect(), order: numbers(order), requests: numbers(requests) })
    }
}

/// Writes the key of item `number` to `room` and returns it.
#[inline]
pub(crate) fn key<'r>(room: &'r mut [u8; KEY_BYTES_MAX], number: u32, item: &Item) -> &'r [u8] {
    room[..6].copy_from_slice(b"item:-");
    for (at, digit) in room[6..14].iter_mut().enumerate() {
        *digit = b"0123456789abcdef"[(number >> (4 * at) & 15) as usize];
    }
    let key_bytes = usize::from(item.key_bytes);
    room[14..key_bytes].fill(b'.');
    &room[..key_bytes]
}

/// A hash for the twin: words mixed by multiplication.
#[inline]
pub(crate) fn hash(key: &[u8]) -> u64 {
    let mix = |hash: u64, word: u64| {
        let product = u128::from(hash ^ word) * 0x9e37_79b9_7f4a_7c15_u128;
        product as u64 ^ (product >> 64) as u64
    };
    let (words, rest) = key.as_chunks::<8>();
    let hash = words.iter().fold(key.len() as u64 + 1, |hash, word| mix(hash, u64::from_le_bytes(*word)));
    rest.iter().fold(hash, |hash, byte| mix(hash, u64::from(*byte)))
}
