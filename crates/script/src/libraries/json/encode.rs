//! The way from a Lua value to a JSON text.

use super::super::call::{Answer, Clock, DEEPEST, failure, kind};
use super::{Invalid, Settings};
use mlua::{Function, Table, Value};

/// The JSON text of a value. `next` is Lua's own function.
pub(super) fn encode(value: &Value, settings: Settings, next: &Function, clock: &Clock) -> Answer<Vec<u8>> {
    let mut encoder = Encoder { settings, next, clock, output: Vec::new(), levels: Vec::new() };
    encoder.value(value)?;
    while let Some(level) = encoder.levels.pop() {
        clock.tick(encoder.output.len())?;
        encoder.step(level)?;
    }
    Ok(encoder.output)
}

/// A table that is being written.
enum Level {
    Array { table: Table, written: i64, length: i64 },
    Object { table: Table, key: Value },
}

struct Encoder<'a> {
    settings: Settings,
    next: &'a Function,
    clock: &'a Clock,
    output: Vec<u8>,
    levels: Vec<Level>,
}

impl Encoder<'_> {
    /// Writes a value; a table only begins here.
    fn value(&mut self, value: &Value) -> Answer<()> {
        match value {
            Value::Nil => self.output.extend(b"null"),
            null if *null == Value::NULL => self.output.extend(b"null"),
            Value::Boolean(true) => self.output.extend(b"true"),
            Value::Boolean(false) => self.output.extend(b"false"),
            Value::Integer(integer) => self.number(*integer as f64)?,
            Value::Number(number) => self.number(*number)?,
            Value::String(text) => write_string(&mut self.output, &text.as_bytes()),
            Value::Table(table) => self.begin(table)?,
            other => return Err(failure(format!("Cannot serialise {}: type not supported", kind(other)))),
        }
        Ok(())
    }

    fn number(&mut self, number: f64) -> Answer<()> {
        match self.settings.encode_invalid {
            Invalid::Refused if !number.is_finite() => {
                return Err(failure("Cannot serialise number: must not be NaN or Inf"));
            }
            Invalid::Null if !number.is_finite() => self.output.extend(b"null"),
            _ => write_number(&mut self.output, number, self.settings.precision),
        }
        Ok(())
    }

    fn begin(&mut self, table: &Table) -> Answer<()> {
        let depth = self.levels.len() + 1;
        if depth > DEEPEST.min(self.settings.encode_depth as usize) {
            return Err(failure(format!("Cannot serialise, excessive nesting ({depth})")));
        }
        let table = table.clone();
        self.levels.push(match self.array_length(&table)? {
            Some(length) => {
                self.output.push(b'[');
                Level::Array { table, written: 0, length }
            }
            None => {
                self.output.push(b'{');
                Level::Object { table, key: Value::Nil }
            }
        });
        Ok(())
    }

    /// The length of a table that is an array: all its keys are positive integers, and not too few for the
    /// highest.
    fn array_length(&self, table: &Table) -> Answer<Option<i64>> {
        let (mut length, mut count) = (0, 0);
        for pair in table.pairs::<Value, Value>() {
            match pair?.0 {
                Value::Integer(key) if (1..=i64::from(i32::MAX)).contains(&key) => length = length.max(key),
                _ => return Ok(None),
            }
            count += 1;
            self.clock.tick(0)?;
        }
        let Settings { sparse_convert, sparse_ratio, sparse_safe, .. } = self.settings;
        let longest = i64::from(sparse_safe).max(count * i64::from(sparse_ratio));
        if sparse_ratio > 0 && length > longest {
            if !sparse_convert {
                return Err(failure("Cannot serialise table: excessively sparse array"));
            }
            return Ok(None);
        }
        Ok((length > 0).then_some(length))
    }

    /// Writes the next element of a table, or its end.
    fn step(&mut self, level: Level) -> Answer<()> {
        match level {
            Level::Array { written, length, .. } if written == length => self.output.push(b']'),
            Level::Array { table, written, length } => {
                if written > 0 {
                    self.output.push(b',');
                }
                let element = table.raw_get::<Value>(written + 1)?;
                self.levels.push(Level::Array { table, written: written + 1, length });
                self.value(&element)?;
            }
            Level::Object { table, key } => {
                let is_first = key.is_nil();
                let (key, element) = self.next.call::<(Value, Value)>((&table, key))?;
                if key.is_nil() {
                    self.output.push(b'}');
                    return Ok(());
                }
                if !is_first {
                    self.output.push(b',');
                }
                self.key(&key)?;
                self.levels.push(Level::Object { table, key });
                self.value(&element)?;
            }
        }
        Ok(())
    }

    fn key(&mut self, key: &Value) -> Answer<()> {
        match key {
            Value::String(text) => write_string(&mut self.output, &text.as_bytes()),
            Value::Integer(_) | Value::Number(_) => {
                self.output.push(b'"');
                self.value(key)?;
                self.output.push(b'"');
            }
            other => {
                let kind = kind(other);
                return Err(failure(format!(
                    "Cannot serialise {kind}: table key must be a number or string"
                )));
            }
        }
        self.output.push(b':');
        Ok(())
    }
}

fn write_string(output: &mut Vec<u8>, text: &[u8]) {
    output.reserve(text.len() + 2);
    output.push(b'"');
    for &byte in text {
        match byte {
            b'"' | b'\\' | b'/' => output.extend([b'\\', byte]),
            b'\x08' => output.extend(b"\\b"),
            b'\x0c' => output.extend(b"\\f"),
            b'\n' => output.extend(b"\\n"),
            b'\r' => output.extend(b"\\r"),
            b'\t' => output.extend(b"\\t"),
            0..0x20 | 0x7f => {
                let digits = b"0123456789abcdef";
                let [high, low] = [byte >> 4, byte & 15].map(|digit| digits[usize::from(digit)]);
                output.extend([b'\\', b'u', b'0', b'0', high, low]);
            }
            _ => output.push(byte),
        }
    }
    output.push(b'"');
}

/// Writes a number as `%g` of C does with this many significant digits.
fn write_number(output: &mut Vec<u8>, number: f64, precision: i32) {
    if !number.is_finite() {
        let word = if number.is_nan() {
            "nan"
        } else if number > 0.0 {
            "inf"
        } else {
            "-inf"
        };
        return output.extend(word.bytes());
    }
    let is_short = number.fract() == 0.0 && number.abs() < 10_f64.powi(precision);
    if is_short && number.to_bits() != (-0.0_f64).to_bits() {
        return output.extend((number as i64).to_string().bytes());
    }
    let digits = precision as usize - 1;
    let text = format!("{number:.digits$e}");
    let (mantissa, exponent) = text.split_once('e').unwrap_or((&text, "0"));
    let exponent = exponent.parse::<i32>().unwrap_or(0);
    if (-4..precision).contains(&exponent) {
        let decimals = (precision - 1 - exponent) as usize;
        return output.extend(shortest(&format!("{number:.decimals$}")).bytes());
    }
    let sign = if exponent < 0 { '-' } else { '+' };
    output.extend(format!("{}e{sign}{:02}", shortest(mantissa), exponent.abs()).bytes());
}

/// A decimal number without the zeros at its end.
fn shortest(number: &str) -> &str {
    if number.contains('.') { number.trim_end_matches('0').trim_end_matches('.') } else { number }
}

#[cfg(test)]
mod tests {
    use super::super::super::tests::{call, state};
    use super::write_number;
    use proptest::prelude::*;

    fn numbers() -> impl Strategy<Value = f64> {
        let near = (-20_000..20_000_i32, -6..3_i32);
        prop_oneof![
            any::<f64>().prop_filter("not a NaN", |number| !number.is_nan()),
            any::<i64>().prop_map(|number| number as f64),
            near.prop_map(|(number, scale)| f64::from(number) * 10_f64.powi(scale)),
        ]
    }

    proptest! {
        #[test]
        fn numbers_are_written_as_lua_writes_them(number in numbers(), precision in 1..=14_i32) {
            let expected = call::<String>(&state(), &format!("('%.{precision}g'):format(...)"), number);
            let mut output = Vec::new();
            write_number(&mut output, number, precision);
            prop_assert_eq!(String::from_utf8(output).unwrap(), expected);
        }
    }
}
