//! What a connection is in the middle of: operations that take longer than one turn of its worker.

use super::operation::ListingForm;
use super::outcome::Tail;
use super::watch::Watcher;
use crate::io::{Charge, ConnectionId};
use larder_cache::{Found, KeyHash, LargeRead, Promotion, Stamp, Tour, Upload};
use std::cell::Cell;
use std::collections::{BTreeMap, HashMap};
use std::rc::Rc;
use std::sync::Arc;

/// After this number of results a connection goes on, though others of its reads are still on their way.
pub(super) const RESULTS_AT_ONCE: u32 = 16;

/// How many items there are of each size in bytes, rounded up.
pub(super) type Sizes = BTreeMap<u64, u64>;

/// One connection's unfinished work.
pub(super) struct Progress {
    pub(super) id: ConnectionId,
    /// The number of its socket.
    pub(super) fd: i32,
    /// It is one datagram.
    pub(super) is_datagram: bool,
    /// Work that has to end before the next request is read.
    pub(super) busy: Option<Busy>,
    /// An upload whose value is here, while the item that it changes comes from flash in parts ([`Busy::Promoting`]).
    pub(super) received: Option<Box<Receiving>>,
    /// The request at the front of the input cannot go on before something has come from flash, or before the delay of
    /// a failed login is over.
    pub(super) waits: bool,
    /// Keys that were asked of flash for the requests at the front of the input, in the order they were asked for.
    pub(super) reads: Vec<PendingRead>,
    /// Hashes of keys that requests needed in memory, since the connection last had nothing to wait for, with their
    /// stamps before the reads: flash was found not to have them, or (`true`) memory could not take what it has.
    /// Without them a request that looks several times would read such a key again and again.
    pub(super) absent: Option<HashMap<KeyHash, (Stamp, bool)>>,
    /// How far those reads are. It is made with the first read.
    pub(super) group: Option<Rc<ReadGroup>>,
    /// When the failed login at the front of the input is answered, in ticks of the worker.
    pub(super) login_due: Option<u64>,
    /// What `stats sizes` at the front of the input answers.
    pub(super) sizes: Option<Box<Sizes>>,
    /// The next reply follows at once, as in a transaction: a large value is not streamed, but shown in one piece.
    pub(super) in_one_piece: bool,
    /// How often what came from flash was out of date for the request at the front of the input.
    pub(super) tries: u8,
}

impl Progress {
    pub(super) fn new(id: ConnectionId, fd: i32, is_datagram: bool) -> Progress {
        Progress {
            id,
            fd,
            is_datagram,
            busy: None,
            received: None,
            waits: false,
            reads: Vec::new(),
            absent: None,
            group: None,
            login_due: None,
            sizes: None,
            in_one_piece: false,
            tries: 0,
        }
    }

    /// Whether nothing more may be answered before this is further.
    #[inline]
    pub(super) fn blocks_replies(&self) -> bool {
        use Busy::{Answering, Listing, Measuring, Pausing, Sending, Watching};
        let is_replying = |busy: &Busy| {
            matches!(busy, Sending(_) | Listing { .. } | Answering | Measuring { .. } | Pausing | Watching(_))
        };
        self.waits || self.busy.as_ref().is_some_and(is_replying)
    }

    /// The rest of a large value follows, and behind it `tail`. `None` = there is none.
    #[inline]
    pub(super) fn send(&mut self, source: Option<ValueSource>, tail: Tail) {
        if let Some(source) = source {
            self.busy = Some(Busy::Sending(Sending { source, tail }));
        }
    }

    /// The client watches.
    pub(super) fn watcher(&self) -> Option<&Arc<Watcher>> {
        if let Some(Busy::Watching(watcher)) = &self.busy { Some(watcher) } else { None }
    }

    /// What the unfinished work has in the account of connection buffers.
    pub(super) fn held_bytes(&self) -> u64 {
        match &self.busy {
            Some(Busy::Watching(watcher)) => watcher.held_bytes(),
            Some(Busy::Sending(Sending { source: ValueSource::Copy { charge, .. }, .. })) => charge.bytes(),
            _ => 0,
        }
    }

    /// Whether a large value is on its way in.
    pub(super) fn is_receiving(&self) -> bool {
        matches!(self.busy, Some(Busy::Receiving(_)))
    }

    /// Which of the keys asked of flash this is.
    pub(super) fn position_of(&self, hash: KeyHash, key: &[u8]) -> Option<usize> {
        self.reads.iter().position(|read| read.hash == hash && *read.key == *key)
    }
}

/// Something that takes longer than one request's turn.
pub(super) enum Busy {
    /// A large value is on its way out.
    Sending(Sending),
    /// A value of several parts comes from flash. The request that needs the value is executed when all of it is here.
    Promoting(Box<Promoting>),
    /// A large value is on its way in.
    Receiving(Box<Receiving>),
    /// A large argument of a request is on its way in, which the session has.
    Taking,
    /// A list of items goes on.
    Listing { tour: Box<Tour>, form: ListingForm },
    /// A reply is made that takes several turns, by the session.
    Answering,
    /// Items are measured, from this bucket of the index on, for `stats sizes`. The request is executed when all are.
    Measuring { bucket: u64, sizes: Box<Sizes> },
    /// The request at the front of the input has had its part of the turn. It goes on in the next one.
    Pausing,
    /// The client watches, and is told what happens until it goes. Nothing else is read.
    Watching(Arc<Watcher>),
}

/// What a retrieval wants of a key, beside its value.
#[derive(Clone, Copy)]
pub(super) struct KeyRead {
    /// The CAS number too.
    pub(super) with_cas: bool,
    /// The item gets this expiry.
    pub(super) exptime: Option<i32>,
    /// How many keys of the line follow.
    pub(super) left: usize,
}

/// The rest of a retrieval's line that was interrupted, from the front of the connection's input on. Whoever goes on
/// need not read what comes before.
pub(super) struct RestOfLine {
    /// What was wanted of the last key that is done.
    pub(super) read: KeyRead,
    /// Where that key ends, and the line.
    pub(super) at: usize,
    pub(super) end: usize,
}

/// A large value on its way out, and what follows it.
pub(super) struct Sending {
    pub(super) source: ValueSource,
    pub(super) tail: Tail,
}

/// Where the rest of a large value comes from.
pub(super) enum ValueSource {
    /// From the columns. The read keeps them from being reused.
    Memory(LargeRead),
    /// From a copy of what flash had, of which `sent` bytes are in the output. The copy is in the account of connection
    /// buffers.
    Copy { value: Vec<u8>, sent: usize, charge: Charge },
}

/// An upload, and what to do with it when it is complete.
pub(super) struct Receiving {
    pub(super) upload: Upload,
    /// The request that announced the value. It is read again at the end.
    pub(super) request: Vec<u8>,
    /// The bytes behind the value, as far as they came.
    pub(super) end: Vec<u8>,
}

/// A value of several parts on its way from flash to memory.
pub(super) struct Promoting {
    pub(super) promotion: Promotion,
    pub(super) hash: KeyHash,
    pub(super) key: Box<[u8]>,
    /// What is known of the item, without its value.
    pub(super) found: Found,
    /// The token of the part that is on its way.
    pub(super) token: Option<u32>,
}

/// How far the reads of one connection are: the connection and each of its reads share it.
///
/// A connection is woken for several results at once. Otherwise each result of a pipelined batch would cost a turn and
/// a system call to send one reply.
#[derive(Default)]
pub(super) struct ReadGroup {
    /// Reads on their way whose results the connection wants.
    pending: Cell<u32>,
    /// Reads that ended since the connection was woken.
    ended: Cell<u32>,
    /// The read without which the connection cannot go on has ended.
    is_due: Cell<bool>,
}

impl ReadGroup {
    /// A read was started.
    pub(super) fn started(&self) {
        self.pending.set(self.pending.get() + 1);
    }

    /// The result of a read that is on its way is not wanted any more.
    pub(super) fn forgotten(&self) {
        self.pending.set(self.pending.get() - 1);
    }

    /// A read has ended. `blocks` = its connection cannot go on without it. Returns whether to wake the connection.
    pub(super) fn ended(&self, blocks: bool) -> bool {
        let (pending, ended) = (self.pending.get() - 1, self.ended.get() + 1);
        let is_due = self.is_due.get() || blocks;
        let wakes = is_due && (pending == 0 || ended >= RESULTS_AT_ONCE);
        self.pending.set(pending);
        self.ended.set(if wakes { 0 } else { ended });
        self.is_due.set(is_due && !wakes);
        wakes
    }
}

/// A key that was asked of flash.
pub(super) struct PendingRead {
    pub(super) token: u32,
    pub(super) hash: KeyHash,
    pub(super) key: Box<[u8]>,
    /// The stamp of the hash before the read.
    pub(super) stamp: Stamp,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_connection_is_woken_when_all_its_reads_have_ended_or_many() {
        let group = ReadGroup::default();
        // The read that blocks ends first, and the others are waited for.
        (0..3).for_each(|_| group.started());
        assert_eq!([true, false, false].map(|blocks| group.ended(blocks)), [false, false, true]);
        // Reads ahead wake nobody.
        (0..2).for_each(|_| group.started());
        assert_eq!([false, false].map(|blocks| group.ended(blocks)), [false, false]);
        // With a long pipeline, many results are enough; a result that nobody wants is not waited for.
        (0..40).for_each(|_| group.started());
        let wakes: Vec<bool> = (0..20).map(|n| group.ended(n == 4)).collect();
        assert_eq!(wakes.iter().position(|wakes| *wakes), Some(RESULTS_AT_ONCE as usize - 3));
        assert_eq!(wakes.iter().filter(|wakes| **wakes).count(), 1);
        (0..19).for_each(|_| group.forgotten());
        assert!(group.ended(true), "it is the last one");
    }
}
