//! The library `bit`: operations on the bits of 32-bit integers, as LuaBitOp has them.

use super::call::{Answer, Call, add};
use mlua::{Lua, Table, Value};

/// The number that, added to another, leaves that one's integer part modulo 2^32 in the lowest bits.
const ROUNDING: f64 = 6_755_399_441_055_744.0;

pub(super) fn library(lua: &Lua) -> mlua::Result<Table> {
    let library = lua.create_table()?;
    unary(lua, &library, "tobit", |bits| bits)?;
    unary(lua, &library, "bnot", |bits| !bits)?;
    unary(lua, &library, "bswap", u32::swap_bytes)?;
    fold(lua, &library, "band", |left, right| left & right)?;
    fold(lua, &library, "bor", |left, right| left | right)?;
    fold(lua, &library, "bxor", |left, right| left ^ right)?;
    shift(lua, &library, "lshift", u32::wrapping_shl)?;
    shift(lua, &library, "rshift", u32::wrapping_shr)?;
    shift(lua, &library, "arshift", |bits, count| bits.cast_signed().wrapping_shr(count).cast_unsigned())?;
    shift(lua, &library, "rol", |bits, count| bits.rotate_left(count % 32))?;
    shift(lua, &library, "ror", |bits, count| bits.rotate_right(count % 32))?;
    add(lua, &library, "tohex", to_hex)?;
    Ok(library)
}

/// The argument's bits: the number rounded to an integer, modulo 2^32.
fn bits(call: &Call, index: usize) -> Answer<u32> {
    Ok((call.number(index)? + ROUNDING).to_bits() as u32)
}

fn signed(bits: u32) -> Vec<Value> {
    vec![Value::Integer(bits.cast_signed().into())]
}

fn unary(lua: &Lua, library: &Table, name: &'static str, operation: fn(u32) -> u32) -> mlua::Result<()> {
    add(lua, library, name, move |call| Ok(signed(operation(bits(call, 1)?))))
}

fn fold(lua: &Lua, library: &Table, name: &'static str, operation: fn(u32, u32) -> u32) -> mlua::Result<()> {
    add(lua, library, name, move |call| {
        let mut result = bits(call, 1)?;
        for index in 2..=call.arguments.len() {
            result = operation(result, bits(call, index)?);
        }
        Ok(signed(result))
    })
}

fn shift(lua: &Lua, library: &Table, name: &'static str, operation: fn(u32, u32) -> u32) -> mlua::Result<()> {
    add(lua, library, name, move |call| Ok(signed(operation(bits(call, 1)?, bits(call, 2)?))))
}

/// The digits in base 16: the lowest eight, or as many as the second argument says; if that is negative, in
/// upper case.
fn to_hex(call: &Call) -> Answer<Vec<Value>> {
    let number = bits(call, 1)?;
    let wanted = if call.arguments.len() < 2 { 8 } else { bits(call, 2)?.cast_signed() };
    let digits = if wanted < 0 { format!("{number:08X}") } else { format!("{number:08x}") };
    let skipped = 8 - wanted.unsigned_abs().min(8) as usize;
    Ok(vec![Value::String(call.lua.create_string(&digits[skipped..])?)])
}

#[cfg(test)]
mod tests {
    use super::super::tests::check;

    /// Expressions and Valkey's answers.
    const EXAMPLES: &str = include_str!("examples/bit.txt");

    #[test]
    fn the_answers_are_valkeys() {
        check(EXAMPLES);
    }
}
