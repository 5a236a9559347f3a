//! From when and until when a certificate is valid, read from its DER.

use std::time::{SystemTime, UNIX_EPOCH};

/// Tags of ASN.1: a number, a sequence, times with a year of two and of four digits, and the version of a certificate.
const INTEGER: u8 = 0x02;
const SEQUENCE: u8 = 0x30;
const UTC_TIME: u8 = 0x17;
const GENERALIZED_TIME: u8 = 0x18;
const VERSION: u8 = 0xa0;

const DAY_S: i64 = 24 * 60 * 60;

/// The unix times between which a certificate is valid, in seconds.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct Validity {
    from_s: i64,
    until_s: i64,
}

impl Validity {
    /// `None` = this is no certificate.
    pub(super) fn of(certificate: &[u8]) -> Option<Validity> {
        let (certificate, _) = expect(certificate, SEQUENCE)?;
        let (signed, _) = expect(certificate, SEQUENCE)?;
        // Version, serial number, algorithm and issuer come first. The version may be left out.
        let rest = expect(signed, VERSION).map_or(signed, |(_, rest)| rest);
        let (_, rest) = expect(rest, INTEGER)?;
        let (_, rest) = expect(rest, SEQUENCE)?;
        let (_, rest) = expect(rest, SEQUENCE)?;
        let (validity, _) = expect(rest, SEQUENCE)?;
        let (from_s, rest) = time(validity)?;
        let (until_s, _) = time(rest)?;
        Some(Validity { from_s, until_s })
    }

    /// Why a certificate is not valid now.
    pub(super) fn problem_now(self) -> Option<String> {
        let now_s = SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |since| since.as_secs() as i64);
        self.problem_at(now_s)
    }

    fn problem_at(self, now_s: i64) -> Option<String> {
        let days = |seconds: i64| match seconds / DAY_S {
            0 => "less than a day".to_owned(),
            1 => "a day".to_owned(),
            days => format!("{days} days"),
        };
        if now_s > self.until_s {
            return Some(format!("has expired {} ago", days(now_s - self.until_s)));
        }
        (now_s < self.from_s).then(|| format!("is not valid yet, for {}", days(self.from_s - now_s)))
    }
}

/// The content of the value at the front, which must have this tag, and what is behind it.
fn expect(bytes: &[u8], tag: u8) -> Option<(&[u8], &[u8])> {
    let (found, content, rest) = value(bytes)?;
    (found == tag).then_some((content, rest))
}

/// The tag and the content of the value at the front, and what is behind it.
fn value(bytes: &[u8]) -> Option<(u8, &[u8], &[u8])> {
    let (&[tag, first], rest) = bytes.split_first_chunk()?;
    let (length, rest) = match first {
        0..=0x7f => (usize::from(first), rest),
        // The low bits say how many bytes the length takes.
        0x81..=0x84 => {
            let (length, rest) = rest.split_at_checked(usize::from(first & 0x7f))?;
            (length.iter().fold(0, |sum, byte| sum << 8 | usize::from(*byte)), rest)
        }
        _ => return None,
    };
    let (content, rest) = rest.split_at_checked(length)?;
    Some((tag, content, rest))
}

/// The time at the front as unix seconds, and what is behind it.
fn time(bytes: &[u8]) -> Option<(i64, &[u8])> {
    let (tag, text, rest) = value(bytes)?;
    let number = |digits: &[u8]| std::str::from_utf8(digits).ok()?.parse::<i64>().ok();
    let (year, text) = match tag {
        UTC_TIME => {
            let (year, text) = text.split_at_checked(2)?;
            let year = number(year)?;
            (year + if year < 50 { 2000 } else { 1900 }, text)
        }
        GENERALIZED_TIME => {
            let (year, text) = text.split_at_checked(4)?;
            (number(year)?, text)
        }
        _ => return None,
    };
    let part = |at: usize| number(text.get(2 * at..2 * at + 2)?);
    let (month, day, hour, minute, second) = (part(0)?, part(1)?, part(2)?, part(3)?, part(4)?);
    let seconds = (days_before(year, month, day) * 24 + hour) * 60 + minute;
    Some((seconds * 60 + second, rest))
}

/// Days from 1970-01-01 to a date. A year begins in March here, so that a leap day is its last.
fn days_before(year: i64, month: i64, day: i64) -> i64 {
    let year = if month <= 2 { year - 1 } else { year };
    let month = (month + 9) % 12;
    let day_of_year = (153 * month + 2) / 5 + day - 1;
    year * 365 + year.div_euclid(4) - year.div_euclid(100) + year.div_euclid(400) + day_of_year - 719_468
}

#[cfg(test)]
mod tests {
    use super::*;

    fn wrapped(tag: u8, content: &[u8]) -> Vec<u8> {
        let mut bytes = vec![tag, 0x82];
        bytes.extend_from_slice(&(content.len() as u16).to_be_bytes());
        bytes.extend_from_slice(content);
        bytes
    }

    fn certificate(from: &[u8], until: &[u8], with_version: bool) -> Vec<u8> {
        let time = |text: &[u8]| wrapped(if text.len() == 13 { UTC_TIME } else { GENERALIZED_TIME }, text);
        let validity = wrapped(SEQUENCE, &[time(from), time(until)].concat());
        let version = if with_version { wrapped(VERSION, &[2, 1, 2]) } else { Vec::new() };
        let parts =
            [&version[..], &[INTEGER, 1, 7], &[SEQUENCE, 0], &wrapped(SEQUENCE, &[0; 300]), &validity];
        wrapped(SEQUENCE, &wrapped(SEQUENCE, &parts.concat()))
    }

    #[test]
    fn a_certificate_says_when_it_is_valid() {
        for with_version in [true, false] {
            let found = Validity::of(&certificate(b"700101000001Z", b"20380119031408Z", with_version));
            let validity = Validity { from_s: 1, until_s: 1 << 31 };
            assert_eq!(found, Some(validity));
            assert_eq!(validity.problem_at(5), None);
            assert_eq!(validity.problem_at(0).unwrap(), "is not valid yet, for less than a day");
            assert_eq!(validity.problem_at((1 << 31) + 3 * DAY_S).unwrap(), "has expired 3 days ago");
        }
        assert_eq!(days_before(2000, 2, 29) - days_before(1999, 3, 1), 365);
        assert_eq!(days_before(2024, 3, 1), 19_783);
    }

    #[test]
    fn what_is_no_certificate_has_no_validity() {
        let whole = certificate(b"700101000001Z", b"20380119031408Z", true);
        (0..whole.len()).for_each(|until| assert_eq!(Validity::of(&whole[..until]), None));
        assert_eq!(Validity::of(&certificate(b"7x0101000001Z", b"20380119031408Z", true)), None);
    }
}
