//! Words into numbers, and which word was probably meant.

/// A count such as `250`, `10k`, `1.5m`, `2g` (powers of ten); `None` = no whole number.
pub(super) fn count(text: &str) -> Option<u64> {
    let value = amount(text)?;
    ((0.0..=1e18).contains(&value) && value.fract() == 0.0).then_some(value as u64)
}

/// An amount such as `0.5`, `10k`, `52.7k` (powers of ten).
pub(super) fn amount(text: &str) -> Option<f64> {
    let (digits, unit) = match text.char_indices().last()? {
        (at, 'k' | 'K') => (&text[..at], 1e3),
        (at, 'm' | 'M') => (&text[..at], 1e6),
        (at, 'g' | 'G') => (&text[..at], 1e9),
        _ => (text, 1.0),
    };
    number(digits).map(|value| value * unit)
}

/// A plain number: digits with at most one point.
pub(super) fn number(text: &str) -> Option<f64> {
    let plain = text.bytes().all(|b| b.is_ascii_digit() || b == b'.');
    plain.then(|| text.parse().ok()).flatten()
}

/// A duration in seconds such as `90`, `90s`, `30m`, `12h`, `1d`.
pub(super) fn seconds(text: &str) -> Option<u64> {
    let (digits, unit) = match text.char_indices().last()? {
        (at, 's') => (&text[..at], 1.0),
        (at, 'm') => (&text[..at], 60.0),
        (at, 'h') => (&text[..at], 3_600.0),
        (at, 'd') => (&text[..at], 86_400.0),
        _ => (text, 1.0),
    };
    let value = number(digits)? * unit;
    (value <= f64::from(u32::MAX) && value.fract() == 0.0).then_some(value as u64)
}

/// `did you mean 'zipfian'? `, if one of the words is near.
pub(super) fn meant<'a>(word: &str, all: impl Iterator<Item = &'a str>) -> String {
    let nearest = all.map(|other| (distance(word, other), other)).min();
    match nearest {
        Some((edits, other)) if edits * 2 <= other.len().max(2) => format!("did you mean '{other}'? "),
        _ => String::new(),
    }
}

/// Bytes to change, to add and to take away (Levenshtein); words that begin alike count as near.
fn distance(a: &str, b: &str) -> usize {
    if a.len() > 2 && (b.starts_with(a) || a.starts_with(b)) {
        return 1;
    }
    let mut row: Vec<usize> = (0..=b.len()).collect();
    for (i, x) in a.bytes().enumerate() {
        let mut diagonal = row[0];
        row[0] = i + 1;
        for (j, y) in b.bytes().enumerate() {
            let change = diagonal + usize::from(x != y);
            diagonal = row[j + 1];
            row[j + 1] = change.min(diagonal + 1).min(row[j] + 1);
        }
    }
    row[b.len()]
}
