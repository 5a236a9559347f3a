//! How long keys live, as a function of 64 random bits of the key.

use std::fmt;

const MINUTE_S: u64 = 60;
const HOUR_S: u64 = 3_600;
const DAY_S: u64 = 86_400;

/// The parts of `mix`: (cumulative share of 2^16, from, up to in seconds). All of it is our assumption: a cache whose
/// keys mostly live for days, with sessions of hours, counters of minutes, and some that nobody gave an end.
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

    /// Reads the parameter's value; `None` = not one of the values that exist.
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

    /// Seconds to live of the key with these random bits; 0 = for ever.
    #[inline]
    pub(super) fn pick(self, bits: u64) -> u32 {
        match self {
            Ttls::None => 0,
            Ttls::Fixed(seconds) => seconds,
            Ttls::Mix => {
                // Counted rather than searched: where the search would end cannot be foretold.
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
