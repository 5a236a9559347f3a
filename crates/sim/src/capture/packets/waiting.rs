//! What requests wait for.

use larder_protocol::{Meta, MetaVerb};

/// The place in a stream is lost: no request or answer begins where one should.
#[derive(Debug)]
pub(super) struct Lost;

/// What a request waits for. Places are those of `Asked`.
pub(super) enum Waiting {
    /// Values for the keys from the place `next` to before `end`, and the end of them.
    Values {
        /// The place of the first read that is not answered.
        next: u64,
        /// The place behind the last one.
        end: u64,
    },
    /// The answer to a meta request.
    Meta(MetaWaiting),
    /// The answer to `mn`.
    Noop,
    /// A line.
    Line,
    /// An answer of Redis, to the requests from the place `first` to before `end`.
    Resp {
        /// The place of the first request.
        first: u64,
        /// The place behind the last one.
        end: u64,
        /// Which part of it tells of them.
        tells: Tells,
    },
    /// What has no form that is known.
    Anything,
}

/// What a meta request waits for.
pub(super) struct MetaWaiting {
    /// The place of the read; `None` = it is none.
    pub(super) read: Option<u64>,
    /// The answer is left out where it is the usual one.
    pub(super) is_quiet: bool,
    /// The words that an answer repeats: the opaque token and the key.
    repeats: Vec<Vec<u8>>,
}

/// Which part of an answer tells of the reads of a command.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Tells {
    /// None does.
    Nothing,
    /// The answer is the value.
    Whole,
    /// Each element of the array is a value.
    Each,
}

impl MetaWaiting {
    /// The place is that of its request, if it is one.
    pub(super) fn of(meta: &Meta<'_>, place: Option<u64>) -> MetaWaiting {
        let opaque = meta.flags.opaque.map(|opaque| [b"O", opaque].concat());
        let key = meta.flags.has(b'k').then(|| [b"k", meta.key].concat());
        MetaWaiting {
            read: place.filter(|_| meta.verb == MetaVerb::Get),
            is_quiet: meta.flags.has(b'q'),
            repeats: opaque.into_iter().chain(key).collect(),
        }
    }

    /// Whether an answer with this code and these words may be the one to this request.
    pub(super) fn fits(&self, code: &[u8], words: &[&[u8]]) -> bool {
        let is_usual = match self.read {
            Some(_) => code == b"EN",
            None => matches!(code, b"HD" | b"NF"),
        };
        // `EN` repeats nothing.
        !(self.is_quiet && is_usual)
            && (code == b"EN" || self.repeats.iter().all(|word| words.contains(&word.as_slice())))
    }
}
