//! The library `cmsgpack`: MessagePack from Lua values and back, as lua-cmsgpack does it.

use super::call::{Answer, Call, Clock, DEEPEST, Failure, MOST_VALUES, add, failure};
use mlua::{Lua, Table, Value};
use rmp::Marker;
use rmp::decode::RmpRead;
use rmp::encode;

/// The levels of tables that are packed; deeper ones are nil.
const NESTING: usize = 16;

pub(super) fn library(lua: &Lua, clock: &Clock) -> mlua::Result<Table> {
    let library = lua.create_table()?;
    library.raw_set("_NAME", "cmsgpack")?;
    library.raw_set("_VERSION", "lua-cmsgpack 0.4.0")?;
    library.raw_set("_COPYRIGHT", "Copyright (C) 2012, Redis Ltd.")?;
    library.raw_set("_DESCRIPTION", "MessagePack C implementation for Lua")?;
    let ticker = clock.clone();
    add(lua, &library, "pack", move |call| {
        if call.arguments.is_empty() {
            return Err(call.bad(0, "MessagePack pack needs input."));
        }
        let mut packer = Packer { clock: &ticker, output: Vec::new() };
        for value in &call.arguments {
            packer.value(value, 0)?;
        }
        Ok(vec![Value::String(call.lua.create_string(packer.output)?)])
    })?;
    let ticker = clock.clone();
    add(lua, &library, "unpack", move |call| unpack(call, &ticker, 0, 0))?;
    let ticker = clock.clone();
    add(lua, &library, "unpack_one", move |call| {
        let offset = if call.is_absent(2) { 0 } else { call.integer(2)? };
        unpack(call, &ticker, 1, offset)
    })?;
    let ticker = clock.clone();
    add(lua, &library, "unpack_limit", move |call| {
        let limit = call.integer(2)?;
        let offset = if call.is_absent(3) { 0 } else { call.integer(3)? };
        unpack(call, &ticker, limit, offset)
    })?;
    Ok(library)
}

struct Packer<'a> {
    clock: &'a Clock,
    output: Vec<u8>,
}

impl Packer<'_> {
    fn value(&mut self, value: &Value, level: usize) -> Answer<()> {
        self.clock.tick(self.output.len())?;
        let output = &mut self.output;
        match value {
            Value::Boolean(boolean) => encode::write_bool(output, *boolean).map_err(unwritten)?,
            Value::Integer(integer) => write_integer(output, *integer)?,
            Value::Number(number) => write_number(output, *number)?,
            Value::String(text) => {
                let text = text.as_bytes();
                encode::write_str_len(output, length(text.len())?).map_err(unwritten)?;
                output.extend_from_slice(&text);
            }
            Value::Table(table) if level < NESTING => self.table(table, level + 1)?,
            _ => encode::write_nil(output).map_err(unwritten)?,
        }
        Ok(())
    }

    fn table(&mut self, table: &Table, level: usize) -> Answer<()> {
        let (count, is_array) = self.shape(table)?;
        let announced = length(count as usize)?;
        if is_array {
            encode::write_array_len(&mut self.output, announced).map_err(unwritten)?;
            for index in 1..=count {
                self.value(&table.raw_get::<Value>(index)?, level)?;
            }
            return Ok(());
        }
        encode::write_map_len(&mut self.output, announced).map_err(unwritten)?;
        for pair in table.pairs::<Value, Value>() {
            let (key, value) = pair?;
            self.value(&key, level)?;
            self.value(&value, level)?;
        }
        Ok(())
    }

    /// The number of a table's elements, and whether their keys are the integers from 1.
    fn shape(&self, table: &Table) -> Answer<(i64, bool)> {
        let (mut count, mut highest, mut is_array) = (0, 0, true);
        for pair in table.pairs::<Value, Value>() {
            match pair?.0 {
                Value::Integer(key) if key > 0 => highest = highest.max(key),
                _ => is_array = false,
            }
            count += 1;
            self.clock.tick(0)?;
        }
        Ok((count, is_array && highest == count))
    }
}

/// A whole number in the smallest form. 2^63, which mlua's integers do not have, is no whole number here.
fn write_integer(output: &mut Vec<u8>, integer: i64) -> Answer<()> {
    encode::write_sint(output, integer).map(drop).map_err(unwritten)
}

fn write_number(output: &mut Vec<u8>, number: f64) -> Answer<()> {
    let short = number as f32;
    if number == 0.0 {
        write_integer(output, 0)
    } else if f64::from(short) == number {
        encode::write_f32(output, short).map_err(unwritten)
    } else {
        encode::write_f64(output, number).map_err(unwritten)
    }
}

fn length(count: usize) -> Answer<u32> {
    u32::try_from(count).map_err(|_| failure("result too long"))
}

/// The failure of a writer, which a vector in memory does not have.
fn unwritten<E>(_: E) -> Failure {
    failure("result too long")
}

/// The values from the offset on: as many as the limit says, or all, if both are 0. If not all are asked for,
/// the first result is the offset behind them, or -1 at the end.
fn unpack(call: &Call, clock: &Clock, limit: i64, offset: i64) -> Answer<Vec<Value>> {
    let text = call.text(1)?;
    let text = text.as_bytes();
    let size = text.len();
    let shown = offset as i32;
    if limit < 0 || offset < 0 {
        let message = format!("Invalid request to unpack with offset of {shown} and limit of {size}.");
        return Err(failure(message));
    }
    let Some(input) = text.get(offset as usize..) else {
        return Err(failure(format!("Start offset {shown} greater than input length {size}.")));
    };
    let is_all = limit == 0 && offset == 0;
    let mut unpacker = Unpacker { lua: call.lua, clock, input };
    let mut results = if is_all { Vec::new() } else { vec![Value::Nil] };
    let mut left = limit;
    while !unpacker.input.is_empty() && (is_all || left > 0) {
        if results.len() >= MOST_VALUES {
            let reason = "too many return values at once; use unpack_one or unpack_limit instead.";
            return Err(failure(format!("stack overflow ({reason})")));
        }
        results.push(unpacker.value()?);
        left -= 1;
    }
    if let (false, Some(first)) = (is_all, results.first_mut()) {
        let rest = unpacker.input.len();
        *first = Value::Integer(if rest == 0 { -1 } else { (size - rest) as i64 });
    }
    Ok(results)
}

/// A table that is being read. No memory is taken for what is only announced.
struct Level {
    table: Table,
    /// The elements still to come; of a map, keys and values count each.
    left: u64,
    /// The elements so far; none in a map.
    index: Option<i64>,
    key: Option<Value>,
}

impl Level {
    fn put(&mut self, value: Value) -> Answer<()> {
        self.left -= 1;
        if let Some(index) = &mut self.index {
            *index += 1;
            self.table.raw_set(*index, value)?;
            return Ok(());
        }
        match self.key.take() {
            None => self.key = Some(value),
            Some(Value::Nil) => return Err(failure("table index is nil")),
            Some(Value::Number(number)) if number.is_nan() => return Err(failure("table index is NaN")),
            Some(key) => self.table.raw_set(key, value)?,
        }
        Ok(())
    }
}

enum Item {
    Value(Value),
    Array(u32),
    Map(u32),
}

struct Unpacker<'a> {
    lua: &'a Lua,
    clock: &'a Clock,
    input: &'a [u8],
}

impl<'a> Unpacker<'a> {
    /// The next value, read without recursion.
    fn value(&mut self) -> Answer<Value> {
        let mut levels = Vec::<Level>::new();
        loop {
            self.clock.tick(0)?;
            let (left, index) = match self.item()? {
                Item::Value(value) => match place(&mut levels, value)? {
                    Some(value) => return Ok(value),
                    None => continue,
                },
                Item::Array(count) => (count.into(), Some(0)),
                Item::Map(count) => (2 * u64::from(count), None),
            };
            if levels.len() >= DEEPEST {
                return Err(failure("stack overflow (in function mp_decode_to_lua)"));
            }
            let table = self.lua.create_table()?;
            if left > 0 {
                levels.push(Level { table, left, index, key: None });
            } else if let Some(value) = place(&mut levels, Value::Table(table))? {
                return Ok(value);
            }
        }
    }

    fn item(&mut self) -> Answer<Item> {
        let marker = self.input.read_u8().map_err(missing)?;
        let number = match Marker::from_u8(marker) {
            Marker::Null => return Ok(Item::Value(Value::Nil)),
            Marker::True => return Ok(Item::Value(Value::Boolean(true))),
            Marker::False => return Ok(Item::Value(Value::Boolean(false))),
            Marker::FixPos(number) => number.into(),
            Marker::FixNeg(number) => number.into(),
            Marker::U8 => self.input.read_u8().map_err(missing)?.into(),
            Marker::U16 => self.input.read_data_u16().map_err(missing)?.into(),
            Marker::U32 => self.input.read_data_u32().map_err(missing)?.into(),
            Marker::U64 | Marker::I64 => self.input.read_data_i64().map_err(missing)? as f64,
            Marker::I8 => self.input.read_data_i8().map_err(missing)?.into(),
            Marker::I16 => self.input.read_data_i16().map_err(missing)?.into(),
            Marker::I32 => self.input.read_data_i32().map_err(missing)?.into(),
            Marker::F32 => self.input.read_data_f32().map_err(missing)?.into(),
            Marker::F64 => self.input.read_data_f64().map_err(missing)?,
            Marker::FixStr(size) => return self.string(size.into()),
            Marker::Str8 => {
                return self.input.read_u8().map_err(missing).and_then(|size| self.string(size.into()));
            }
            Marker::Str16 => return self.size16().and_then(|size| self.string(size)),
            Marker::Str32 => return self.size32().and_then(|size| self.string(size)),
            Marker::FixArray(count) => return Ok(Item::Array(count.into())),
            Marker::Array16 => return self.size16().map(Item::Array),
            Marker::Array32 => return self.size32().map(Item::Array),
            Marker::FixMap(count) => return Ok(Item::Map(count.into())),
            Marker::Map16 => return self.size16().map(Item::Map),
            Marker::Map32 => return self.size32().map(Item::Map),
            _ => return Err(failure("Bad data format in input.")),
        };
        Ok(Item::Value(Value::Number(number)))
    }

    fn size16(&mut self) -> Answer<u32> {
        self.input.read_data_u16().map(u32::from).map_err(missing)
    }

    fn size32(&mut self) -> Answer<u32> {
        self.input.read_data_u32().map_err(missing)
    }

    fn string(&mut self, size: u32) -> Answer<Item> {
        let (text, rest) = self.input.split_at_checked(size as usize).ok_or_else(|| missing(()))?;
        self.input = rest;
        Ok(Item::Value(Value::String(self.lua.create_string(text)?)))
    }
}

/// Puts a complete value where it belongs, and each table that is complete with it. The outermost one comes
/// back.
fn place(levels: &mut Vec<Level>, mut value: Value) -> Answer<Option<Value>> {
    while let Some(mut level) = levels.pop() {
        level.put(value)?;
        if level.left > 0 {
            levels.push(level);
            return Ok(None);
        }
        value = Value::Table(level.table);
    }
    Ok(Some(value))
}

fn missing<E>(_: E) -> Failure {
    failure("Missing bytes in input.")
}

#[cfg(test)]
mod tests {
    use super::super::tests::{call, check, state};
    use mlua::Value;
    use proptest::prelude::*;

    #[test]
    fn the_answers_are_valkeys() {
        check(include_str!("examples/msgpack.txt"));
    }

    proptest! {
        #[test]
        fn numbers_come_back(number: f64) {
            let back = call::<f64>(&state(), "cmsgpack.unpack(cmsgpack.pack(...))", number);
            prop_assert!(back == number || number.is_nan());
        }

        #[test]
        fn tables_come_back(table: std::collections::BTreeMap<String, Vec<i32>>) {
            let lua = state();
            let back = call(&lua, "cmsgpack.unpack(cmsgpack.pack(...))", table.clone());
            prop_assert_eq!(table, back);
        }

        #[test]
        fn any_bytes_have_an_answer(bytes: Vec<u8>) {
            let lua = state();
            let text = lua.create_string(&bytes).unwrap();
            let result = call::<Value>(&lua, "select(2, pcall(cmsgpack.unpack, ...))", text);
            prop_assert!(!matches!(result, Value::Error(_)));
        }
    }
}
