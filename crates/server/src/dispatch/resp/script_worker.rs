//! One worker's interpreter of scripts, and what it takes in the account of connection buffers.

use super::errors::{self, Error};
use super::scripts::Scripts;
use crate::io::{Buffers, Charge};
use larder_cache::Alone;
use larder_script::{Header, Host, Interpreter, Name, Request, Stop};
use std::sync::Arc;
use std::time::{Duration, Instant};

/// With less memory no script is begun, in bytes.
const SCRIPT_BYTES_MIN: u64 = 64 << 10;
/// What an interpreter takes is accounted in steps of this number of bytes.
const CHARGE_STEP_BYTES: u64 = 64 << 10;
/// The interpreters of all workers keep one part in this many of the memory for connection buffers, at most.
const INTERPRETERS_SHARE: u64 = 4;
/// What an interpreter takes beside compiled scripts, about, in bytes.
const WITHOUT_SCRIPTS_BYTES: u64 = 192 << 10;
/// What compiled scripts may take of one interpreter, in bytes.
const SCRIPTS_BYTES_MIN: u64 = 48 << 10;
const SCRIPTS_BYTES_MAX: u64 = 8 << 20;
/// A script may take one part in this many of what is left of that memory. The rest is for the replies of its commands.
const RUN_SHARE: u64 = 2;

/// One worker's side of scripts.
#[derive(Default)]
pub(super) struct ScriptWorker {
    /// It is made when the worker executes its first script.
    interpreter: Option<Interpreter>,
    /// What it takes, in the account of connection buffers.
    charge: Charge,
    /// How often scripts had been forgotten when it was last looked at.
    forgotten: u64,
    /// Room for a reply.
    reply: Vec<u8>,
    /// How many scripts the window has.
    pub(super) in_window: u32,
    /// The worker is alone for the scripts of the window, and since when.
    pub(super) alone: Option<(Alone<'static>, Instant)>,
    /// One of them was begun.
    pub(super) has_run: bool,
    /// While a script runs: how long it may, and how long it may list keys.
    pub(super) time: Option<Duration>,
}

impl ScriptWorker {
    /// What the first line of a script says. A new script is compiled and kept. `text` = `None`: it has to be known.
    /// `stays`: it is kept until all are forgotten. `bytes_max` = the most that the interpreter may take.
    pub(super) fn compiled(
        &mut self,
        shared: &Scripts,
        name: Name,
        (text, stays): (Option<&[u8]>, bool),
        bytes_max: usize,
        buffers: Option<&Arc<Buffers>>,
    ) -> Result<Header, Error> {
        let interpreter = match &mut self.interpreter {
            Some(interpreter) => interpreter,
            none => none.insert(Interpreter::new().map_err(|_| errors::SCRIPTS_TOO_LARGE)?),
        };
        let forgotten = shared.forgotten();
        if self.forgotten != forgotten {
            self.forgotten = forgotten;
            interpreter.retain(|name| shared.text(name).is_some());
        }
        let known = interpreter.header(&name);
        if let Some(header) = known.filter(|_| !stays) {
            return Ok(header);
        }
        let kept = if text.is_none() { Some(shared.text(&name).ok_or(errors::NO_SCRIPT)?) } else { None };
        let text = text.or(kept.as_deref()).unwrap_or_default();
        let header = match known {
            Some(header) => header,
            None => interpreter.compile(name, text, interpreter.used_bytes() + bytes_max)?,
        };
        if kept.is_none()
            && let Err(error) = shared.keep(name, text, stays, buffers)
        {
            interpreter.forget(&name);
            return Err(error);
        }
        Ok(header)
    }

    /// Runs a script, and returns its reply. It may take `more_max` bytes beside what the interpreter has, as far as
    /// the account has room for them.
    pub(super) fn run(
        &mut self,
        mut request: Request<'_>,
        more_max: usize,
        buffers: Option<&Arc<Buffers>>,
        host: &mut dyn Host,
    ) -> Result<&[u8], Stop> {
        let ScriptWorker { interpreter: Some(interpreter), reply, .. } = self else {
            return Err(Stop::Memory);
        };
        let (more, _room) = room(more_max as u64, buffers).ok_or(Stop::Memory)?;
        request.limits.bytes = interpreter.used_bytes() + more as usize;
        reply.clear();
        interpreter.run(&request, host, reply)?;
        Ok(reply)
    }

    /// After a script: what the interpreter has kept is accounted. One for which there is no room goes.
    /// `workers` = how many there are.
    pub(super) fn settle(&mut self, shared: &Scripts, workers: u32, buffers: Option<&Arc<Buffers>>) {
        let ScriptWorker { interpreter, charge, reply, .. } = self;
        let Some(running) = interpreter else { return };
        let share =
            buffers.map_or(0, |buffers| buffers.limit_bytes() / INTERPRETERS_SHARE / u64::from(workers));
        running
            .settle(share.saturating_sub(WITHOUT_SCRIPTS_BYTES).clamp(SCRIPTS_BYTES_MIN, SCRIPTS_BYTES_MAX)
                as usize);
        if reply.capacity() as u64 > CHARGE_STEP_BYTES {
            *reply = Vec::new();
        }
        let used = (running.used_bytes() + reply.capacity()) as u64;
        let wanted = used.next_multiple_of(CHARGE_STEP_BYTES);
        if let Some(buffers) = buffers
            && charge.bytes() != wanted
        {
            self.let_go(shared, wanted, buffers);
        }
    }

    /// Accounts `bytes` bytes for the interpreter. It goes if that is too much beside those of other workers.
    fn let_go(&mut self, shared: &Scripts, bytes: u64, buffers: &Arc<Buffers>) {
        let before = self.charge.bytes();
        self.charge = Charge::default();
        let others = shared.interpreter_bytes().saturating_sub(before);
        let fits = others + bytes <= buffers.limit_bytes() / INTERPRETERS_SHARE;
        if bytes == 0 || !fits || !self.charge.try_grow(buffers, bytes) {
            self.interpreter = None;
        }
        shared.note_interpreter(before, self.charge.bytes());
    }

    /// Now and then: an interpreter goes while more than half of the memory for connection buffers is taken. The next
    /// script has a new one.
    pub(super) fn tick(&mut self, shared: &Scripts, buffers: Option<&Arc<Buffers>>) {
        if let Some(buffers) = buffers
            && self.charge.bytes() > 0
            && buffers.used_bytes() * 2 > buffers.limit_bytes()
        {
            self.let_go(shared, 0, buffers);
        }
    }
}

/// Room for `bytes` bytes in the account of connection buffers, or for a part of them. `None` = there is too little.
fn room(mut bytes: u64, buffers: Option<&Arc<Buffers>>) -> Option<(u64, Charge)> {
    let mut charge = Charge::default();
    let Some(buffers) = buffers else { return Some((bytes, charge)) };
    bytes = bytes.min(buffers.left_to_hold() / RUN_SHARE).max(SCRIPT_BYTES_MIN);
    while !charge.try_grow(buffers, bytes) {
        bytes /= 2;
        if bytes < SCRIPT_BYTES_MIN {
            return None;
        }
    }
    Some((bytes, charge))
}
