//! Decimal numbers as Redis adds them: with the 64-bit mantissa of x87's `long double`, shown with up to 17 decimals.
//!
//! Redis computes `INCRBYFLOAT` in `long double` and prints with `%.17Lf`. With the 53 bits of an `f64`, 10.5 + 0.1
//! would read 10.59999999999999964. Here a number is exact until it is rounded to 64 bits, to the nearest, ties to
//! even, as the processor does.

use num_bigint::{BigInt, BigUint, Sign};

/// Bits of the mantissa.
const MANTISSA_BITS: u64 = 64;
/// Decimals that are shown.
const DECIMALS: u32 = 17;
/// A number with an exponent of two beyond this is infinite.
const EXPONENT_MAX: i64 = 16384;
/// A number below two to this power is zero. Others that are as small are not rounded as denormals are: they are shown
/// as 0 in any case.
const EXPONENT_MIN: i64 = -16446;
/// Longest text that is read as a number. The limit is Redis's (`MAX_LONG_DOUBLE_CHARS`).
const TEXT_BYTES_MAX: usize = 5 * 1024;
/// A decimal exponent beyond this makes a number infinite, or zero.
const DECIMAL_EXPONENT_MAX: i64 = 6000;

/// A number: a mantissa of 64 bits and an exponent of two, or infinite.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(in crate::dispatch) enum Decimal {
    Finite { mantissa: BigInt, exponent: i64 },
    Infinite,
}

impl Decimal {
    /// Zero.
    pub(super) fn zero() -> Decimal {
        Decimal::Finite { mantissa: BigInt::ZERO, exponent: 0 }
    }

    /// Reads a number as `strtold` does: a sign, digits with a point, an exponent; `0x` and hexadecimal digits, with an
    /// exponent of two behind `p`; `inf`. `None` for all else, also for `nan`, for white space before or after it, and
    /// for what is too large or too small.
    pub(in crate::dispatch) fn read(text: &[u8]) -> Option<Decimal> {
        if text.is_empty() || text.len() > TEXT_BYTES_MAX {
            return None;
        }
        let (is_negative, rest) = match text {
            [b'-', rest @ ..] => (true, rest),
            [b'+', rest @ ..] => (false, rest),
            rest => (false, rest),
        };
        if rest.eq_ignore_ascii_case(b"inf") || rest.eq_ignore_ascii_case(b"infinity") {
            return Some(Decimal::Infinite);
        }
        let (rest, base, mark) = match rest {
            [b'0', b'x' | b'X', rest @ ..] => (rest, 16, b'p'),
            rest => (rest, 10, b'e'),
        };
        let (number, exponent) = match rest.iter().position(|byte| byte.eq_ignore_ascii_case(&mark)) {
            Some(at) => (&rest[..at], whole(&rest[at + 1..])?),
            None => (rest, 0),
        };
        let (before, behind) = match number.iter().position(|byte| *byte == b'.') {
            Some(at) => (&number[..at], &number[at + 1..]),
            None => (number, &[][..]),
        };
        let digits = [before, behind].concat();
        if digits.is_empty() || !digits.iter().all(|digit| (*digit as char).is_digit(base)) {
            return None;
        }
        let sign = if is_negative { Sign::Minus } else { Sign::Plus };
        let digits = BigInt::from_biguint(sign, BigUint::parse_bytes(&digits, base)?);
        if digits.sign() == Sign::NoSign {
            return Some(Decimal::zero());
        }
        let number = match base {
            16 => Decimal::rounded(digits, exponent - 4 * behind.len() as i64, false),
            _ => Decimal::with_power_of_ten(digits, exponent - behind.len() as i64)?,
        };
        Some(number).filter(|number| match number {
            Decimal::Finite { mantissa, exponent } => {
                (EXPONENT_MIN + 1..=EXPONENT_MAX).contains(&(mantissa.bits() as i64 + exponent))
            }
            Decimal::Infinite => false,
        })
    }

    /// `digits` times ten to a power. `None` if the power alone makes it too large or too small.
    fn with_power_of_ten(digits: BigInt, ten_to: i64) -> Option<Decimal> {
        if ten_to > DECIMAL_EXPONENT_MAX || ten_to < -DECIMAL_EXPONENT_MAX - TEXT_BYTES_MAX as i64 {
            return None;
        }
        let power = BigInt::from(10).pow(ten_to.unsigned_abs() as u32);
        if ten_to >= 0 {
            return Some(Decimal::rounded(digits * power, 0, false));
        }
        // Enough bits that the quotient has more than the mantissa, and what is cut off only decides ties.
        let shift = (power.bits() + MANTISSA_BITS + 2).saturating_sub(digits.bits());
        let shifted = digits << shift;
        let (quotient, rest) = (&shifted / &power, shifted % power);
        Some(Decimal::rounded(quotient, -(shift as i64), rest.sign() != Sign::NoSign))
    }

    /// Rounds a number to the mantissa's bits. `has_more` = the exact number is a little further from zero.
    fn rounded(number: BigInt, exponent: i64, has_more: bool) -> Decimal {
        let excess = number.bits().saturating_sub(MANTISSA_BITS);
        if excess == 0 {
            return Decimal::Finite { mantissa: number, exponent };
        }
        let (sign, magnitude) = number.into_parts();
        let kept = &magnitude >> excess;
        let cut = &magnitude - (&kept << excess);
        let half = BigUint::from(1u8) << (excess - 1);
        let rounds_up = match cut.cmp(&half) {
            std::cmp::Ordering::Less => false,
            std::cmp::Ordering::Greater => true,
            std::cmp::Ordering::Equal => has_more || kept.bit(0),
        };
        let kept = if rounds_up { kept + 1u8 } else { kept };
        let exponent = exponent + excess as i64;
        if kept.bits() as i64 + exponent > EXPONENT_MAX {
            return Decimal::Infinite;
        }
        Decimal::Finite { mantissa: BigInt::from_biguint(sign, kept), exponent }
    }

    /// The sum. `None` if it is not finite.
    pub(super) fn plus(&self, other: &Decimal) -> Option<Decimal> {
        let (Decimal::Finite { mantissa: a, exponent: ea }, Decimal::Finite { mantissa: b, exponent: eb }) =
            (self, other)
        else {
            return None;
        };
        let exponent = *ea.min(eb);
        let sum = (a << (ea - exponent) as u64) + (b << (eb - exponent) as u64);
        match Decimal::rounded(sum, exponent, false) {
            Decimal::Infinite => None,
            finite => Some(finite),
        }
    }

    /// Writes the number without an exponent and without needless zeros.
    pub(super) fn write(&self, out: &mut Vec<u8>) {
        let Decimal::Finite { mantissa, exponent } = self else { return };
        let scale = BigInt::from(10).pow(DECIMALS);
        let scaled = match exponent {
            0.. => (mantissa << *exponent as u64) * scale,
            _ => {
                let (product, shift) = (mantissa * scale, exponent.unsigned_abs());
                divided(product, shift)
            }
        };
        let digits = format!("{:0>width$}", scaled.magnitude(), width = DECIMALS as usize + 1);
        let (before, behind) = digits.split_at(digits.len() - DECIMALS as usize);
        let behind = behind.trim_end_matches('0');
        if scaled.sign() == Sign::Minus {
            out.push(b'-');
        }
        out.extend_from_slice(before.as_bytes());
        if !behind.is_empty() {
            out.push(b'.');
            out.extend_from_slice(behind.as_bytes());
        }
    }
}

/// A number divided by two to a power, rounded to the nearest whole one, ties to even.
fn divided(number: BigInt, shift: u64) -> BigInt {
    let (sign, magnitude) = number.into_parts();
    let kept = &magnitude >> shift;
    let (cut, half) = (&magnitude - (&kept << shift), BigUint::from(1u8) << (shift - 1));
    let rounds_up = cut > half || (cut == half && kept.bit(0));
    BigInt::from_biguint(sign, if rounds_up { kept + 1u8 } else { kept })
}

/// The exponent of a decimal number, limited to what makes no difference any more.
fn whole(text: &[u8]) -> Option<i64> {
    let (is_negative, digits) = match text {
        [b'-', digits @ ..] => (true, digits),
        [b'+', digits @ ..] => (false, digits),
        digits => (false, digits),
    };
    if digits.is_empty() {
        return None;
    }
    let mut sum = 0i64;
    for byte in digits {
        let digit = byte.wrapping_sub(b'0');
        if digit > 9 {
            return None;
        }
        sum = (sum * 10 + i64::from(digit)).min(1_000_000);
    }
    Some(if is_negative { -sum } else { sum })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn sum(a: &str, b: &str) -> Option<String> {
        let [a, b] = [a, b].map(|text| Decimal::read(text.as_bytes()));
        let mut text = Vec::new();
        a?.plus(&b?)?.write(&mut text);
        String::from_utf8(text).ok()
    }

    /// The results are those of Valkey 9.1 and Redis 8.0 on x86-64.
    #[test]
    fn sums_are_those_of_redis() {
        for (a, b, expected) in [
            ("10.5", "0.1", "10.6"),
            ("0", "0.1", "0.1"),
            ("5.0e3", "2.0e2", "5200"),
            ("1", "-1.1", "-0.1"),
            ("3", "1.1", "4.1"),
            ("1.5", "1.5", "3"),
            ("-1", "1", "0"),
            ("17179869184", "1.5", "17179869185.5"),
            ("1.23", "-1.23", "0"),
            ("0.1", "0.2", "0.3"),
            ("3.0e3", "0", "3000"),
            ("-0", "0", "0"),
            ("1e-17", "0", "0.00000000000000001"),
            ("1e-18", "0", "0"),
            (".5", "5.", "5.5"),
            ("+1", "1", "2"),
            ("0x10", "1", "17"),
            ("-0X1.8p3", "0", "-12"),
            ("12345678901234567890123", "0", "12345678901234567889920"),
        ] {
            assert_eq!(sum(a, b).as_deref(), Some(expected), "{a} + {b}");
        }
    }

    #[test]
    fn what_is_no_number_is_refused() {
        for text in [
            "",
            "x",
            " 1",
            "1 ",
            "1.2.3",
            "--1",
            "1e",
            "e5",
            ".",
            "nan",
            "1e1.5",
            "\0",
            "0x",
            "0xg",
            "1e5000",
            "-1e4933",
            "1e999999999999999999999",
            "1e-5000",
            "1e-999999999999",
        ] {
            assert_eq!(Decimal::read(text.as_bytes()), None, "{text:?}");
        }
        for text in ["inf", "-Inf", "Infinity"] {
            assert_eq!(sum(text, "1"), None, "{text}");
        }
        assert_eq!(sum("1e-4900", "1").as_deref(), Some("1"));
        let long = "1".repeat(6000);
        assert_eq!(Decimal::read(long.as_bytes()), None);
    }
}
