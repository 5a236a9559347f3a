//! Parsers for the values of the workbench's flags. Each error gives an example of a valid value.

use larder_server::settings::Objective;
use larder_sim::policy::larder::COMPRESS_RATIOS;
use larder_sim::trace::Format;

/// A count such as `250`, `10k`, `5m`, `2g` (powers of ten).
pub(super) fn count(text: &str) -> Result<u64, String> {
    let (digits, unit) = match text.trim().char_indices().last() {
        Some((at, 'k' | 'K')) => (&text.trim()[..at], 1_000),
        Some((at, 'm' | 'M')) => (&text.trim()[..at], 1_000_000),
        Some((at, 'g' | 'G')) => (&text.trim()[..at], 1_000_000_000),
        _ => (text.trim(), 1),
    };
    let wrong = || format!("'{text}' is not a count: give one such as 250, 10k or 5m");
    let whole: f64 = digits.parse().map_err(|_| wrong())?;
    let value = whole * unit as f64;
    if !(0.0..=1e18).contains(&value) || value.fract() != 0.0 {
        return Err(wrong());
    }
    Ok(value as u64)
}

/// Splits a number from the unit that follows it.
pub(super) fn number_and_unit(text: &str) -> Option<(f64, &str)> {
    let text = text.trim();
    let digits = text.trim_end_matches(|c: char| c.is_ascii_alphabetic());
    let number: f64 = digits.parse().ok()?;
    (number >= 0.0 && number.is_finite()).then_some((number, &text[digits.len()..]))
}

/// A size such as `4096`, `64m`, `1.5gb` (powers of 1024), in bytes.
pub(super) fn size(text: &str) -> Result<f64, String> {
    let wrong = || format!("'{text}' is not a size: give one such as 4096, 64m or 90g");
    let (number, unit) = number_and_unit(text).ok_or_else(wrong)?;
    let power = match unit.to_ascii_lowercase().as_str() {
        "" => 0,
        "k" | "kb" | "kib" => 10,
        "m" | "mb" | "mib" => 20,
        "g" | "gb" | "gib" => 30,
        "t" | "tb" | "tib" => 40,
        _ => return Err(wrong()),
    };
    Ok(number * (1_u64 << power) as f64)
}

/// How many times shorter compressed values are, from 1 to 20.
pub(super) fn compress_ratio(text: &str) -> Result<f64, String> {
    let ratio = text.trim().parse().ok().filter(|ratio| COMPRESS_RATIOS.contains(ratio));
    ratio.ok_or_else(|| format!("'{text}' is not a ratio from 1 to 20: give one such as 2.5"))
}

/// The objective with this name.
pub(super) fn objective(text: &str) -> Result<Objective, String> {
    Objective::of_name(text).ok_or_else(|| "expected requests, bytes or time".to_owned())
}

/// The format of a trace with this name.
pub(super) fn format(text: &str) -> Result<Format, String> {
    let found = Format::ALL.into_iter().find(|format| format.name() == text);
    found.ok_or_else(|| format!("expected {}", Format::names(|_| true)))
}

/// The format of a trace with this name, which can be written.
pub(super) fn written_format(text: &str) -> Result<Format, String> {
    let found = format(text).ok().filter(|format| format.can_be_written());
    found.ok_or_else(|| format!("expected {}", Format::names(Format::can_be_written)))
}
