//! Parsers for the fields of a line: numbers, commands, clients.

use crate::Op;

/// The reason why a line cannot be read: the field, and what is wrong with it.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Bad {
    field: &'static str,
    why: String,
}

impl Bad {
    pub(super) fn new(field: &'static str, why: impl Into<String>) -> Bad {
        Bad { field, why: why.into() }
    }

    fn quoting(field: &'static str, text: &[u8], why: &str) -> Bad {
        Bad::new(field, format!("'{}' {why}", shown(text)))
    }
}

impl std::fmt::Display for Bad {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{}: {}", self.field, self.why)
    }
}

/// Text of a file as an error message quotes it: short and printable.
pub(super) fn shown(text: &[u8]) -> String {
    const OCTETS_MAX: usize = 60;
    let cut = text.len() > OCTETS_MAX;
    let mut shown = String::from_utf8_lossy(&text[..text.len().min(OCTETS_MAX)]).into_owned();
    shown = shown.chars().map(|c| if c.is_control() { '\u{fffd}' } else { c }).collect();
    if cut {
        shown.push_str("...");
    }
    shown
}

/// A whole number; `None` if the text contains anything but digits or does not fit into 64 bits.
#[inline]
pub(crate) fn digits(text: &[u8]) -> Option<u64> {
    if text.is_empty() || text.len() > 20 {
        return None;
    }
    let mut value = 0u64;
    for &octet in text {
        let digit = octet.wrapping_sub(b'0');
        if digit > 9 {
            return None;
        }
        value = value.checked_mul(10)?.checked_add(u64::from(digit))?;
    }
    Some(value)
}

/// A number of at most `max`. A fraction is cut off.
#[inline]
pub(super) fn number(field: &'static str, text: &[u8], max: u64) -> Result<u64, Bad> {
    match digits(text) {
        Some(value) if value <= max => Ok(value),
        _ => scaled(field, text, 1.0, max),
    }
}

/// A number times `factor`, of at most `max`. A remaining fraction is cut off.
#[cold]
pub(super) fn scaled(field: &'static str, text: &[u8], factor: f64, max: u64) -> Result<u64, Bad> {
    if text.is_empty() {
        return Err(Bad::new(field, "is empty"));
    }
    let plain = text.iter().all(|octet| matches!(octet, b'0'..=b'9' | b'.' | b'-' | b'+' | b'e' | b'E'));
    let value = std::str::from_utf8(text).ok().filter(|_| plain).and_then(|text| text.parse::<f64>().ok());
    match value.map(|value| value * factor) {
        None => Err(Bad::quoting(field, text, "is no number")),
        Some(value) if value < 0.0 => Err(Bad::quoting(field, text, "is below zero")),
        Some(value) if value > max as f64 => {
            Err(Bad::quoting(field, text, &format!("is more than {max} at most")))
        }
        Some(value) => Ok((value as u64).min(max)),
    }
}

/// A number, or 0 if the field is empty.
#[inline]
pub(super) fn number_or_zero(field: &'static str, text: &[u8], max: u64) -> Result<u64, Bad> {
    if text.is_empty() { Ok(0) } else { number(field, text, max) }
}

/// The number of a client: a number stands for itself, any other name is hashed (FNV-1a, 32 bits).
#[inline]
pub(super) fn client(text: &[u8]) -> u32 {
    match digits(text) {
        Some(value) if value <= u64::from(u32::MAX) => value as u32,
        _ if text.is_empty() => 0,
        _ => {
            text.iter().fold(0x811c_9dc5, |hash, &octet| (hash ^ u32::from(octet)).wrapping_mul(0x0100_0193))
        }
    }
}

/// The command; an empty field means `get`. Traces of block devices write 0 and 1, or R and W, for reads and writes.
#[inline]
pub(super) fn op(text: &[u8]) -> Result<Op, Bad> {
    match text {
        b"get" | b"" | b"0" | b"R" | b"r" => Ok(Op::Get),
        b"set" | b"1" | b"W" | b"w" => Ok(Op::Set),
        _ => op_by_name(text).ok_or_else(|| Bad::quoting("op", text, "is no operation known")),
    }
}

/// The command with this name, in any case and under any of its names.
pub(super) fn op_by_name(text: &[u8]) -> Option<Op> {
    const NAMES: [(&str, Op); 17] = [
        ("get", Op::Get),
        ("gets", Op::Get),
        ("read", Op::Get),
        ("get_lease", Op::Get),
        ("set", Op::Set),
        ("put", Op::Set),
        ("write", Op::Set),
        ("set_lease", Op::Set),
        ("add", Op::Add),
        ("replace", Op::Replace),
        ("cas", Op::Cas),
        ("append", Op::Append),
        ("prepend", Op::Prepend),
        ("delete", Op::Delete),
        ("del", Op::Delete),
        ("incr", Op::Incr),
        ("decr", Op::Decr),
    ];
    NAMES.iter().find(|(name, _)| text.eq_ignore_ascii_case(name.as_bytes())).map(|(_, op)| *op)
}
