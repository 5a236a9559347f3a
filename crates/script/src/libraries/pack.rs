//! The library `struct`: numbers and strings in the binary forms of C, as Redis's lua_struct writes and reads
//! them.

use super::call::{Answer, Call, Clock, MOST_VALUES, add, failure};
use crate::number::whole;
use mlua::{Lua, Table, Value};

/// The most bytes of an integer.
const LARGEST: usize = 32;

/// The alignment that `!` alone means.
const ALIGNMENT: usize = 8;

pub(super) fn library(lua: &Lua, clock: &Clock) -> mlua::Result<Table> {
    let library = lua.create_table()?;
    let ticker = clock.clone();
    add(lua, &library, "pack", move |call| pack(call, &ticker))?;
    let ticker = clock.clone();
    add(lua, &library, "unpack", move |call| unpack(call, &ticker))?;
    let ticker = clock.clone();
    add(lua, &library, "size", move |call| size(call, &ticker))?;
    Ok(library)
}

/// One option of a format.
struct Field {
    letter: u8,
    size: usize,
    /// The zeros in front, which bring the field to its alignment.
    padding: usize,
}

/// A format that is being read, up to its first zero byte.
struct Format<'a> {
    rest: &'a [u8],
    is_big_endian: bool,
    alignment: usize,
}

impl<'a> Format<'a> {
    fn new(text: &'a [u8]) -> Self {
        let rest = text.split(|byte| *byte == 0).next().unwrap_or_default();
        Self { rest, is_big_endian: false, alignment: 1 }
    }

    /// The next option, for data of this number of bytes.
    fn next(&mut self, position: usize) -> Answer<Option<Field>> {
        let Some((&letter, rest)) = self.rest.split_first() else { return Ok(None) };
        self.rest = rest;
        let size = match letter {
            b'b' | b'B' | b'x' => 1,
            b'h' | b'H' => 2,
            b'l' | b'L' | b'T' | b'd' => 8,
            b'f' => 4,
            b'c' => self.count(1)?,
            b'i' | b'I' => self.count(4)?,
            _ => 0,
        };
        if matches!(letter, b'i' | b'I') && size > LARGEST {
            return Err(failure(format!("integral size {size} is larger than limit of {LARGEST}")));
        }
        let aligned = if letter == b'c' { 0 } else { size.min(self.alignment) };
        let mask = aligned.saturating_sub(1);
        let padding = aligned.wrapping_sub(position & mask) & mask;
        Ok(Some(Field { letter, size, padding }))
    }

    /// The number that comes next, or the usual one.
    fn count(&mut self, usual: i32) -> Answer<usize> {
        let digits = self.rest.iter().take_while(|byte| byte.is_ascii_digit()).count();
        let (number, rest) = self.rest.split_at(digits);
        self.rest = rest;
        if digits == 0 {
            return Ok(usual as usize);
        }
        let mut count = 0_i32;
        for digit in number {
            let sum = count.checked_mul(10).and_then(|count| count.checked_add((digit - b'0').into()));
            count = sum.ok_or_else(|| failure("integral size overflow"))?;
        }
        Ok(count as usize)
    }

    /// Follows an option that stands for no data.
    fn control(&mut self, letter: u8, call: &Call) -> Answer<()> {
        match letter {
            b' ' => {}
            b'<' => self.is_big_endian = false,
            b'>' => self.is_big_endian = true,
            b'!' => {
                let alignment = self.count(ALIGNMENT as i32)?;
                if !alignment.is_power_of_two() {
                    return Err(failure(format!("alignment {alignment} is not a power of 2")));
                }
                self.alignment = alignment;
            }
            other => return Err(call.bad(1, [b"invalid format option '", &[other][..], b"'"].concat())),
        }
        Ok(())
    }

    /// Writes bytes of which the lowest comes first, in the order of the format.
    fn write(&self, output: &mut Vec<u8>, bytes: &[u8]) {
        let start = output.len();
        output.extend(bytes);
        if self.is_big_endian {
            output[start..].reverse();
        }
    }

    /// The lowest eight bytes of a field.
    fn read(&self, field: &[u8]) -> u64 {
        let add = |sum: u64, byte: &u8| sum << 8 | u64::from(*byte);
        if self.is_big_endian { field.iter().fold(0, add) } else { field.iter().rev().fold(0, add) }
    }
}

fn pack(call: &Call, clock: &Clock) -> Answer<Vec<Value>> {
    let text = call.text(1)?;
    let text = text.as_bytes();
    let mut format = Format::new(&text);
    let mut output = Vec::new();
    let mut index = 2;
    while let Some(Field { letter, size, padding }) = format.next(output.len())? {
        clock.tick(output.len())?;
        output.resize(output.len() + padding, 0);
        match letter {
            b'b' | b'B' | b'h' | b'H' | b'l' | b'L' | b'T' | b'i' | b'I' => {
                let mut bytes = [0; LARGEST];
                bytes[..8].copy_from_slice(&integer(number(call, index)?).to_le_bytes());
                format.write(&mut output, &bytes[..size]);
            }
            b'f' => format.write(&mut output, &(number(call, index)? as f32).to_le_bytes()),
            b'd' => format.write(&mut output, &number(call, index)?.to_le_bytes()),
            b's' | b'c' => {
                present(call, index, "string")?;
                let text = call.text(index)?;
                let text = text.as_bytes();
                let size = if size == 0 { text.len() } else { size };
                let Some(part) = text.get(..size) else {
                    return Err(call.bad(index + 1, "string too short"));
                };
                output.extend(part);
                output.extend((letter == b's').then_some(0));
            }
            b'x' => output.push(0),
            other => format.control(other, call)?,
        }
        index += usize::from(letter.is_ascii_alphabetic() && letter != b'x');
    }
    Ok(vec![Value::String(call.lua.create_string(output)?)])
}

/// The check that an argument of `pack` is there. The one behind the last is nil, as lua_struct puts one
/// there.
fn present(call: &Call, index: usize, wanted: &str) -> Answer<()> {
    if index > call.arguments.len() {
        return Err(call.bad(index, format!("{wanted} expected, got nil")));
    }
    Ok(())
}

fn number(call: &Call, index: usize) -> Answer<f64> {
    present(call, index, "number")?;
    call.number(index)
}

/// The 64 bits of a number's integer part, as C's conversions on x86-64 have them for numbers out of range
/// too.
fn integer(number: f64) -> u64 {
    const END: f64 = 18_446_744_073_709_551_616.0;
    if number >= END {
        0
    } else if number >= END / 2.0 {
        number as u64
    } else {
        whole(number).cast_unsigned()
    }
}

fn unpack(call: &Call, clock: &Clock) -> Answer<Vec<Value>> {
    let (text, data) = (call.text(1)?, call.text(2)?);
    let (text, data) = (text.as_bytes(), data.as_bytes());
    let start = if call.is_absent(3) { 1 } else { call.integer(3)? };
    if start == 0 {
        return Err(call.bad(3, "offset must be 1 or greater"));
    }
    let mut position = start.wrapping_sub(1).cast_unsigned() as usize;
    let mut format = Format::new(&text);
    let mut results = Vec::new();
    while let Some(Field { letter, mut size, padding }) = format.next(position)? {
        clock.tick(0)?;
        position = position.saturating_add(padding);
        let rest = data.get(position..).unwrap_or_default();
        let too_short = || call.bad(2, "data string too short");
        let field = rest.get(..size).filter(|_| position <= data.len()).ok_or_else(too_short)?;
        if results.len() + 1 >= MOST_VALUES {
            return Err(failure("stack overflow (too many results)"));
        }
        match letter {
            b'b' | b'h' | b'l' | b'i' => results.push(Value::Number(signed(format.read(field), size))),
            b'B' | b'H' | b'L' | b'T' | b'I' => results.push(Value::Number(format.read(field) as f64)),
            b'f' => results.push(Value::Number(f32::from_bits(format.read(field) as u32).into())),
            b'd' => results.push(Value::Number(f64::from_bits(format.read(field)))),
            b'c' => {
                if size == 0 {
                    let previous =
                        results.pop().map(|value| call.lua.coerce_number(value)).transpose()?.flatten();
                    let previous = previous.ok_or_else(|| failure("format 'c0' needs a previous size"))?;
                    size = integer(previous) as usize;
                }
                let field = rest.get(..size).ok_or_else(too_short)?;
                results.push(Value::String(call.lua.create_string(field)?));
            }
            b's' => {
                let end = rest.iter().position(|byte| *byte == 0);
                let end = end.ok_or_else(|| failure("unfinished string in data"))?;
                results.push(Value::String(call.lua.create_string(&rest[..end])?));
                size = end + 1;
            }
            b'x' => {}
            other => format.control(other, call)?,
        }
        position += size;
    }
    results.push(Value::Number(position as f64 + 1.0));
    Ok(results)
}

/// A signed integer of `size` bytes; those from 9 to 15 bytes have their sign where lua_struct looks for it.
fn signed(bits: u64, size: usize) -> f64 {
    let mask = u64::MAX.wrapping_shl((size as u32).wrapping_mul(8).wrapping_sub(1));
    let bits = if bits & mask == 0 { bits } else { bits | mask };
    bits.cast_signed() as f64
}

fn size(call: &Call, clock: &Clock) -> Answer<Vec<Value>> {
    let text = call.text(1)?;
    let text = text.as_bytes();
    let mut format = Format::new(&text);
    let mut total = 0;
    while let Some(Field { letter, size, padding }) = format.next(total)? {
        clock.tick(0)?;
        total += padding + size;
        match letter {
            b's' => return Err(call.bad(1, "option 's' has no fixed size")),
            b'c' if size == 0 => return Err(call.bad(1, "option 'c0' has no fixed size")),
            letter if letter.is_ascii_alphanumeric() => {}
            other => format.control(other, call)?,
        }
    }
    Ok(vec![Value::Number(total as f64)])
}

#[cfg(test)]
mod tests {
    use super::super::tests::{call, check, state};
    use mlua::Value;
    use proptest::prelude::*;

    #[test]
    fn the_answers_are_valkeys() {
        check(include_str!("examples/struct.txt"));
    }

    proptest! {
        #[test]
        fn integers_come_back(number: i32, big: bool, align in 0..5_u32) {
            let format = format!("{}!{}bi5", if big { '>' } else { '<' }, 1 << align);
            let expression = "select(2, struct.unpack((...), struct.pack((...), 1, (select(2, ...)))))";
            prop_assert_eq!(call::<i32>(&state(), expression, (format, number)), number);
        }

        #[test]
        fn any_format_and_bytes_have_an_answer(format in "[bBhHlLiIscfdxT<>! 0-9]{0,12}", bytes: Vec<u8>) {
            let lua = state();
            let text = lua.create_string(&bytes).unwrap();
            for name in ["unpack", "pack"] {
                let expression = format!("select(2, pcall(struct.{name}, ...))");
                let result = call::<Value>(&lua, &expression, (format.clone(), text.clone(), 3));
                prop_assert!(!matches!(result, Value::Error(_)));
            }
        }
    }
}
