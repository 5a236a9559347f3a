//! Numbers formatted for people.

/// A whole number with groups of three digits: `1,234,567`.
pub fn grouped(count: u64) -> String {
    let digits = count.to_string();
    let mut text = String::with_capacity(digits.len() * 4 / 3);
    for (at, digit) in digits.chars().enumerate() {
        if at > 0 && (digits.len() - at).is_multiple_of(3) {
            text.push(',');
        }
        text.push(digit);
    }
    text
}

/// A number with this many decimals and groups of three digits; `-` if it is not finite.
pub(super) fn decimal(number: f64, decimals: usize) -> String {
    if !number.is_finite() {
        return "-".to_owned();
    }
    let text = format!("{:.*}", decimals.min(17), number);
    let (sign, digits) = match text.strip_prefix('-') {
        Some(digits) if digits.bytes().any(|b| b.is_ascii_digit() && b != b'0') => ("-", digits),
        Some(digits) => ("", digits),
        None => ("", text.as_str()),
    };
    let (whole, rest) = digits.split_at(digits.find('.').unwrap_or(digits.len()));
    match whole.parse() {
        Ok(whole) => format!("{sign}{}{rest}", grouped(whole)),
        Err(_) => format!("{number:.3e}"),
    }
}

/// A number with this many significant digits and groups of three digits: `12,300`, `1.23`, `0.000120`.
pub(super) fn significant(number: f64, digits: usize) -> String {
    let text = format!("{number:.*e}", digits.clamp(1, 17) - 1);
    let exponent = text.split_once('e').and_then(|(_, exponent)| exponent.parse::<i32>().ok());
    match (exponent, text.parse()) {
        (Some(exponent), Ok(rounded)) if number.is_finite() && number != 0.0 => {
            decimal(rounded, (digits as i32 - 1 - exponent).max(0) as usize)
        }
        _ => decimal(number, 0),
    }
}

/// A number for a sentence: as many significant digits, without zeros at the end of the decimals. With three digits
/// `12,300`, `0.68`, `32`.
pub fn rounded(number: f64, digits: usize) -> String {
    trimmed(&significant(number, digits)).to_owned()
}

/// A number of bytes with three digits, in the unit that suits it: `0 bytes`, `1.93 MiB`, `24 GiB`.
pub fn size(bytes: f64) -> String {
    if !bytes.is_finite() {
        return "-".to_owned();
    }
    let units = ["bytes", "KiB", "MiB", "GiB", "TiB"];
    let mut scaled = bytes;
    let mut unit = 0;
    // 1023.6 would be shown as 1024.
    while scaled.abs() >= 1023.5 && unit + 1 < units.len() {
        scaled /= 1024.0;
        unit += 1;
    }
    let decimals = match scaled.abs() {
        _ if unit == 0 => 0,
        s if s >= 99.95 => 0,
        s if s >= 9.995 => 1,
        _ => 2,
    };
    format!("{} {}", trimmed(&decimal(scaled, decimals)), units[unit])
}

/// A number of bytes as [`size`] shows it, and in full: `1.93 MiB (2,023,751 bytes)`.
pub(crate) fn size_in_full(bytes: u64) -> String {
    let short = size(bytes as f64);
    if bytes < 1024 { short } else { format!("{short} ({} bytes)", grouped(bytes)) }
}

/// A short form, exact to four digits: `0.05`, `250`, `20k`, `1.5M`, `2e-7`.
pub(super) fn short(number: f64) -> String {
    let size = number.abs();
    if !number.is_finite() {
        return "-".to_owned();
    }
    if size == 0.0 {
        return "0".to_owned();
    }
    if !(1e-3..1e15).contains(&size) {
        return trimmed_exponent(number);
    }
    let units = [(1e12, "T"), (1e9, "G"), (1e6, "M"), (1e4, "k")];
    let unit = units.iter().find(|(from, _)| size >= *from * 0.99995);
    let (per, name) = unit.map_or((1.0, ""), |&(from, name)| (if name == "k" { 1e3 } else { from }, name));
    let scaled = number / per;
    let decimals = match scaled.abs() {
        s if s >= 1000.0 => 0,
        s if s >= 100.0 => 1,
        s if s >= 10.0 => 2,
        s if s >= 1.0 => 3,
        s if s >= 0.1 => 4,
        _ => 6,
    };
    format!("{}{name}", trimmed(&format!("{scaled:.decimals$}")))
}

fn trimmed_exponent(number: f64) -> String {
    let text = format!("{number:.3e}");
    match text.split_once('e') {
        Some((digits, exponent)) => format!("{}e{exponent}", trimmed(digits)),
        None => text,
    }
}

/// Removes trailing zeros of the decimals.
fn trimmed(text: &str) -> &str {
    if text.contains('.') { text.trim_end_matches('0').trim_end_matches('.') } else { text }
}
