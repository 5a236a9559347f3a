//! Cache sizes as people write them, and their values for a given trace.

/// The unit of a cache size.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Unit {
    /// Items: each is charged 1.
    Objects,
    /// Bytes: each item is charged for key, value and overhead.
    Bytes,
}

impl Unit {
    /// The name in a report.
    pub fn name(self) -> &'static str {
        match self {
            Unit::Objects => "objects",
            Unit::Bytes => "bytes",
        }
    }
}

/// A cache size as it was written.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Size {
    /// `10%`: a share of the trace's distinct keys, or of their bytes; above 0 and at most 1000 %.
    Share(f64),
    /// `10000`: items, or bytes if `--unit bytes` is given.
    Plain(u64),
    /// `64m`: bytes in powers of 1024, or items in powers of 1000 if `--unit objects` is given. The fields are the
    /// number and the exponent (k = 1, m = 2, g = 3, t = 4).
    Suffixed(f64, u32),
}

impl Size {
    /// Parses a size.
    ///
    /// # Errors
    /// One line that says what is wrong with the text.
    pub fn parse(text: &str) -> Result<Size, String> {
        let text = text.trim();
        let wrong = || format!("'{text}' is no size, such as 1% (of the trace), 10000 (items), 64m (octets)");
        let number = |digits: &str| digits.trim().parse::<f64>().ok().filter(|n| n.is_finite() && *n > 0.0);
        if let Some(digits) = text.strip_suffix('%') {
            let share = number(digits).ok_or_else(wrong)? / 100.0;
            return if share <= 10.0 { Ok(Size::Share(share)) } else { Err(wrong()) };
        }
        let lower = text.to_ascii_lowercase();
        let plain = lower.strip_suffix("ib").or_else(|| lower.strip_suffix('b')).unwrap_or(&lower);
        let times = plain.chars().last().and_then(|last| "kmgt".find(last));
        match times {
            Some(times) => {
                let size =
                    Size::Suffixed(number(&plain[..plain.len() - 1]).ok_or_else(wrong)?, times as u32 + 1);
                if size.in_unit(Unit::Bytes, 0) < 1 << 60 { Ok(size) } else { Err(wrong()) }
            }
            None if plain.len() == lower.len() => {
                let whole = lower.parse::<u64>().ok().filter(|n| (1..1 << 60).contains(n));
                whole.map(Size::Plain).ok_or_else(wrong)
            }
            None => Err(wrong()),
        }
    }

    /// The capacity in `unit`, at least 1. `whole` is the number of keys of the trace, or of their bytes.
    pub fn in_unit(&self, unit: Unit, whole: u64) -> u64 {
        let capacity = match (*self, unit) {
            (Size::Share(share), _) => share * whole as f64,
            (Size::Plain(plain), _) => return plain.max(1),
            (Size::Suffixed(number, times), Unit::Bytes) => number * (1u64 << (10 * times)) as f64,
            (Size::Suffixed(number, times), Unit::Objects) => number * 1000f64.powi(times as i32),
        };
        (capacity.round() as u64).max(1)
    }

    /// Whether the trace must be counted before the size is known.
    pub fn is_share(&self) -> bool {
        matches!(self, Size::Share(_))
    }
}

/// The unit that the written sizes imply: bytes if one has a suffix, else items.
///
/// # Errors
/// Sizes in bytes and in items side by side.
pub fn unit_of(sizes: &[Size]) -> Result<Unit, String> {
    let octets = sizes.iter().any(|size| matches!(size, Size::Suffixed(..)));
    let items = sizes.iter().any(|size| matches!(size, Size::Plain(_)));
    match (octets, items) {
        (true, true) => {
            Err("sizes in octets (64m) and in items (10000) side by side: say --unit objects or \
                             --unit bytes"
                .to_owned())
        }
        (true, false) => Ok(Unit::Bytes),
        _ => Ok(Unit::Objects),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sizes_are_read_in_each_form_and_nonsense_is_refused() {
        assert_eq!(Size::parse("0.1%"), Ok(Size::Share(0.001)));
        assert_eq!(Size::parse("10000"), Ok(Size::Plain(10_000)));
        for text in ["64m", "64M", "64MB", "64MiB"] {
            assert_eq!(Size::parse(text).unwrap().in_unit(Unit::Bytes, 0), 64 << 20, "{text}");
        }
        assert_eq!(Size::parse("1.5k").unwrap().in_unit(Unit::Bytes, 0), 1536);
        assert_eq!(Size::parse("1.5k").unwrap().in_unit(Unit::Objects, 0), 1500);
        assert_eq!(Size::parse("10%").unwrap().in_unit(Unit::Objects, 77), 8);
        assert_eq!(Size::parse("0.1%").unwrap().in_unit(Unit::Objects, 77), 1, "never nothing");
        for text in ["", "%", "0", "0%", "-1", "64x", "x", "nan%", "1e30", "2000%", "9999999t", "10b", "1.5"]
        {
            assert!(Size::parse(text).is_err(), "{text}");
        }
    }

    #[test]
    fn the_form_of_the_sizes_says_what_is_counted() {
        let of = |texts: &[&str]| {
            unit_of(&texts.iter().map(|text| Size::parse(text).unwrap()).collect::<Vec<_>>())
        };
        assert_eq!(of(&["1%", "10%"]), Ok(Unit::Objects));
        assert_eq!(of(&["1%", "500"]), Ok(Unit::Objects));
        assert_eq!(of(&["1%", "64m"]), Ok(Unit::Bytes));
        assert!(of(&["500", "64m"]).is_err());
    }
}
