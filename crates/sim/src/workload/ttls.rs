//! The time to live of a key, as a function of its 64 random bits.

use std::fmt;

const MINUTE_S: u64 = 60;
const HOUR_S: u64 = 3_600;
const DAY_S: u64 = 86_400;

/// The parts of `mix`: (cumulative share of 2^16, shortest, longest time in seconds). The parts are an assumption:
/// most keys live for days, sessions for hours, counters for minutes, and some keys never expire.
const MIX: [(u64, u64, u64); 4] = [
    (3_277, 0, 0),               // 5 %: for ever
    (9_830, MINUTE_S, HOUR_S),   // 10 %
    (22_938, HOUR_S, DAY_S),     // 20 %
    (65_536, DAY_S, 14 * DAY_S), // 65 %
];

/// The parameter `ttls`.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Ttls {
    None,
    Fixed(u32),
    Mix,
}

impl Ttls {
    pub(super) const VALUES: &[&str] = &["none", "fixed:DURATION", "mix"];

    /// Parses the value of the parameter; `None` if it is not valid.
    pub(super) fn parse(text: &str) -> Option<Ttls> {
        match text.split_once(':') {
            None if text == "none" => Some(Ttls::None),
            None if text == "mix" => Some(Ttls::Mix),
            Some(("fixed", duration)) => {
                let seconds = super::words::seconds(duration)?;
                u32::try_from(seconds).ok().filter(|s| *s > 0).map(Ttls::Fixed)
            }
            _ => None,
        }
    }

    /// Time to live in seconds of the key with these random bits; 0 = the key never expires.
    #[inline]
    pub(super) fn pick(self, bits: u64) -> u32 {
        match self {
            Ttls::None => 0,
            Ttls::Fixed(seconds) => seconds,
            Ttls::Mix => {
                // Counting all parts avoids a branch that would be mispredicted.
                let at: usize = MIX[..3].iter().map(|(share, ..)| usize::from(bits >> 48 >= *share)).sum();
                let part = &MIX[at];
                (part.1 + (((bits & 0xffff_ffff) * (part.2 - part.1)) >> 32)) as u32
            }
        }
    }
}

impl fmt::Display for Ttls {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Ttls::None => f.write_str("none"),
            Ttls::Fixed(seconds) => write!(f, "fixed:{seconds}s"),
            Ttls::Mix => f.write_str("mix"),
        }
    }
}
