//! Numbers as Redis writes and reads them.

/// The whole part of a number. One that 64 bits do not hold becomes what it becomes in C on x86-64: the least of all.
pub(crate) fn whole(number: f64) -> i64 {
    const TOO_LARGE: f64 = 9_223_372_036_854_775_808.0;
    if (-TOO_LARGE..TOO_LARGE).contains(&number) { number as i64 } else { i64::MIN }
}

/// Writes a number of Lua as the argument of a command: whole numbers without exponent as far as 64 bits reach, others
/// with the fewest digits that say them.
pub(crate) fn write(number: f64, out: &mut Vec<u8>) {
    out.extend_from_slice(text(number).as_bytes());
}

fn text(number: f64) -> String {
    const WHOLE_MAX: f64 = (i64::MAX / 2) as f64;
    if number.fract() == 0.0 && number.abs() <= WHOLE_MAX {
        return (number as i64).to_string();
    }
    if !number.is_finite() {
        return if number.is_nan() {
            "nan"
        } else if number > 0.0 {
            "inf"
        } else {
            "-inf"
        }
        .to_owned();
    }
    // `1.25e-7`: the digits, and the place of the point.
    let scientific = format!("{number:e}");
    let (digits, exponent) = scientific.split_once('e').unwrap_or((&scientific, "0"));
    let exponent: i32 = exponent.parse().unwrap_or(0);
    let digits_behind = digits.split_once('.').map_or(0, |(_, behind)| behind.len() as i32) - exponent;
    let count = digits.bytes().filter(u8::is_ascii_digit).count() as i32;
    let is_plain = match digits_behind {
        ..=0 => exponent < count + 7,
        1..7 => true,
        _ => exponent.abs() < 4,
    };
    match is_plain {
        true => format!("{number}"),
        false => format!("{digits}e{}{}", if exponent < 0 { '-' } else { '+' }, exponent.abs()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Each as Valkey 9.1 writes it.
    #[test]
    fn numbers_are_written_as_valkey_writes_them() {
        for (number, expected) in [
            (1.0, "1"),
            (1.5, "1.5"),
            (0.1, "0.1"),
            (1e17, "100000000000000000"),
            (123456789012345678.0, "123456789012345680"),
            (9223372036854775808.0, "9223372036854776000"),
            (1e20, "1e+20"),
            (1e100, "1e+100"),
            (-0.0, "0"),
            (1.0 / 3.0, "0.3333333333333333"),
            (f64::INFINITY, "inf"),
            (f64::NEG_INFINITY, "-inf"),
            (0.001, "0.001"),
            (0.00001, "0.00001"),
            (0.00000125, "1.25e-6"),
            (1.5e-10, "1.5e-10"),
            (1e-7, "1e-7"),
            (-2.5, "-2.5"),
        ] {
            assert_eq!(text(number), expected);
        }
    }
}
