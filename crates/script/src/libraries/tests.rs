//! What the tests of the libraries share, and the tests of their bounds.

use super::call::MOST_VALUES;
use super::{Pulse, native};
use mlua::{FromLua, Function, IntoLuaMulti, Lua, Table, Value};
use std::rc::Rc;

/// A pulse that is over from the start, or never.
struct Still(bool);

impl Pulse for Still {
    fn bytes_max(&self) -> usize {
        8 << 20
    }

    fn is_over(&self) -> bool {
        self.0
    }
}

/// The wrapper, as a server has it.
const WRAPPER: &str = "
    local native = ...
    local function finish(success, ...)
        if success then return ... end
        error((...), 3)
    end
    local function wrap(functions)
        local library = {}
        for name, value in pairs(functions) do
            if name == 'new' then
                library[name] = function(...) return wrap(finish(value(...))) end
            elseif type(value) == 'function' then
                library[name] = function(...) return finish(value(...)) end
            else
                library[name] = value
            end
        end
        return library
    end
    for name, functions in pairs(native) do _G[name] = wrap(functions) end";

fn state_with(is_over: bool) -> Lua {
    let lua = Lua::new();
    let wrapper = WRAPPER.replace("local function wrap", "local wrap\nfunction wrap");
    let libraries = native(&lua, Rc::new(Still(is_over))).unwrap();
    lua.load(wrapper).call::<()>(libraries).unwrap();
    lua
}

/// A state with the libraries as scripts see them.
pub(super) fn state() -> Lua {
    state_with(false)
}

/// The value of an expression, in which `...` are the arguments.
pub(super) fn call<T: FromLua>(lua: &Lua, expression: &str, arguments: impl IntoLuaMulti) -> T {
    lua.load(format!("return {expression}")).call(arguments).unwrap()
}

/// Compares answers with Valkey's: lines with an expression, an arrow and the answer.
pub(super) fn check(examples: &str) {
    let lua = state();
    let expressions = examples.lines().map(|line| line.split_once(" --> ").unwrap().0).collect::<Vec<_>>();
    lua.globals().set("ARGV", [expressions.join("\n")]).unwrap();
    let answers = lua.load(include_str!("examples/check.lua")).eval::<String>().unwrap();
    let wrong = answers.lines().zip(examples.lines()).filter(|(answer, example)| answer != example);
    let wrong = wrong.map(|(answer, example)| format!("{answer}\n  Valkey: {example}")).collect::<Vec<_>>();
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
    assert_eq!(answers.lines().count(), examples.lines().count());
}

fn error(lua: &Lua, expression: &str) -> String {
    match call(lua, &format!("select(2, pcall(function() return {expression} end))"), ()) {
        Value::String(text) => text.to_str().unwrap().to_owned(),
        other => panic!("{expression} gives {other:?}"),
    }
}

#[test]
fn deep_nesting_needs_little_stack() {
    let work = || {
        let lua = state();
        let set = "cjson.decode_max_depth(2^31 - 1), cjson.encode_max_depth(2^31 - 1)";
        call::<i64>(&lua, set, ());
        for (open, close) in [("[", "]"), ("{\"a\":", "}")] {
            let round = "#cjson.encode(cjson.decode(('%s'):rep(2000) .. '1' .. ('%s'):rep(2000)))";
            let round = round.replacen("%s", open, 1).replacen("%s", close, 1);
            assert_eq!(call::<usize>(&lua, &round, ()), 2000 * (open.len() + close.len()) + 1);
            let deep = format!("cjson.decode(('{open}'):rep(1e6))");
            assert!(error(&lua, &deep).contains("Found too many nested data structures (2001)"));
        }
        let own = "(function() local t = {} t[1] = t return cjson.encode(t) end)()";
        assert!(error(&lua, own).ends_with("Cannot serialise, excessive nesting (2001)"));
        for open in ["\\145", "\\129\\1", "\\129"] {
            assert_eq!(
                error(&lua, &format!("cmsgpack.unpack(('{open}'):rep(1e6))")).find("stack overflow ("),
                Some(0)
            );
        }
    };
    std::thread::Builder::new().stack_size(256 << 10).spawn(work).unwrap().join().unwrap();
}

#[test]
fn a_pulse_that_is_over_stops_the_work() {
    let lua = state_with(true);
    for expression in [
        "cjson.encode(list)",
        "cjson.decode('[' .. ('1,'):rep(5000) .. '1]')",
        "cmsgpack.pack(list)",
        "cmsgpack.unpack(('\\1'):rep(5000))",
        "struct.pack(('x'):rep(5000))",
        "struct.unpack(('x'):rep(5000), ('x'):rep(5000))",
        "struct.size(('x'):rep(5000))",
    ] {
        lua.load("list = {} for index = 1, 5000 do list[index] = index end").exec().unwrap();
        assert!(error(&lua, expression).ends_with("script stopped"), "{expression}");
    }
}

#[test]
fn many_values_are_no_panic() {
    let lua = state();
    let most = MOST_VALUES as i64;
    let strings = "(function(count) local list = {} for index = 1, count do list[index] = 'a' .. index end
        return #cmsgpack.pack(unpack(list)) end)(...)";
    assert!(call::<i64>(&lua, strings, most) > most);
    for count in [most + 1, 7900, 7950, 7970, 7980, 7985, 7990, 7995] {
        call::<Value>(&lua, &format!("select(2, pcall(function(...) return {strings} end, ...))"), count);
    }
    let count = "select('#', cmsgpack.unpack(('\\161a'):rep(...)))";
    assert_eq!(call::<i64>(&lua, count, most), most);
    let tables = "select('#', cmsgpack.unpack(('\\144'):rep(...)))";
    assert_eq!(call::<i64>(&lua, tables, most), most);
    assert!(error(&lua, "cmsgpack.unpack(('\\1'):rep(9000))").contains("too many return values at once"));
    assert!(error(&lua, "struct.unpack(('b'):rep(9000), ('a'):rep(9000))").contains("too many results"));
    let list = "(function(count) local list = {} for index = 1, count do list[index] = {'a' .. index} end
        return #cjson.decode(cjson.encode(list)) end)(20000)";
    assert_eq!(call::<i64>(&lua, list, ()), 20000);
}

#[test]
fn results_have_a_largest_size() {
    let lua = state();
    let sparse = "cjson.encode_sparse_array(false, 0) and 0 or cjson.encode({[2^31 - 1] = 1})";
    assert!(error(&lua, sparse).ends_with("result too long"));
}

#[test]
fn the_lack_of_memory_is_an_error() {
    let lua = state();
    lua.set_memory_limit(lua.used_memory() + (1 << 20)).unwrap();
    let decode = "return #cjson.decode('[' .. ('{},'):rep(30000) .. '1]')";
    match lua.load(decode).eval::<i64>() {
        Err(mlua::Error::CallbackError { cause, .. }) => {
            assert!(matches!(*cause, mlua::Error::MemoryError(_)))
        }
        other => assert!(matches!(other, Err(mlua::Error::MemoryError(_))), "{other:?}"),
    }
}

#[test]
fn native_functions_tell_their_failures() {
    let lua = Lua::new();
    let libraries = native(&lua, Rc::new(Still(false))).unwrap();
    let encode = libraries.get::<Table>("cjson").unwrap().get::<Function>("encode").unwrap();
    let (success, message) = encode.call::<(bool, String)>(f64::NAN).unwrap();
    assert_eq!((success, message.as_str()), (false, "Cannot serialise number: must not be NaN or Inf"));
    assert_eq!(encode.call::<(bool, String)>(1.5).unwrap(), (true, "1.5".to_owned()));
}
