//! One worker's reads from flash: which are on their way, what came of those that ended, and which connections wait for
//! them.

use crate::dispatch::progress::{RESULTS_AT_ONCE, ReadGroup};
use crate::io::{Buffers, Charge, ConnectionId};
use crate::latency::WorkerLatency;
use larder_cache::{Commit, Found, KeyHash, RecentReads};
use std::collections::{HashSet, VecDeque};
use std::rc::Rc;
use std::sync::Arc;
use std::time::Instant;

/// The most reads of one worker while connection buffers are half full.
const TIGHT_DEPTH: usize = 4;
/// Parts of a read in which [`Fetches::share`] is kept.
const SHARE_PARTS: usize = 16;

/// One worker's reads from flash. Each has a token, which is its position in the table.
pub(super) struct Fetches {
    table: Vec<FlashRead>,
    free: Vec<u32>,
    in_flight: usize,
    depth: usize,
    /// Every item that is read is taken to memory.
    is_strict: bool,
    recent: RecentReads,
    buffers: Option<Arc<Buffers>>,
    /// When the present turn began, or when the reads were last polled.
    now: Instant,
    /// How many reads a connection starts in one turn: a moving average, in parts of [`SHARE_PARTS`].
    share: usize,
    /// The same for the present turn, in whole reads.
    turn_share: usize,
    /// Room that is kept for connections which have started the first of their reads in the present turn.
    reserved: usize,
    /// The present turn lacked room for a read.
    lacked_room: bool,
    /// Connections that found the queue of reads full, in their order, and which of them still wait.
    queue: VecDeque<ConnectionId>,
    queued: HashSet<ConnectionId>,
    /// Connections whose replies are held back, and until which commit.
    uncommitted: Vec<(ConnectionId, Commit)>,
}

struct FlashRead {
    id: ConnectionId,
    group: Rc<ReadGroup>,
    state: ReadState,
    /// The connection can do nothing without the result.
    blocks: bool,
    began: Instant,
}

enum ReadState {
    Free,
    Pending,
    /// The read is on its way, but no request waits for it any more.
    Orphan,
    Done(Option<(Found, Charge)>),
    /// The result came when buffers were full. The read has to be done again.
    Dropped,
}

/// What came of a read, as far as it is known.
pub(super) enum ReadResult {
    /// The result has not come yet.
    Pending,
    /// The item, or that there is none.
    Done(Option<(Found, Charge)>),
    /// There is no result: the read has to be done again.
    Dropped,
}

impl Fetches {
    /// `depth` = the most reads at a time.
    pub(super) fn new(
        depth: u32,
        is_strict: bool,
        recent: RecentReads,
        buffers: Option<Arc<Buffers>>,
    ) -> Fetches {
        Fetches {
            table: Vec::new(),
            free: Vec::new(),
            in_flight: 0,
            depth: depth as usize,
            is_strict,
            recent,
            buffers,
            now: Instant::now(),
            share: SHARE_PARTS,
            turn_share: 1,
            reserved: 0,
            lacked_room: false,
            queue: VecDeque::new(),
            queued: HashSet::new(),
            uncommitted: Vec::new(),
        }
    }

    /// An item is shown from flash. Returns whether it is worth a copy in memory.
    pub(super) fn is_worth_memory(&mut self, hash: KeyHash) -> bool {
        self.is_strict || self.recent.note(hash)
    }

    pub(super) fn depth(&self) -> usize {
        self.depth
    }

    pub(super) fn in_flight(&self) -> usize {
        self.in_flight
    }

    /// Whether connections hold more than half of what their buffers may take.
    pub(super) fn is_tight(&self) -> bool {
        self.buffers.as_ref().is_some_and(|buffers| buffers.used_bytes() * 2 > buffers.limit_bytes())
    }

    /// Whether a connection may start the first of its reads: there is room for all that it is likely to start. With
    /// less, its replies would leave one by one.
    pub(super) fn has_room_for_connection(&self) -> bool {
        self.room() >= self.reserved + self.turn_share
    }

    /// A connection has started the first of its reads: room is kept for those that follow in its input.
    pub(super) fn reserve(&mut self) {
        self.reserved += self.turn_share - 1;
    }

    /// The connection starts the other reads now.
    pub(super) fn use_reserve(&mut self) {
        self.reserved = self.reserved.saturating_sub(self.turn_share - 1);
    }

    /// How many reads of keys that follow may be started now.
    pub(super) fn room_ahead(&self) -> usize {
        self.room().saturating_sub(self.reserved)
    }

    /// How many reads a connection is likely to start in one turn.
    fn present_share(&self) -> usize {
        (self.share / SHARE_PARTS).clamp(1, (self.room() + self.in_flight).max(1))
    }

    /// How many more reads may be started now.
    pub(super) fn room(&self) -> usize {
        let depth = if self.is_tight() { self.depth.min(TIGHT_DEPTH) } else { self.depth };
        depth.saturating_sub(self.in_flight)
    }

    /// A turn of the worker begins.
    pub(super) fn begin_turn(&mut self, now: Instant) {
        self.now = now;
        self.turn_share = self.present_share();
        self.reserved = 0;
    }

    /// A token for a read that is about to be started.
    pub(super) fn take_token(&mut self, id: ConnectionId, group: &Rc<ReadGroup>) -> u32 {
        let group = Rc::clone(group);
        let read = FlashRead { id, group, state: ReadState::Pending, blocks: false, began: self.now };
        match self.free.pop() {
            Some(token) => {
                self.table[token as usize] = read;
                token
            }
            None => {
                self.table.push(read);
                self.table.len() as u32 - 1
            }
        }
    }

    /// The read was started. `blocks` = its connection can do nothing without the result.
    pub(super) fn started(&mut self, token: u32, blocks: bool) {
        self.in_flight += 1;
        let read = &mut self.table[token as usize];
        read.blocks = blocks;
        read.group.started();
    }

    /// The token is free again.
    pub(super) fn give_token(&mut self, token: u32) {
        self.table[token as usize].state = ReadState::Free;
        self.free.push(token);
    }

    /// Takes the result of a read, whose token is free then. A result that is still pending blocks its connection from
    /// now on.
    pub(super) fn take_result(&mut self, token: u32) -> ReadResult {
        let read = &mut self.table[token as usize];
        if matches!(read.state, ReadState::Pending) {
            read.blocks = true;
            return ReadResult::Pending;
        }
        let state = std::mem::replace(&mut read.state, ReadState::Free);
        self.free.push(token);
        match state {
            ReadState::Done(result) => ReadResult::Done(result),
            _ => ReadResult::Dropped,
        }
    }

    /// A read was wanted for which there is no room.
    pub(super) fn note_lack_of_room(&mut self) {
        self.lacked_room = true;
    }

    /// A connection ends its turn with `reads` reads under way.
    pub(super) fn note_share(&mut self, reads: usize) {
        // A connection that lacked room wanted more.
        let wanted = if std::mem::take(&mut self.lacked_room) { 2 * reads } else { reads };
        if wanted == 0 {
            return;
        }
        self.share = (7 * self.share + wanted.min(RESULTS_AT_ONCE as usize) * SHARE_PARTS).div_ceil(8);
    }

    /// The connection finds the queue of reads full. It has its turn when there is room.
    pub(super) fn wait_for_room(&mut self, id: ConnectionId) {
        self.note_lack_of_room();
        if self.queued.insert(id) {
            self.queue.push_back(id);
        }
    }

    /// No request waits for the read any more.
    pub(super) fn forget(&mut self, token: u32) {
        let read = &mut self.table[token as usize];
        match read.state {
            ReadState::Pending => {
                read.state = ReadState::Orphan;
                read.group.forgotten();
            }
            ReadState::Done(_) | ReadState::Dropped => self.give_token(token),
            ReadState::Free | ReadState::Orphan => {}
        }
    }

    /// The connection is gone.
    pub(super) fn forget_connection(&mut self, id: ConnectionId) {
        self.queued.remove(&id);
    }

    /// The results of reads come now.
    pub(super) fn begin_poll(&mut self) {
        self.now = Instant::now();
    }

    /// A read has ended. Its connection goes to `wake` if it has what it waits for.
    pub(super) fn ended(
        &mut self,
        token: u64,
        found: Option<Found>,
        wake: &mut Vec<ConnectionId>,
        latency: &WorkerLatency,
    ) {
        let Some(read) = self.table.get_mut(token as usize) else { return };
        latency.record_fetch(self.now.saturating_duration_since(read.began).as_nanos() as u64);
        self.in_flight = self.in_flight.saturating_sub(1);
        if !matches!(read.state, ReadState::Pending) {
            return self.give_token(token as u32);
        }
        read.state = match found {
            None => ReadState::Done(None),
            // Without what blocks it a connection would never get on, however full the buffers are.
            Some(found) => match charge(self.buffers.as_ref(), &found, read.blocks) {
                Some(charge) => ReadState::Done(Some((found, charge))),
                None => ReadState::Dropped,
            },
        };
        if read.group.ended(read.blocks) {
            wake.push(read.id);
        }
    }

    /// Accounts a result that needed no read.
    pub(super) fn charge(&self, found: &Found) -> Charge {
        charge(self.buffers.as_ref(), found, true).unwrap_or_default()
    }

    /// Names connections that wait for room in the queue of reads, as many as there is room for.
    pub(super) fn wake_queue(&mut self, wake: &mut Vec<ConnectionId>) {
        let mut room = self.room();
        let share = self.present_share();
        while room >= share
            && let Some(id) = self.queue.pop_front()
        {
            if self.queued.remove(&id) {
                wake.push(id);
                room -= share;
            }
        }
    }

    /// Whether connections wait for room although no read is on its way whose end would wake them.
    pub(super) fn is_stuck(&self) -> bool {
        self.in_flight == 0 && !self.queue.is_empty()
    }

    /// The connection's replies are held back until this commit.
    pub(super) fn hold(&mut self, id: ConnectionId, until: Commit) {
        self.uncommitted.push((id, until));
    }

    /// Names the connections whose replies need not be held back any longer.
    pub(super) fn wake_committed(&mut self, committed: Commit, wake: &mut Vec<ConnectionId>) {
        self.uncommitted.retain(|(id, until)| {
            let is_held = *until > committed;
            if !is_held {
                wake.push(*id);
            }
            is_held
        });
    }
}

/// Accounts a result, if there is room for it in the buffers' limit or if it is `required`.
fn charge(buffers: Option<&Arc<Buffers>>, found: &Found, required: bool) -> Option<Charge> {
    let Some(buffers) = buffers else { return Some(Charge::default()) };
    let bytes = found.value.capacity() as u64;
    if required {
        buffers.take(bytes);
    } else if !buffers.try_hold(bytes) {
        return None;
    }
    Some(Charge::of(buffers.clone(), bytes))
}
