//! What a connection is in the middle of when a request takes several turns: a large argument, keys of all buckets.

use super::compose::type_of;
use super::glob::Pattern;
use crate::io::Charge;
use larder_cache::{KeyHash, Kind, Tour, Upload};
use larder_protocol::resp::{Resume, slot_of};
use std::borrow::Cow;
use std::collections::HashSet;

/// What the request at the front of the input needs more turns for.
#[derive(Default)]
pub(super) struct Unfinished {
    /// A large argument of it, as far as it has come.
    pub(super) taking: Option<Box<Taking>>,
    /// Keys that are collected for its reply.
    pub(super) collecting: Option<Box<Collecting>>,
    /// Items that the script at the front of the input was found to need from flash, by their keys.
    pub(super) script_keys: Vec<Vec<u8>>,
}

impl Unfinished {
    /// What it takes in the account of connection buffers.
    pub(super) fn held_bytes(&self) -> u64 {
        self.taking.as_ref().map_or(0, |taking| taking.charge.bytes())
            + self.collecting.as_ref().map_or(0, |collecting| collecting.charge.bytes())
    }
}

/// How far a command on several keys is that goes on in another turn.
#[derive(Default)]
pub(super) struct ManyKeys {
    /// What its keys came to so far.
    pub(super) sum: i64,
    /// Where it goes on: how many keys are done, and where in its arguments the next one begins.
    pub(super) place: Option<(usize, usize)>,
}

/// A large argument of a request, and what to do with it when the request is complete.
pub(super) struct Taking {
    /// `None` = the argument is thrown away.
    pub(super) upload: Option<Upload>,
    /// Why it is thrown away: the error to reply.
    pub(super) error: Option<Cow<'static, [u8]>>,
    /// Bytes of the argument that are still to be thrown away.
    pub(super) unwanted: usize,
    /// Length of the argument.
    pub(super) body_bytes: u32,
    /// The arguments before it, and how many they are.
    pub(super) before: Vec<u8>,
    pub(super) before_count: usize,
    /// How many bytes of its line end have come.
    pub(super) end_taken: usize,
    /// The arguments behind it, as far as they came, behind a line that counts them.
    pub(super) behind: Vec<u8>,
    pub(super) behind_count: usize,
    /// How far they are read.
    pub(super) behind_read: Resume,
    /// The request is complete.
    pub(super) is_complete: bool,
    /// What the other arguments take, in the account of connection buffers.
    pub(super) charge: Charge,
}

/// Keys that are collected for one reply.
pub(super) struct Collecting {
    /// How far the walk over all items is.
    pub(super) tour: Tour,
    pub(super) wanted: WantedKeys,
    /// The keys as they will be sent.
    pub(super) composed: Vec<u8>,
    pub(super) count: usize,
    /// Hashes of the keys that were met, where flash may have one that memory has as well. `SCAN` does without.
    pub(super) met: HashSet<KeyHash>,
    /// How often keys were asked for.
    pub(super) steps: u32,
    pub(super) charge: Charge,
    /// Why no more are collected: the error to reply.
    pub(super) error: Option<Cow<'static, [u8]>>,
}

/// Which keys are collected.
pub(super) enum WantedKeys {
    /// Those that match a pattern.
    Matching(Pattern),
    /// Those of a slot, `most` at most.
    OfSlot { slot: u16, most: usize },
    /// Those of a slot are counted only.
    CountedOfSlot(u16),
    /// Any one, chosen by a random number.
    Any(u64),
    /// Those of one step of `SCAN`: `None` = all.
    Scanned { pattern: Option<Pattern>, type_name: Option<&'static str>, least: usize },
}

impl WantedKeys {
    /// Whether a key is one of these, if `count` were found before it.
    pub(super) fn includes(&self, key: &[u8], kind: Kind, count: usize) -> bool {
        match self {
            WantedKeys::Matching(pattern) => pattern.matches(key),
            WantedKeys::OfSlot { slot, most } => count < *most && slot_of(key) == *slot,
            WantedKeys::CountedOfSlot(slot) => slot_of(key) == *slot,
            WantedKeys::Any(_) => true,
            WantedKeys::Scanned { pattern, type_name, .. } => {
                type_name.is_none_or(|name| name == type_of(kind))
                    && pattern.as_ref().is_none_or(|pattern| pattern.matches(key))
            }
        }
    }

    /// Whether no more keys are wanted than these `count`.
    pub(super) fn has_enough(&self, count: usize) -> bool {
        match self {
            WantedKeys::OfSlot { most, .. } => count >= *most,
            WantedKeys::Any(_) => count > 0,
            _ => false,
        }
    }
}
