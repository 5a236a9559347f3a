//! What stops a script.

use crate::libraries::Pulse;
use larder_protocol::resp::Version;
use mlua::{Error, HookTriggers, Lua, VmState};
use rustix::time::{ClockId, clock_gettime};
use std::cell::Cell;
use std::rc::Rc;
use std::time::{Duration, Instant};

/// Instructions of Lua between two looks at the clock.
const INSTRUCTIONS: u32 = 100;
/// The time of the processor is first looked at when this part of a run's time has passed. Most are shorter.
const FIRST_LOOK: u32 = 8;
/// A run that waits for something else than the processor, such as flash, may take this number of times as long.
pub const LONGEST: u32 = 20;
/// What no script ever sees: it is stopped.
pub(crate) const STOPPED: &str = "script stopped";

/// What a run may take.
#[derive(Clone, Copy, Debug)]
pub struct Limits {
    /// The longest time, of the processor: while the machine is busy with something else, no script gets on.
    pub time: Duration,
    /// The most memory of the interpreter, in bytes, with what it has between runs.
    pub bytes: usize,
}

/// Why a run was stopped.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Stop {
    /// It took too long.
    Time,
    /// It needed too much memory.
    Memory,
    /// The host does not go on with it ([`Called::Stop`](crate::Called::Stop)).
    Host,
}

/// What is known of the present run.
pub(crate) struct Control {
    stop: Cell<Option<Stop>>,
    time: Cell<Duration>,
    began: Cell<Instant>,
    /// When to look at the time of the processor.
    look_at: Cell<Instant>,
    /// The time of the processor at which the run is over, once it was looked at.
    ends_at: Cell<Option<Duration>>,
    /// The most memory that the interpreter may have, in bytes.
    bytes_max: Cell<usize>,
    /// The version of RESP in which the script gets replies.
    pub(crate) version: Cell<Version>,
}

/// The time of the processor that the thread has had.
pub fn processor_time() -> Duration {
    let time = clock_gettime(ClockId::ThreadCPUTime);
    Duration::new(time.tv_sec.unsigned_abs(), time.tv_nsec.unsigned_abs() as u32)
}

impl Control {
    pub(crate) fn new() -> Control {
        Control {
            stop: Cell::new(None),
            time: Cell::default(),
            began: Cell::new(Instant::now()),
            look_at: Cell::new(Instant::now()),
            ends_at: Cell::new(None),
            bytes_max: Cell::new(usize::MAX),
            version: Cell::new(Version::Resp2),
        }
    }

    /// A run begins.
    pub(crate) fn begin(&self, Limits { time, bytes }: Limits) {
        self.stop.set(None);
        self.bytes_max.set(bytes);
        self.time.set(time);
        let now = Instant::now();
        self.began.set(now);
        self.look_at.set(now + time / FIRST_LOOK);
        self.ends_at.set(None);
        self.version.set(Version::Resp2);
    }

    /// The run has to end.
    pub(crate) fn stop(&self, why: Stop) {
        if self.stop.get().is_none() {
            self.stop.set(Some(why));
        }
    }

    /// Why the run has to end.
    pub(crate) fn stopped(&self) -> Option<Stop> {
        self.stop.get()
    }

    /// Lua's memory is limited from now on, or is not. While it is, each table and string that Rust makes is made in a
    /// protected call, at several times the cost.
    pub(crate) fn limit_memory(&self, lua: &Lua, is_limited: bool) -> mlua::Result<()> {
        lua.set_memory_limit(if is_limited { self.bytes_max.get() } else { 0 }).map(|_| ())
    }

    /// How much more memory the interpreter may take, in bytes.
    pub(crate) fn bytes_left(&self, lua: &Lua) -> usize {
        self.bytes_max.get().saturating_sub(lua.used_memory())
    }

    /// Looks at the clock every few instructions, in each coroutine. Once the run has to end, every single instruction
    /// is an error: whatever catches one fails at the next.
    pub(crate) fn watch(self: &Rc<Control>, lua: &Lua) -> mlua::Result<()> {
        self.watch_every(INSTRUCTIONS, lua)
    }

    /// The hook is that of all coroutines; how often it is called, each has for itself, and learns here.
    fn watch_every(self: &Rc<Control>, instructions: u32, lua: &Lua) -> mlua::Result<()> {
        let control = self.clone();
        lua.set_global_hook(HookTriggers::new().every_nth_instruction(instructions), move |lua, _| {
            if !control.is_over() {
                return Ok(VmState::Continue);
            }
            control.watch_every(1, lua)?;
            Err(Error::runtime(STOPPED))
        })
    }
}

impl Pulse for Control {
    fn bytes_max(&self) -> usize {
        self.bytes_max.get()
    }

    fn is_over(&self) -> bool {
        if self.stop.get().is_some() {
            return true;
        }
        let now = Instant::now();
        if now < self.look_at.get() {
            return false;
        }
        if now.saturating_duration_since(self.began.get()) > self.time.get() * LONGEST {
            self.stop(Stop::Time);
            return true;
        }
        let processor_time = processor_time();
        // A first look that comes late is that of a thread that had to wait.
        let first = || processor_time + (self.time.get() - self.time.get() / FIRST_LOOK);
        let ends_at = self.ends_at.get().unwrap_or_else(first);
        self.ends_at.set(Some(ends_at));
        match ends_at.checked_sub(processor_time) {
            Some(left) if !left.is_zero() => {
                self.look_at.set(now + left);
                false
            }
            _ => {
                self.stop(Stop::Time);
                true
            }
        }
    }
}
