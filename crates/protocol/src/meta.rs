//! The lines of the meta commands: `<cm> <key> [<datalen>] <flag>*`. The key of `mf` is a prefix of keys.

use crate::base64::decode_key;
use crate::limits::{KEY_BYTES_MAX, META_TOKENS_MAX, OPAQUE_BYTES_MAX};
use crate::reply;
use crate::scan::{Words, number_i32, number_u32, number_u64};

/// The meta commands with a key.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum MetaVerb {
    /// `mg`
    Get,
    /// `ms`
    Set,
    /// `md`
    Delete,
    /// `ma`
    Arith,
    /// `me`
    Debug,
    /// `mf`, which memcached does not have: deletes the items whose keys begin with what stands in the place of the key
    Flush,
}

/// A meta request with a key.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Meta<'a> {
    /// The command.
    pub verb: MetaVerb,
    /// The key as sent, 1 to 250 bytes. With the `b` flag it is base64 that is known to decode; see
    /// [`crate::decode_key`].
    pub key: &'a [u8],
    /// The flags, read and checked.
    pub flags: MetaFlags<'a>,
    /// For `ms`, the length of the value in bytes. 0 for the other commands.
    pub bytes: u32,
    /// For `ms`, the value. Empty in a [`crate::Step::Upload`], whose caller takes the data block itself.
    pub data: &'a [u8],
}

/// The flags of a meta request. Every command accepts every known letter, and each letter occurs at most once. A
/// field has a meaning only if [`MetaFlags::has`] its letter; otherwise it has the default given here.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct MetaFlags<'a> {
    seen: u64,
    /// The flags as sent, for iterating in the order of the request.
    raw: &'a [u8],
    /// `O`: the opaque token without its letter.
    pub opaque: Option<&'a [u8]>,
    /// `C`: the CAS number to compare with. Default 0.
    pub compare: u64,
    /// `E`: the CAS number to assign. Default 0.
    pub explicit_cas: u64,
    /// `D`: the number to add or subtract. Default 1.
    pub delta: u64,
    /// `J`: the initial value of a counter that is created. Default 0.
    pub initial: u64,
    /// `T`: the time to live to set, by memcached's expiry rule. Default 0, never.
    pub ttl: i32,
    /// `N`: the time to live of an item that a miss creates. Default 0.
    pub n: i32,
    /// `R`: recache if fewer seconds than this remain. Default 0.
    pub r: i32,
    /// `F`: the client's flags. Default 0.
    pub client_flags: u32,
    /// `G`: for `ms`, what a miss of the item costs, in microseconds: the gap between a miss and the store that follows
    /// it. Default 0. memcached 1.6.45 has neither this flag nor `g`, with which `mg` shows what is remembered of it.
    pub penalty_us: u32,
    /// `M`: for `ms` one of `S` (default), `E`, `A`, `P`, `R`. For `ma`, `I` (default, also for `+`) or `D` (also
    /// for `-`). For the other commands the letter as sent, or 0 if there is none.
    pub mode: u8,
}

impl<'a> MetaFlags<'a> {
    /// Whether the flag was given.
    #[inline]
    pub fn has(&self, letter: u8) -> bool {
        self.seen & bit(letter) != 0
    }

    /// The flags in the order of the request, each as its letter and what follows the letter.
    #[inline]
    pub fn iter(&self) -> MetaTokens<'a> {
        MetaTokens { words: Words::new(self.raw) }
    }

    fn new(raw: &'a [u8]) -> Self {
        MetaFlags {
            seen: 0,
            raw,
            opaque: None,
            compare: 0,
            explicit_cas: 0,
            delta: 1,
            initial: 0,
            ttl: 0,
            n: 0,
            r: 0,
            client_flags: 0,
            penalty_us: 0,
            mode: 0,
        }
    }

    /// Reads one flag. The error is the reply that the flag alone would get.
    #[inline]
    fn take(&mut self, letter: u8, value: &'a [u8], key: &[u8]) -> Result<(), &'static str> {
        match letter {
            b'v' | b'k' | b'f' | b'c' | b's' | b't' | b'h' | b'l' | b'q' | b'u' | b'I' | b'x' | b'P'
            | b'L' | b'g' => {}
            b'T' => self.ttl = number_i32(value).ok_or(reply::BAD_TOKEN)?,
            b'N' => self.n = number_i32(value).ok_or(reply::BAD_TOKEN)?,
            b'R' => self.r = number_i32(value).ok_or(reply::BAD_TOKEN)?,
            b'C' => self.compare = number_u64(value).ok_or(reply::BAD_TOKEN)?,
            b'E' => self.explicit_cas = number_u64(value).ok_or(reply::BAD_TOKEN)?,
            b'F' => self.client_flags = number_u32(value).ok_or(reply::BAD_FORMAT)?,
            b'G' => self.penalty_us = number_u32(value).ok_or(reply::BAD_PENALTY)?,
            b'D' => self.delta = number_u64(value).ok_or(reply::BAD_META_DELTA)?,
            b'J' => self.initial = number_u64(value).ok_or(reply::BAD_META_INITIAL)?,
            b'O' if value.len() < OPAQUE_BYTES_MAX => self.opaque = Some(value),
            b'O' => return Err(reply::OPAQUE_TOO_LONG),
            // Only the first letter counts. Without one, what follows in the line is no mode.
            b'M' => self.mode = value.first().copied().unwrap_or(0),
            b'b' => {
                decode_key(key, &mut [0; KEY_BYTES_MAX]).ok_or(reply::BAD_BASE64)?;
            }
            _ => return Err(reply::INVALID_FLAG),
        }
        Ok(())
    }
}

impl<'a> IntoIterator for &MetaFlags<'a> {
    type Item = (u8, &'a [u8]);
    type IntoIter = MetaTokens<'a>;

    fn into_iter(self) -> MetaTokens<'a> {
        self.iter()
    }
}

/// Iterates over the flags of a meta request in the order of the request, as `(letter, rest)`.
#[derive(Clone, Debug)]
pub struct MetaTokens<'a> {
    words: Words<'a>,
}

impl<'a> Iterator for MetaTokens<'a> {
    type Item = (u8, &'a [u8]);

    #[inline]
    fn next(&mut self) -> Option<(u8, &'a [u8])> {
        self.words.next().and_then(|word| word.split_first()).map(|(&letter, rest)| (letter, rest))
    }
}

/// The bit of a flag in the 64-bit set. Zero for a byte that cannot be a flag.
#[inline]
fn bit(letter: u8) -> u64 {
    let position = letter.wrapping_sub(b'A');
    if position < 64 { 1 << position } else { 0 }
}

/// Reads the flags of a line. `tokens_before` counts the command, the key and the data length.
///
/// In the usual case this is one pass that ends at the first problem. [`complaint`] then decides which reply a line
/// with several problems gets, in memcached's order.
#[inline]
pub(crate) fn read_flags<'a>(
    verb: MetaVerb,
    key: &[u8],
    raw: &'a [u8],
    tokens_before: usize,
) -> Result<MetaFlags<'a>, &'static str> {
    let mut flags = MetaFlags::new(raw);
    let mut tokens = tokens_before;
    let mut at = 0;
    while at < raw.len() {
        let letter = raw[at];
        at += 1;
        if letter == b' ' {
            continue;
        }
        let start = at;
        while at < raw.len() && raw[at] != b' ' {
            at += 1;
        }
        tokens += 1;
        let position = bit(letter);
        if position == 0 || flags.seen & position != 0 || flags.take(letter, &raw[start..at], key).is_err() {
            return Err(complaint(verb, key, raw, tokens_before));
        }
        flags.seen |= position;
    }
    if tokens > META_TOKENS_MAX {
        return Err(complaint(verb, key, raw, tokens_before));
    }
    settle_mode(verb, flags)
}

#[inline]
fn settle_mode(verb: MetaVerb, mut flags: MetaFlags<'_>) -> Result<MetaFlags<'_>, &'static str> {
    flags.mode = match (verb, flags.mode, flags.has(b'M')) {
        (MetaVerb::Set, _, false) => b'S',
        (MetaVerb::Set, mode @ (b'S' | b'E' | b'A' | b'P' | b'R'), true) => mode,
        (MetaVerb::Set, _, true) => return Err(reply::BAD_SET_MODE),
        (MetaVerb::Arith, _, false) | (MetaVerb::Arith, b'I' | b'+', true) => b'I',
        (MetaVerb::Arith, b'D' | b'-', true) => b'D',
        (MetaVerb::Arith, _, true) => return Err(reply::BAD_ARITH_MODE),
        (_, mode, _) => mode,
    };
    Ok(flags)
}

/// The reply to flags that [`read_flags`] refused, in memcached's order: a flag that starts with a byte that no
/// flag may start with; too many tokens; the first duplicate or unknown letter; the last flag with a bad value, where
/// `F` counts only if there is no other; a bad mode; an opaque token that is too long. `ma` has one reply for all but
/// the first and the last two.
#[cold]
fn complaint(verb: MetaVerb, key: &[u8], raw: &[u8], tokens_before: usize) -> &'static str {
    let tokens = MetaTokens { words: Words::new(raw) };
    if has_no_flag(&tokens) {
        return reply::BAD_FORMAT;
    }
    let or_any = |error| if verb == MetaVerb::Arith { reply::INVALID_OR_DUPLICATE_FLAG } else { error };
    if tokens.clone().count() + tokens_before > META_TOKENS_MAX {
        return or_any(reply::TOO_MANY_FLAGS);
    }
    let mut seen = [false; 256];
    let mut flags = MetaFlags::new(raw);
    let mut last = None;
    for (letter, value) in tokens {
        if std::mem::replace(&mut seen[usize::from(letter)], true) {
            return or_any(reply::DUPLICATE_FLAG);
        }
        match flags.take(letter, value, key) {
            Err(reply::INVALID_FLAG) => return or_any(reply::INVALID_FLAG),
            Err(reply::OPAQUE_TOO_LONG) | Ok(()) => {}
            Err(reply::BAD_FORMAT) => last = last.or(Some(reply::BAD_FORMAT)),
            Err(error) => last = Some(error),
        }
        flags.seen |= bit(letter);
    }
    match (last, settle_mode(verb, flags)) {
        (Some(error), _) => or_any(error),
        (None, Err(error)) => error,
        (None, Ok(_)) => reply::OPAQUE_TOO_LONG,
    }
}

/// Whether one of the tokens starts with a byte that no flag may start with.
fn has_no_flag(tokens: &MetaTokens<'_>) -> bool {
    tokens.clone().any(|(letter, _)| !matches!(letter, b'A'..=b'z' | b'0'..=b'9'))
}

/// Reads the flags of `me`, which knows `b` and ignores every other.
pub(crate) fn read_flags_of_debug<'a>(key: &[u8], raw: &'a [u8]) -> Result<MetaFlags<'a>, &'static str> {
    if has_no_flag(&MetaTokens { words: Words::new(raw) }) {
        return Err(reply::BAD_FORMAT);
    }
    let base64 = Words::new(raw).find(|word| word.starts_with(b"b")).unwrap_or_default();
    read_flags(MetaVerb::Debug, key, base64, 0).map_err(|_| reply::BAD_FORMAT)
}
