//! The scripts that the server keeps, for all workers.
//!
//! A script that came with `SCRIPT LOAD` stays until `SCRIPT FLUSH`. Of those that came with `EVAL` the latest stay, as
//! in Redis: many clients put their values into the text.

use super::errors::{self, Error};
use crate::io::{Buffers, Charge};
use larder_script::Name;
use std::collections::{HashMap, VecDeque};
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::sync::{Arc, Mutex, MutexGuard};

/// Scripts of `EVAL` that are kept. The limit is Redis's.
const SENT_MAX: usize = 500;
/// Scripts of `SCRIPT LOAD` that are kept.
const LOADED_MAX: usize = 2000;
/// The texts of all scripts take one part in this many of the memory for connection buffers, at most.
const TEXTS_SHARE: u64 = 8;
/// What a script takes beside its text, in bytes: its places in two tables.
const ENTRY_BYTES: u64 = 256;

/// The scripts that the server keeps.
#[derive(Default)]
pub(in crate::dispatch) struct Scripts {
    kept: Mutex<Kept>,
    /// It rises whenever scripts are forgotten.
    forgotten: AtomicU64,
    /// What all interpreters take, in bytes.
    interpreter_bytes: AtomicU64,
}

#[derive(Default)]
struct Kept {
    scripts: HashMap<Name, Script>,
    /// Those that came with `EVAL`, the latest last.
    sent: VecDeque<Name>,
    text_bytes: u64,
}

struct Script {
    text: Arc<[u8]>,
    /// It came with `SCRIPT LOAD`.
    stays: bool,
    /// What it takes, in the account of connection buffers.
    _charge: Charge,
}

/// What `INFO` shows.
pub(in crate::dispatch) struct Figures {
    pub(in crate::dispatch) count: usize,
    pub(in crate::dispatch) text_bytes: u64,
    pub(in crate::dispatch) interpreter_bytes: u64,
}

impl Scripts {
    fn kept(&self) -> MutexGuard<'_, Kept> {
        self.kept.lock().unwrap_or_else(|poisoned| poisoned.into_inner())
    }

    /// Keeps a script. `stays`: until all are forgotten.
    ///
    /// # Errors
    /// There is no room for it.
    pub(super) fn keep(
        &self,
        name: Name,
        text: &[u8],
        stays: bool,
        buffers: Option<&Arc<Buffers>>,
    ) -> Result<(), Error> {
        let mut kept = self.kept();
        let Kept { scripts, sent, text_bytes } = &mut *kept;
        if let Some(script) = scripts.get_mut(&name) {
            if stays && !script.stays {
                script.stays = true;
                sent.retain(|other| *other != name);
            }
            return Ok(());
        }
        let bytes = text.len() as u64 + ENTRY_BYTES;
        let bytes_max = buffers.map_or(u64::MAX, |buffers| buffers.limit_bytes() / TEXTS_SHARE);
        let fits = |texts: u64, count: usize| texts + count as u64 * ENTRY_BYTES + bytes <= bytes_max;
        // The oldest of `EVAL` give way.
        while (sent.len() >= SENT_MAX || !fits(*text_bytes, scripts.len()))
            && let Some(oldest) = sent.pop_front()
        {
            if let Some(script) = scripts.remove(&oldest) {
                *text_bytes -= script.text.len() as u64;
                self.forgotten.fetch_add(1, Relaxed);
            }
        }
        let mut charge = Charge::default();
        if !fits(*text_bytes, scripts.len())
            || stays && scripts.len() - sent.len() >= LOADED_MAX
            || buffers.is_some_and(|buffers| !charge.try_grow(buffers, bytes))
        {
            return Err(errors::SCRIPTS_TOO_LARGE);
        }
        *text_bytes += text.len() as u64;
        scripts.insert(name, Script { text: text.into(), stays, _charge: charge });
        if !stays {
            sent.push_back(name);
        }
        Ok(())
    }

    /// The text of a script.
    pub(super) fn text(&self, name: &Name) -> Option<Arc<[u8]>> {
        self.kept().scripts.get(name).map(|script| script.text.clone())
    }

    /// Which of these are kept.
    pub(super) fn has(&self, names: impl Iterator<Item = Option<Name>>) -> Vec<bool> {
        let kept = self.kept();
        names.map(|name| name.is_some_and(|name| kept.scripts.contains_key(&name))).collect()
    }

    /// Forgets all.
    pub(super) fn forget_all(&self) {
        *self.kept() = Kept::default();
        self.forgotten.fetch_add(1, Relaxed);
    }

    /// How often scripts were forgotten.
    #[inline]
    pub(super) fn forgotten(&self) -> u64 {
        self.forgotten.load(Relaxed)
    }

    /// An interpreter that took `before` bytes takes `now`.
    pub(super) fn note_interpreter(&self, before: u64, now: u64) {
        self.interpreter_bytes.fetch_add(now.wrapping_sub(before), Relaxed);
    }

    /// What all interpreters take, in bytes.
    pub(super) fn interpreter_bytes(&self) -> u64 {
        self.interpreter_bytes.load(Relaxed)
    }

    /// What `INFO` shows.
    pub(in crate::dispatch) fn figures(&self) -> Figures {
        let kept = self.kept();
        let (count, text_bytes) = (kept.scripts.len(), kept.text_bytes);
        Figures { count, text_bytes, interpreter_bytes: self.interpreter_bytes() }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn names(scripts: &Scripts, texts: &[&str]) -> Vec<bool> {
        scripts.has(texts.iter().map(|text| Some(Name::of(text.as_bytes()))))
    }

    fn keep(scripts: &Scripts, text: &str, stays: bool) {
        scripts.keep(Name::of(text.as_bytes()), text.as_bytes(), stays, None).expect("there is room");
    }

    #[test]
    fn the_latest_scripts_stay_and_those_that_were_loaded() {
        let scripts = Scripts::default();
        keep(&scripts, "loaded", true);
        keep(&scripts, "sent and loaded", false);
        keep(&scripts, "sent and loaded", true);
        keep(&scripts, "sent", false);
        for number in 0..SENT_MAX {
            assert_eq!(names(&scripts, &["sent"]), [true]);
            keep(&scripts, &format!("return {number}"), false);
        }
        assert_eq!(
            names(&scripts, &["loaded", "sent and loaded", "sent", "return 0"]),
            [true, true, false, true]
        );
        assert_eq!((scripts.forgotten(), scripts.figures().count), (1, SENT_MAX + 2));
        scripts.forget_all();
        assert_eq!(names(&scripts, &["loaded"]), [false]);
        assert_eq!((scripts.forgotten(), scripts.figures().count, scripts.figures().text_bytes), (2, 0, 0));
    }

    #[test]
    fn scripts_are_in_the_account_of_connection_buffers() {
        let buffers = Arc::new(Buffers::new(8 << 10));
        let scripts = Scripts::default();
        let keep =
            |text: &str| scripts.keep(Name::of(text.as_bytes()), text.as_bytes(), true, Some(&buffers));
        let sent =
            |text: &str| scripts.keep(Name::of(text.as_bytes()), text.as_bytes(), false, Some(&buffers));
        assert_eq!((sent(&"s".repeat(200)), sent(&"t".repeat(400))), (Ok(()), Ok(())));
        assert_eq!(buffers.used_bytes(), 656, "the older one gave way");
        assert_eq!(keep(&"x".repeat(600)), Ok(()));
        scripts.forget_all();
        assert_eq!(keep(&"x".repeat(100)), Ok(()));
        assert_eq!(buffers.used_bytes(), 356);
        assert_eq!(keep(&"y".repeat(500)), Err(errors::SCRIPTS_TOO_LARGE), "an eighth is for them");
        scripts.forget_all();
        assert_eq!(buffers.used_bytes(), 0);
    }
}
