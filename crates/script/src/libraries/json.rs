//! The library `cjson`: JSON texts from Lua values and back, as lua-cjson does it.

mod decode;
mod encode;
mod scan;

use super::call::{Answer, Call, Clock, add};
use mlua::{Function, Lua, Table, Value};
use std::cell::Cell;
use std::ops::RangeInclusive;
use std::rc::Rc;

/// What a script can set on one instance of the library.
#[derive(Clone, Copy)]
struct Settings {
    /// Whether excessively sparse arrays become objects instead of a failure.
    sparse_convert: bool,
    /// How many times its elements an array's length may be; 0 is without limit.
    sparse_ratio: i32,
    /// The length up to which no array is excessively sparse.
    sparse_safe: i32,
    encode_depth: i32,
    decode_depth: i32,
    /// The significant digits of a number.
    precision: i32,
    /// Without effect here: no buffer outlives its call.
    keep_buffer: bool,
    encode_invalid: Invalid,
    decode_invalid: Invalid,
}

/// What happens to numbers that JSON cannot have.
#[derive(Clone, Copy, Debug, PartialEq)]
enum Invalid {
    Refused,
    Allowed,
    Null,
}

impl Default for Settings {
    fn default() -> Self {
        Self {
            sparse_convert: false,
            sparse_ratio: 2,
            sparse_safe: 10,
            encode_depth: 1000,
            decode_depth: 1000,
            precision: 14,
            keep_buffer: true,
            encode_invalid: Invalid::Refused,
            decode_invalid: Invalid::Allowed,
        }
    }
}

pub(super) fn library(lua: &Lua, clock: &Clock) -> mlua::Result<Table> {
    let next = lua.globals().raw_get::<Function>("next")?;
    instance(lua, clock, &next)
}

/// An instance of the library, with its own settings.
fn instance(lua: &Lua, clock: &Clock, next: &Function) -> mlua::Result<Table> {
    let library = lua.create_table()?;
    library.raw_set("_NAME", "cjson")?;
    library.raw_set("_VERSION", "2.1.0")?;
    library.raw_set("null", Value::NULL)?;
    let settings = Rc::new(Cell::new(Settings::default()));
    for (name, change) in CHANGES {
        let settings = settings.clone();
        add(lua, &library, name, move |call| {
            let mut changed = settings.get();
            let result = change(call, &mut changed);
            settings.set(changed);
            result
        })?;
    }
    let (encoded, ticker, walk) = (settings.clone(), clock.clone(), next.clone());
    add(lua, &library, "encode", move |call| {
        only_one(call)?;
        let value = call.argument(1).unwrap_or(&Value::Nil);
        let text = encode::encode(value, encoded.get(), &walk, &ticker)?;
        Ok(vec![Value::String(call.lua.create_string(text)?)])
    })?;
    let ticker = clock.clone();
    add(lua, &library, "decode", move |call| {
        only_one(call)?;
        let text = call.text(1)?;
        Ok(vec![decode::decode(call.lua, &text.as_bytes(), settings.get(), &ticker)?])
    })?;
    let (ticker, walk) = (clock.clone(), next.clone());
    add(lua, &library, "new", move |call| Ok(vec![Value::Table(instance(call.lua, &ticker, &walk)?)]))?;
    Ok(library)
}

fn only_one(call: &Call) -> Answer<()> {
    if call.arguments.len() == 1 { Ok(()) } else { Err(call.bad(1, "expected 1 argument")) }
}

/// A function that changes settings where it has arguments, and returns how they are then.
type Change = fn(&Call, &mut Settings) -> Answer<Vec<Value>>;

const CHANGES: [(&str, Change); 7] = [
    ("encode_sparse_array", |call, settings| {
        at_most(call, 3)?;
        switch(call, &mut settings.sparse_convert)?;
        integer(call, 2, &mut settings.sparse_ratio, 0..=i32::MAX)?;
        integer(call, 3, &mut settings.sparse_safe, 0..=i32::MAX)?;
        let numbers =
            [settings.sparse_ratio, settings.sparse_safe].map(|number| Value::Integer(number.into()));
        Ok([Value::Boolean(settings.sparse_convert)].into_iter().chain(numbers).collect())
    }),
    ("encode_max_depth", |call, settings| limit(call, &mut settings.encode_depth, i32::MAX)),
    ("decode_max_depth", |call, settings| limit(call, &mut settings.decode_depth, i32::MAX)),
    ("encode_number_precision", |call, settings| limit(call, &mut settings.precision, 14)),
    ("encode_keep_buffer", |call, settings| {
        at_most(call, 1)?;
        switch(call, &mut settings.keep_buffer)?;
        Ok(vec![Value::Boolean(settings.keep_buffer)])
    }),
    ("encode_invalid_numbers", |call, settings| invalid(call, &mut settings.encode_invalid, true)),
    ("decode_invalid_numbers", |call, settings| invalid(call, &mut settings.decode_invalid, false)),
];

fn at_most(call: &Call, count: usize) -> Answer<()> {
    if call.arguments.len() <= count {
        return Ok(());
    }
    Err(call.bad(count + 1, "found too many arguments"))
}

/// Sets an integer where the argument is there. A failure of its range names argument 1 whichever it is, as
/// lua-cjson's does.
fn integer(call: &Call, index: usize, setting: &mut i32, range: RangeInclusive<i32>) -> Answer<()> {
    if !call.is_absent(index) {
        let number = call.integer(index)? as i32;
        if !range.contains(&number) {
            let reason = format!("expected integer between {} and {}", range.start(), range.end());
            return Err(call.bad(1, reason));
        }
        *setting = number;
    }
    Ok(())
}

/// The change of a setting that is an integer from 1.
fn limit(call: &Call, setting: &mut i32, most: i32) -> Answer<Vec<Value>> {
    at_most(call, 1)?;
    integer(call, 1, setting, 1..=most)?;
    Ok(vec![Value::Integer((*setting).into())])
}

/// Sets what is on or off where the first argument is there.
fn switch(call: &Call, setting: &mut bool) -> Answer<()> {
    let mut state = if *setting { Invalid::Allowed } else { Invalid::Refused };
    choose(call, &mut state, false)?;
    *setting = state == Invalid::Allowed;
    Ok(())
}

fn choose(call: &Call, setting: &mut Invalid, has_null: bool) -> Answer<()> {
    match call.argument(1) {
        None | Some(Value::Nil) => {}
        Some(Value::Boolean(true)) => *setting = Invalid::Allowed,
        Some(Value::Boolean(false)) => *setting = Invalid::Refused,
        _ => {
            let text = call.text(1)?;
            *setting = match &*text.as_bytes() {
                b"off" => Invalid::Refused,
                b"on" => Invalid::Allowed,
                b"null" if has_null => Invalid::Null,
                other => return Err(call.bad(1, [b"invalid option '", other, b"'"].concat())),
            };
        }
    }
    Ok(())
}

/// The change of what happens to invalid numbers.
fn invalid(call: &Call, setting: &mut Invalid, has_null: bool) -> Answer<Vec<Value>> {
    at_most(call, 1)?;
    choose(call, setting, has_null)?;
    let state = match setting {
        Invalid::Null => Value::String(call.lua.create_string("null")?),
        state => Value::Boolean(*state == Invalid::Allowed),
    };
    Ok(vec![state])
}

#[cfg(test)]
mod tests {
    use super::super::tests::{check, state};
    use mlua::{Function, LuaString, Value};
    use proptest::prelude::*;

    #[test]
    fn the_answers_are_valkeys() {
        check(include_str!("examples/json.txt"));
    }

    #[test]
    fn the_settings_are_valkeys() {
        check(include_str!("examples/settings.txt"));
    }

    proptest! {
        #[test]
        fn strings_come_back(bytes: Vec<u8>) {
            let lua = state();
            let same = lua.load("return function(text) return cjson.decode(cjson.encode(text)) end");
            let same = same.eval::<Function>().unwrap();
            let back = same.call::<LuaString>(lua.create_string(&bytes).unwrap()).unwrap();
            prop_assert_eq!(&*back.as_bytes(), bytes.as_slice());
        }

        #[test]
        fn texts_come_back(text in json(5)) {
            let lua = state();
            let twice = "return function(text)
                local once = cjson.encode(cjson.decode(text))
                return once, cjson.encode(cjson.decode(once))
            end";
            let twice = lua.load(twice).eval::<Function>().unwrap();
            let (once, again) = twice.call::<(String, String)>(text).unwrap();
            prop_assert_eq!(once.len(), again.len());
        }

        #[test]
        fn any_bytes_have_an_answer(bytes in any_text()) {
            let lua = state();
            let decode = lua.load("return function(text) return pcall(cjson.decode, text) end");
            let decode = decode.eval::<Function>().unwrap();
            let (_, result) = decode.call::<(bool, Value)>(lua.create_string(&bytes).unwrap()).unwrap();
            prop_assert!(!matches!(result, Value::Error(_)));
        }
    }

    fn any_text() -> impl Strategy<Value = Vec<u8>> {
        let near = proptest::sample::select(b"[]{},:\"\\\\ue+-.0189aint \x00\xff".to_vec());
        prop_oneof![proptest::collection::vec(near, 0..40), any::<Vec<u8>>()]
    }

    fn json(depth: u32) -> impl Strategy<Value = String> {
        let leaf =
            prop_oneof!["true|false|null|\"[a-z]{0,5}\"", any::<i32>().prop_map(|number| number.to_string())];
        leaf.prop_recursive(depth, 64, 8, |inner| {
            let item = inner.clone();
            let list =
                |items: Vec<String>, [open, close]: [char; 2]| format!("{open}{}{close}", items.join(","));
            prop_oneof![
                proptest::collection::vec(item, 0..8).prop_map(move |items| list(items, ['[', ']'])),
                proptest::collection::btree_map("[a-z]{1,4}", inner, 0..8).prop_map(move |entries| {
                    let entries = entries.into_iter().map(|(key, value)| format!("\"{key}\":{value}"));
                    list(entries.collect(), ['{', '}'])
                }),
            ]
        })
    }
}
