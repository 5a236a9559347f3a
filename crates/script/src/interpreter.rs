//! Compiles scripts and runs them.

use crate::asked::Asked;
use crate::control::{Control, Limits, STOPPED, Stop};
use crate::convert::{self, Wording};
use crate::header::{Header, header};
use crate::libraries::{self, Pulse};
use crate::name::{ByName, Name};
use crate::native::{self, CHUNK, PRELUDE, message, without_place};
use crate::number;
use larder_protocol::resp::{Args, Version, compose as words};
use mlua::chunk::ChunkMode;
use mlua::{Function, Lua, LuaOptions, MultiValue, Result, StdLib, Table, Value};
use scoped_tls_hkt::{ReborrowMut, scoped_thread_local};
use std::cell::RefCell;
use std::collections::HashMap;
use std::rc::Rc;

/// What runs have left may take this number of bytes before it is collected.
const GARBAGE_BYTES_MAX: usize = 96 << 10;
/// Room for a request and its reply that is kept between runs, in bytes.
const ROOM_BYTES_KEPT: usize = 16 << 10;
/// The longest script, in bytes. The time to compile one may grow with the square of its length.
const SCRIPT_BYTES_MAX: usize = 64 << 10;
/// How many times the bytes of a list its values may take, about.
const LIST_TIMES: usize = 4;
/// What a script is told that runs out of memory.
const NO_MEMORY: &str = "not enough memory";

/// Whether a script goes on.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Called {
    /// The command was answered.
    Answered,
    /// The same, and it may have taken long.
    AnsweredSlowly,
    /// The script has to be stopped, and is answered by the host.
    Stop,
}

/// Does what a script asks for.
pub trait Host {
    /// Executes a command and appends its reply, in this version of RESP, to `reply`.
    fn call(&mut self, request: Args<'_>, version: Version, reply: &mut Vec<u8>) -> Called;

    /// Whether the client may execute a command; `None` = there is no such command.
    fn is_permitted(&mut self, request: Args<'_>) -> Option<bool>;

    /// Logs a text. `level`: 0 = debugging, 3 = a warning.
    fn log(&mut self, level: u8, text: &[u8]);
}

/// A run of a script.
pub struct Request<'r> {
    /// The script, which was compiled.
    pub name: Name,
    /// `KEYS` and `ARGV`.
    pub keys: Args<'r>,
    /// As `keys`.
    pub args: Args<'r>,
    /// What it may take.
    pub limits: Limits,
    /// The version of RESP that the client speaks.
    pub version: Version,
}

/// The host of the script that runs on this thread.
struct Hosted<'h>(&'h mut (dyn Host + 'h));

impl<'h> ReborrowMut<'h> for Hosted<'_> {
    type Result = Hosted<'h>;

    fn reborrow_mut(&'h mut self) -> Hosted<'h> {
        Hosted(self.0)
    }
}

scoped_thread_local!(static mut HOST: for<'h> Hosted<'h>);

/// One worker's Lua.
pub struct Interpreter {
    lua: Lua,
    control: Rc<Control>,
    /// Global variables, `KEYS` and `ARGV` among them.
    globals: Table,
    /// What scripts see of them.
    environment: Table,
    /// Calls a script.
    driver: Function,
    scripts: HashMap<Name, (Header, Function), ByName>,
    /// Memory without scripts, in bytes.
    base_bytes: usize,
    /// Memory after the last collection, in bytes.
    settled_bytes: usize,
    /// Which half of the scripts is forgotten next.
    forgets_odd: bool,
    rooms: Rc<RefCell<Rooms>>,
}

/// Room for one request and its reply.
#[derive(Default)]
struct Rooms {
    request: Vec<u8>,
    reply: Vec<u8>,
}

impl Rooms {
    fn bytes(&self) -> usize {
        self.request.capacity() + self.reply.capacity()
    }
}

impl Interpreter {
    /// An interpreter that knows no scripts.
    ///
    /// # Errors
    /// There is no memory for it.
    pub fn new() -> std::result::Result<Interpreter, String> {
        Interpreter::begin().map_err(|error| error.to_string())
    }

    fn begin() -> Result<Interpreter> {
        let libraries = StdLib::STRING | StdLib::TABLE | StdLib::MATH | StdLib::OS;
        let lua = Lua::new_with(libraries, LuaOptions::new())?;
        let control = Rc::new(Control::new());
        let native = native::native(&lua, &control)?;
        let rooms = Rc::<RefCell<Rooms>>::default();
        let (called, room) = (control.clone(), rooms.clone());
        let call = lua.create_function(move |lua, values: MultiValue| {
            called.limit_memory(lua, false)?;
            let served = HOST.with(|host| serve(lua, &called, host.0, &mut room.borrow_mut(), values));
            called.limit_memory(lua, true).and(served)
        })?;
        native.raw_set("call", call)?;
        let libraries = libraries::native(&lua, control.clone())?;
        let prelude = lua.load(include_str!("prelude.lua")).set_name(format!("={PRELUDE}"));
        let (globals, environment, driver): (Table, Table, Function) =
            prelude.call((native.clone(), libraries))?;
        let (shown, pulse) = (environment.clone(), control.clone());
        let compile = lua.create_function(move |lua, values| native::compile(lua, &pulse, &shown, values))?;
        native.raw_set("compile", compile)?;
        control.watch(&lua)?;
        lua.gc_collect()?;
        Ok(Interpreter {
            base_bytes: lua.used_memory(),
            settled_bytes: lua.used_memory(),
            forgets_odd: false,
            lua,
            control,
            globals,
            environment,
            driver,
            scripts: HashMap::default(),
            rooms,
        })
    }

    /// What the first line of a script says; `None` = it was not compiled.
    pub fn header(&self, name: &Name) -> Option<Header> {
        self.scripts.get(name).map(|(header, _)| *header)
    }

    /// Compiles a script. `bytes_max` = the most memory of the interpreter.
    ///
    /// # Errors
    /// What is wrong with it, in Redis's words.
    pub fn compile(
        &mut self,
        name: Name,
        text: &[u8],
        bytes_max: usize,
    ) -> std::result::Result<Header, Vec<u8>> {
        if text.len() > SCRIPT_BYTES_MAX {
            return Err(format!("ERR a script has {SCRIPT_BYTES_MAX} bytes at most").into_bytes());
        }
        let (header, text) = header(text)?;
        let limited = |lua: &Lua, bytes: usize| lua.set_memory_limit(bytes).map(|_| ());
        let compiled = limited(&self.lua, bytes_max).and_then(|()| {
            let chunk = self.lua.load(text).set_mode(ChunkMode::Text).set_name(CHUNK);
            chunk.set_environment(self.environment.clone()).into_function()
        });
        let done = limited(&self.lua, 0).and(compiled);
        let function = done.map_err(|error| {
            let what = format!("ERR Error compiling script (new function): {}", message(&error));
            what.into_bytes()
        })?;
        self.scripts.insert(name, (header, function));
        Ok(header)
    }

    /// Forgets a script.
    pub fn forget(&mut self, name: &Name) {
        self.scripts.remove(name);
    }

    /// Forgets the scripts for which `keeps` is false.
    pub fn retain(&mut self, keeps: impl Fn(&Name) -> bool) {
        self.scripts.retain(|name, _| keeps(name));
    }

    /// Memory of the interpreter, in bytes.
    pub fn used_bytes(&self) -> usize {
        self.lua.used_memory() + self.rooms.borrow().bytes()
    }

    /// Runs a script and appends its reply to `out`.
    ///
    /// # Errors
    /// The script was stopped. Nothing was appended.
    pub fn run(
        &mut self,
        request: &Request<'_>,
        host: &mut dyn Host,
        out: &mut Vec<u8>,
    ) -> std::result::Result<(), Stop> {
        let before = out.len();
        let (lua, control) = (&self.lua, &*self.control);
        control.begin(request.limits);
        let Some((_, script)) = self.scripts.get(&request.name) else {
            words::error(out, b"NOSCRIPT No matching script.");
            return Ok(());
        };
        let words = self.set_words("KEYS", request.keys).and_then(|()| self.set_words("ARGV", request.args));
        let ran = words.and_then(|()| {
            control.limit_memory(lua, true)?;
            let done = HOST.set(Hosted(host), || self.driver.call::<(bool, Value, Option<usize>)>(script));
            control.limit_memory(lua, false).and(done)
        });
        let answered = ran.and_then(|(is_done, value, line)| match is_done {
            true => {
                let wording = Wording { client: request.version, script: self.control.version.get() };
                convert::answer(&value, wording, control, lua, out)
            }
            false => self.fail(&value, line, request.name, out),
        });
        let stopped = self.control.stopped();
        if let Err(error) = answered {
            out.truncate(before);
            self.control.stop(if is_of_memory(&error) { Stop::Memory } else { Stop::Time });
            if stopped.is_none() && !is_of_memory(&error) {
                words::error(out, format!("ERR {}", message(&error)).as_bytes());
                return Ok(());
            }
        }
        match self.control.stopped() {
            None => Ok(()),
            Some(why) => {
                out.truncate(before);
                Err(why)
            }
        }
    }

    /// After a run, when nobody waits for it: what the script has left is collected if it is much. Compiled scripts
    /// stay as far as they take `scripts_max` bytes; of more, half go, which are compiled anew when they come again.
    pub fn settle(&mut self, scripts_max: usize) {
        if self.control.stopped().is_some() {
            // Every instruction has become an error.
            let watched = self.control.watch(&self.lua);
            debug_assert!(watched.is_ok());
        }
        if self.lua.used_memory() > self.settled_bytes + GARBAGE_BYTES_MAX {
            self.collect();
            if self.settled_bytes > self.base_bytes + scripts_max {
                let odd = self.forgets_odd;
                self.scripts.retain(|name, _| name.is_odd() != odd);
                self.forgets_odd = !odd;
                self.collect();
            }
            if self.settled_bytes > self.base_bytes + scripts_max {
                self.scripts.clear();
                self.collect();
            }
        }
        if self.rooms.borrow().bytes() > ROOM_BYTES_KEPT {
            self.rooms.take();
        }
    }

    fn collect(&mut self) {
        let none = Args::new(b"", 0);
        let words = self.set_words("KEYS", none).and_then(|()| self.set_words("ARGV", none));
        let collected = words.and_then(|()| self.lua.gc_collect());
        debug_assert!(collected.is_ok());
        self.settled_bytes = self.lua.used_memory();
    }

    fn set_words(&self, name: &str, args: Args<'_>) -> Result<()> {
        let table = self.lua.create_table_with_capacity(args.len(), 0)?;
        for (at, word) in args.enumerate() {
            table.raw_set(at + 1, self.lua.create_string(word)?)?;
        }
        self.globals.raw_set(name, table)
    }

    /// The reply of a script that has failed.
    fn fail(&self, failure: &Value, line: Option<usize>, name: Name, out: &mut Vec<u8>) -> Result<()> {
        let (code, text) = match failure {
            Value::Table(table) => (&b""[..], table.raw_get("err")?),
            Value::Error(error) => (&b""[..], Value::String(self.lua.create_string(message(error))?)),
            Value::Nil => (&b"ERR "[..], Value::String(self.lua.create_string("nil")?)),
            Value::Boolean(is_true) => {
                (&b"ERR "[..], Value::String(self.lua.create_string(is_true.to_string())?))
            }
            other => (&b"ERR "[..], other.clone()),
        };
        let text = self.lua.coerce_string(text)?;
        let (code, text) = match text {
            Some(text) => (code, text.as_bytes().to_vec()),
            None => (&b""[..], b"ERR unknown error".to_vec()),
        };
        if text.ends_with(NO_MEMORY.as_bytes()) {
            self.control.stop(Stop::Memory);
            return Ok(());
        }
        let mut text = match (without_place(&text), line) {
            (Some(rest), Some(line)) => [code, format!("{}:{line}: ", &CHUNK[1..]).as_bytes(), rest].concat(),
            (Some(rest), None) => [code, rest].concat(),
            (None, _) => [code, &text].concat(),
        };
        text.extend_from_slice(b" script: ");
        text.extend_from_slice(name.digits());
        if let Some(line) = line {
            text.extend_from_slice(format!(", on {CHUNK}:{line}.").as_bytes());
        }
        words::error(out, &text);
        Ok(())
    }
}

fn is_of_memory(error: &mlua::Error) -> bool {
    match error {
        mlua::Error::MemoryError(_) => true,
        mlua::Error::CallbackError { cause, .. } => is_of_memory(cause),
        _ => false,
    }
}

/// What `redis.call` does.
fn serve(
    lua: &Lua,
    control: &Control,
    host: &mut dyn Host,
    rooms: &mut Rooms,
    mut values: MultiValue,
) -> Result<MultiValue> {
    if control.stopped().is_some() {
        return Err(mlua::Error::runtime(STOPPED));
    }
    let asked = Asked::take(&mut values);
    if asked == Asked::Log {
        let level = values.pop_front().and_then(|level| level.as_i64()).unwrap_or(0);
        if let Some(Value::String(text)) = values.pop_front() {
            host.log(level.clamp(0, 3) as u8, &text.as_bytes());
        }
        return Ok(MultiValue::new());
    }
    let one = |value| Ok(MultiValue::from_vec(vec![value]));
    let refused = |text: &[u8]| match asked {
        Asked::Call => Err(mlua::Error::runtime(String::from_utf8_lossy(text))),
        _ => one(convert::single(lua, "err", lua.create_string(text)?)?),
    };
    let Rooms { request, reply } = rooms;
    if let Err(what) = compose_request(&values, request, reply, control.bytes_left(lua)) {
        return refused(what.as_bytes());
    }
    reply.clear();
    let args = Args::new(request, values.len());
    if asked == Asked::Permission {
        return Ok(MultiValue::from_vec(match host.is_permitted(args) {
            Some(is_permitted) => vec![Value::Boolean(true), Value::Boolean(is_permitted)],
            None => {
                let what = lua.create_string("Invalid command passed to redis.acl_check_cmd()")?;
                vec![Value::Boolean(false), Value::String(what)]
            }
        }));
    }
    let called = host.call(args, control.version.get(), reply);
    if called == Called::Stop || called == Called::AnsweredSlowly && control.is_over() {
        control.stop(Stop::Host);
        return Err(mlua::Error::runtime(STOPPED));
    }
    match reply.strip_prefix(b"-") {
        Some(text) if asked == Asked::Call => refused(text.strip_suffix(b"\r\n").unwrap_or(text)),
        _ => {
            // Each element of a list takes several times as much as a value as it does in the reply.
            let times = if reply.first() == Some(&b'*') { LIST_TIMES } else { 1 };
            if reply.len() * times > control.bytes_left(lua) {
                control.stop(Stop::Memory);
                return Err(mlua::Error::runtime(STOPPED));
            }
            one(convert::value_of(lua, &mut &reply[..])?)
        }
    }
}

/// Composes a request of these values, of about `bytes_max` bytes at most. `room` = a place for a number.
fn compose_request(
    values: &MultiValue,
    request: &mut Vec<u8>,
    room: &mut Vec<u8>,
    bytes_max: usize,
) -> std::result::Result<(), &'static str> {
    request.clear();
    if values.is_empty() {
        return Err("ERR Please specify at least one argument for this redis lib call");
    }
    for value in values {
        if request.len() > bytes_max {
            return Err("ERR not enough memory");
        }
        match value {
            Value::String(text) => words::bulk(request, &text.as_bytes()),
            Value::Integer(number) => words::bulk(request, number.to_string().as_bytes()),
            Value::Number(float) => {
                room.clear();
                number::write(*float, room);
                words::bulk(request, room);
            }
            _ => return Err("ERR Lua redis lib command arguments must be strings or integers"),
        }
    }
    Ok(())
}
