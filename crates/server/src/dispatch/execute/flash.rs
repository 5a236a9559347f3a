//! Items that only flash has: the connection that needs one waits, and its worker goes on with others.
//!
//! A request is executed again from its beginning when what it waited for has come. Nothing of the request is
//! remembered but its reads: the connection keeps their tokens, in the order in which the reads were asked for, and the
//! worker's [`Fetches`](super::fetches::Fetches) the results, until the request looks for them. While a connection
//! waits, the keys of what follows in its input are read ahead. A result is only a hint: it is used if it is still the
//! newest version of the item when its request is executed.
//!
//! Replies to writes that are not durable yet (mode `journal`) are held back by the connection's output. They go out
//! when the worker hears that their commit is durable.

use super::Executor;
use super::fetches::ReadResult;
use crate::dispatch::operation::{Need, Operation, Whereabouts};
use crate::dispatch::progress::{Busy, PendingRead, Progress, Promoting};
use crate::io::{Charge, ConnectionId};
use larder_cache::{Commit, Fetch, Found, KeyHash};

/// After this number of results that were out of date when they came, the key counts as absent.
const TRIES_MAX: u8 = 3;

/// What flash has of a key that memory does not have.
pub(super) enum Looked {
    Miss,
    /// The newest version of the item.
    Found(Found, Charge),
    /// The item is in memory now.
    Promoted,
    /// Flash may have it, but it could not be brought to memory.
    NotBrought,
    /// The connection waits.
    Waits,
}

/// What came of beginning a read.
enum BegunRead {
    Done(Option<(Found, Charge)>),
    Waits,
}

/// What came of going on with a value in parts.
enum PartStep {
    Taken,
    Waits,
    Last,
    Missing,
}

impl Executor {
    /// Looks for a key that memory does not have. After [`Looked::Waits`] the request is not answered. It is executed
    /// again when the connection is woken.
    pub(super) fn look_on_flash(
        &mut self,
        progress: &mut Progress,
        hash: KeyHash,
        key: &[u8],
        need: Need,
    ) -> Looked {
        let read = progress.position_of(hash, key);
        // Memory may have got the key meanwhile, and most keys that memory lacks were never on flash. Where there is a
        // result, its stamp is looked at before it is used.
        let known = match read {
            None if self.worker.knows_gone(hash) => Some(false),
            None => self.known(progress, hash),
            Some(_) => None,
        };
        if read.is_none() && (!self.worker.flash_may_hold(hash, key) || known.is_some()) {
            progress.tries = 0;
            return match self.missed(hash, key) {
                Looked::Miss if known == Some(true) => Looked::NotBrought,
                looked => looked,
            };
        }
        let looked = self.look_further(progress, hash, key, read, need);
        match looked {
            Looked::Waits => progress.waits = true,
            Looked::NotBrought => {
                let stamp = self.worker.flash_stamp(hash).unwrap_or_default();
                progress.absent.get_or_insert_default().insert(hash, (stamp, true));
                progress.tries = 0;
            }
            _ => progress.tries = 0,
        }
        looked
    }

    /// `read` = which of the connection's reads is that of the key.
    fn look_further(
        &mut self,
        progress: &mut Progress,
        hash: KeyHash,
        key: &[u8],
        mut read: Option<usize>,
        need: Need,
    ) -> Looked {
        while progress.tries < TRIES_MAX {
            let Some(fetches) = &mut self.fetches else { return Looked::Miss };
            let result = match read.take() {
                Some(at) => {
                    let result = fetches.take_result(progress.reads[at].token);
                    if matches!(result, ReadResult::Pending) {
                        return Looked::Waits;
                    }
                    let stamp = progress.reads.remove(at).stamp;
                    match result {
                        ReadResult::Done(result) => {
                            if result.is_none() && need == Need::Memory {
                                progress.absent.get_or_insert_default().insert(hash, (stamp, false));
                            }
                            result
                        }
                        _ if self.worker.flash_may_hold(hash, key) => continue,
                        _ => return self.missed(hash, key),
                    }
                }
                None => match self.begin_read(progress, hash, key, true) {
                    BegunRead::Done(result) => result,
                    BegunRead::Waits => return Looked::Waits,
                },
            };
            // Memory may have got the key since the read was started.
            let Some((found, charge)) = result else { return self.missed(hash, key) };
            if !self.worker.is_current(hash, key, &found) {
                progress.tries += 1;
                if !self.worker.flash_may_hold(hash, key) {
                    return self.missed(hash, key);
                }
                continue;
            }
            return self.use_found(progress, (hash, key), found, charge, need);
        }
        Looked::NotBrought
    }

    /// Shows an item that is the newest version now, or takes it to memory.
    fn use_found(
        &mut self,
        progress: &mut Progress,
        (hash, key): (KeyHash, &[u8]),
        found: Found,
        charge: Charge,
        need: Need,
    ) -> Looked {
        if need == Need::Know {
            self.worker.note_seen(hash, key, &found);
            return Looked::Found(found, charge);
        }
        if found.value.len() as u64 != found.value_bytes {
            return self.begin_promoting(progress, hash, key, found, charge);
        }
        let mut is_worth_memory =
            || self.fetches.as_mut().is_some_and(|fetches| fetches.is_worth_memory(hash));
        let has_room = !self.worker.waits_for_flash();
        if (need == Need::Memory || has_room && is_worth_memory()) && self.worker.promote(hash, key, &found) {
            return Looked::Promoted;
        }
        match need {
            Need::Show => Looked::Found(found, charge),
            Need::Memory | Need::Know => match self.missed(hash, key) {
                Looked::Miss => Looked::NotBrought,
                looked => looked,
            },
        }
    }

    /// Whether flash was found to have nothing of a key, or (`true`) something that memory could not take, and nothing
    /// has happened under its hash since.
    fn known(&self, progress: &Progress, hash: KeyHash) -> Option<bool> {
        let (stamp, has_it) = *progress.absent.as_ref()?.get(&hash)?;
        (Some(stamp) == self.worker.flash_stamp(hash)).then_some(has_it)
    }

    /// Flash has nothing of the key. Another worker may have brought the item to memory since this one looked there.
    fn missed(&self, hash: KeyHash, key: &[u8]) -> Looked {
        match self.fetches.is_some() && self.worker.peek(hash, key).is_some() {
            true => Looked::Promoted,
            false => Looked::Miss,
        }
    }

    /// Begins to read a key. A connection that the read blocks waits for room if there is none.
    fn begin_read(&mut self, progress: &mut Progress, hash: KeyHash, key: &[u8], blocks: bool) -> BegunRead {
        let Some(fetches) = &mut self.fetches else { return BegunRead::Done(None) };
        let is_first = blocks && progress.reads.is_empty();
        if fetches.room() == 0 || is_first && !fetches.has_room_for_connection() {
            if blocks {
                fetches.wait_for_room(progress.id);
            }
            return BegunRead::Waits;
        }
        let token = fetches.take_token(progress.id, progress.group.get_or_insert_default());
        let stamp = self.worker.flash_stamp(hash).unwrap_or_default();
        let fetch = match blocks {
            true => self.worker.fetch(token.into(), hash, key),
            false => self.worker.fetch_ahead(token.into(), hash, key),
        };
        match fetch {
            Fetch::Started => {
                fetches.started(token, blocks);
                if is_first {
                    fetches.reserve();
                }
                progress.reads.push(PendingRead { token, hash, key: key.into(), stamp });
                BegunRead::Waits
            }
            Fetch::Here(found) => {
                fetches.give_token(token);
                let charge = fetches.charge(&found);
                BegunRead::Done(Some((found, charge)))
            }
            Fetch::Absent => {
                fetches.give_token(token);
                BegunRead::Done(None)
            }
            Fetch::Busy => {
                fetches.give_token(token);
                if blocks {
                    fetches.wait_for_room(progress.id);
                }
                BegunRead::Waits
            }
        }
    }

    /// Before an operation that needs the present item: brings the item to memory if it is on flash. Returns `None` if
    /// the operation has to wait, else where the item is.
    pub(in crate::dispatch) fn bring_present(
        &mut self,
        progress: &mut Progress,
        operation: &Operation<'_>,
    ) -> Option<Whereabouts> {
        let Some((key, hash, need)) = operation.need() else { return Some(Whereabouts::Memory) };
        match self.look_on_flash(progress, hash, key, need) {
            Looked::Waits => None,
            Looked::Found(..) => Some(Whereabouts::Flash),
            Looked::NotBrought => Some(Whereabouts::OutOfReach),
            Looked::Miss | Looked::Promoted => Some(Whereabouts::Memory),
        }
    }

    /// Brings the item of a key to memory if it is on flash. Returns `false` if it has to be waited for.
    pub(in crate::dispatch) fn bring_key(
        &mut self,
        progress: &mut Progress,
        hash: KeyHash,
        key: &[u8],
        need: Need,
    ) -> bool {
        self.fetches.is_none()
            || self.worker.has_entry(hash, key)
            || !matches!(self.look_on_flash(progress, hash, key, need), Looked::Waits)
    }

    // ---- reading ahead ----

    /// Whether there is flash, for which connections may have to wait.
    #[inline]
    pub(in crate::dispatch) fn has_flash(&self) -> bool {
        self.fetches.is_some()
    }

    /// Whether a connection that waits should read keys ahead. What is on its way for it may be enough to go on with.
    pub(in crate::dispatch) fn may_read_ahead(&mut self, progress: &Progress) -> bool {
        let Some(fetches) = &mut self.fetches else { return false };
        if progress.reads.len() == 1 {
            fetches.use_reserve();
        }
        if fetches.room_ahead() == 0 {
            fetches.note_lack_of_room();
            return false;
        }
        progress.reads.len() * 2 <= fetches.depth() && progress.busy.is_none()
    }

    /// Loads what [`Executor::read_ahead`] of these keys looks at.
    #[inline]
    pub(in crate::dispatch) fn touch_flash(&self, hashes: impl Iterator<Item = KeyHash> + Clone) {
        self.worker.touch_flash(hashes);
    }

    /// Begins to read the key of a request that follows in the input. Returns whether there is room for more.
    pub(in crate::dispatch) fn read_ahead(
        &mut self,
        progress: &mut Progress,
        hash: KeyHash,
        key: &[u8],
    ) -> bool {
        if progress.position_of(hash, key).is_some() || self.worker.has_entry(hash, key) {
            return true;
        }
        let Some(fetches) = &mut self.fetches else { return false };
        if fetches.room_ahead() == 0 {
            fetches.note_lack_of_room();
            return false;
        }
        if fetches.is_tight() || progress.reads.len() >= fetches.depth() {
            return false;
        }
        // What need not be waited for is found again as quickly when its request is executed.
        self.begin_read(progress, hash, key, false);
        true
    }

    /// A connection that waits ends its turn: its reads are begun, as far as there is room.
    pub(in crate::dispatch) fn note_reads(&mut self, progress: &Progress) {
        if let Some(fetches) = &mut self.fetches {
            fetches.note_share(progress.reads.len());
        }
    }

    // ---- values in parts ----

    fn begin_promoting(
        &mut self,
        progress: &mut Progress,
        hash: KeyHash,
        key: &[u8],
        found: Found,
        charge: Charge,
    ) -> Looked {
        let Some(promotion) = self.worker.begin_promotion(hash, key, &found) else {
            return Looked::NotBrought;
        };
        let mut promoting = Box::new(Promoting { promotion, hash, key: key.into(), found, token: None });
        // The first part is in the promotion now. What else is in `found` is still needed.
        promoting.found.value = Vec::new();
        drop(charge);
        progress.busy = Some(Busy::Promoting(promoting));
        self.continue_promoting(progress);
        match progress.busy.is_some() {
            true => Looked::Waits,
            false if self.worker.peek(hash, key).is_some() => Looked::Promoted,
            false => Looked::NotBrought,
        }
    }

    /// Goes on with a value in parts: takes in the part that has come, and asks for the next.
    pub(in crate::dispatch) fn continue_promoting(&mut self, progress: &mut Progress) {
        let Some(Busy::Promoting(mut promoting)) = progress.busy.take() else { return };
        loop {
            match self.promote_part(progress, &mut promoting) {
                PartStep::Taken => {}
                PartStep::Waits => {
                    progress.waits = true;
                    progress.busy = Some(Busy::Promoting(promoting));
                    return;
                }
                PartStep::Last => {
                    let Promoting { promotion, hash, key, found, .. } = *promoting;
                    if !self.worker.complete_promotion(promotion, hash, &key, &found) {
                        // The item was replaced meanwhile, or there is no room.
                        progress.tries += 1;
                    }
                    return;
                }
                PartStep::Missing => {
                    let Promoting { promotion, hash, key, found, .. } = *promoting;
                    self.worker.abandon_promotion(promotion);
                    // Where the item has changed meanwhile, it is looked for once more.
                    let is_current = self.worker.is_current(hash, &key, &found);
                    progress.tries = if is_current { TRIES_MAX } else { progress.tries + 1 };
                    return;
                }
            }
        }
    }

    fn promote_part(&mut self, progress: &mut Progress, promoting: &mut Promoting) -> PartStep {
        let Some(fetches) = &mut self.fetches else { return PartStep::Missing };
        let part = match promoting.token {
            Some(token) => {
                let result = fetches.take_result(token);
                if matches!(result, ReadResult::Pending) {
                    return PartStep::Waits;
                }
                promoting.token = None;
                match result {
                    ReadResult::Done(Some((part, _))) => part,
                    _ => return PartStep::Missing,
                }
            }
            None => {
                let Some(part) = promoting.promotion.next_part() else { return PartStep::Last };
                let id = progress.id;
                if fetches.room() == 0 {
                    fetches.wait_for_room(id);
                    return PartStep::Waits;
                }
                let token = fetches.take_token(id, progress.group.get_or_insert_default());
                let Promoting { hash, key, found, .. } = promoting;
                match self.worker.fetch_part(token.into(), *hash, key, found, part) {
                    Fetch::Started => {
                        fetches.started(token, true);
                        promoting.token = Some(token);
                        return PartStep::Waits;
                    }
                    Fetch::Busy => {
                        fetches.give_token(token);
                        fetches.wait_for_room(id);
                        return PartStep::Waits;
                    }
                    Fetch::Absent => {
                        fetches.give_token(token);
                        return PartStep::Missing;
                    }
                    Fetch::Here(part) => {
                        fetches.give_token(token);
                        part
                    }
                }
            }
        };
        if self.worker.fill_promotion(&mut promoting.promotion, &part) {
            PartStep::Taken
        } else {
            PartStep::Missing
        }
    }

    // ---- news of flash ----

    /// Reads that this worker has on their way.
    pub(super) fn reads_under_way(&self) -> u64 {
        self.fetches.as_ref().map_or(0, |fetches| fetches.in_flight() as u64)
    }

    /// Reads have ended, or writes have become durable. Names the connections that can go on, and returns what is
    /// durable.
    pub(in crate::dispatch) fn poll_flash(&mut self, wake: &mut Vec<ConnectionId>) -> Option<Commit> {
        let fetches = self.fetches.as_mut()?;
        let latency = &*self.latency;
        fetches.begin_poll();
        self.worker.poll_fetches(&mut |token, found| fetches.ended(token, found, wake, latency));
        fetches.wake_queue(wake);
        let committed = self.worker.flash_committed();
        fetches.wake_committed(committed, wake);
        // Last: news of room that comes after this look makes the descriptor readable again.
        self.wake_stores(wake);
        Some(committed)
    }

    /// Whether [`Executor::poll_flash`] has results, and no read is under way any more.
    pub(in crate::dispatch) fn has_read_all(&mut self) -> bool {
        self.worker.has_fetched_all()
    }

    /// The commit that has to be durable before the operation just executed is answered.
    #[inline]
    pub(in crate::dispatch) fn take_commit(&self) -> Option<Commit> {
        match self.fetches {
            Some(_) => self.worker.take_commit(),
            None => None,
        }
    }

    /// Connections wait until what was written is durable.
    pub(in crate::dispatch) fn want_commit(&self) {
        self.worker.want_commit();
    }

    /// The connection is to be named by [`Executor::poll_flash`] when this commit is durable.
    pub(in crate::dispatch) fn wake_when_durable(&mut self, id: ConnectionId, until: Commit) {
        if let Some(fetches) = &mut self.fetches {
            fetches.hold(id, until);
        }
    }

    /// Every request of the connection was answered: what is still being read was read ahead of requests that memory
    /// answered then.
    pub(in crate::dispatch) fn forget_reads(&mut self, progress: &mut Progress) {
        if let Some(fetches) = &mut self.fetches {
            progress.reads.drain(..).for_each(|read| fetches.forget(read.token));
            progress.absent = None;
        }
    }

    /// At the end of a turn: hands the reads that were begun to the device.
    pub(in crate::dispatch) fn start_reads(&mut self) {
        self.worker.kick_fetches();
        if self.fetches.as_ref().is_some_and(|fetches| fetches.is_stuck()) {
            // The connections whose turn it was needed no read after all, so no read will end and wake the next.
            self.worker.wake_for_fetches();
        }
    }

    fn abandon_promoting(&mut self, promoting: Promoting) {
        let Promoting { promotion, token, .. } = promoting;
        if let (Some(token), Some(fetches)) = (token, &mut self.fetches) {
            fetches.forget(token);
        }
        self.worker.abandon_promotion(promotion);
    }

    /// A part of a request goes on without what it began to wait for.
    pub(in crate::dispatch) fn give_up_waiting(&mut self, progress: &mut Progress) {
        progress.waits = false;
        match progress.busy.take() {
            Some(Busy::Promoting(promoting)) => self.abandon_promoting(*promoting),
            other => progress.busy = other,
        }
    }

    /// The connection is gone: its reads, and the memory of what it was in the middle of, are let go.
    pub(in crate::dispatch) fn forget_connection(&mut self, mut progress: Progress) {
        self.forget_reads(&mut progress);
        if let Some(fetches) = &mut self.fetches {
            fetches.forget_connection(progress.id);
        }
        if let Some(receiving) = progress.received.take() {
            self.worker.abandon_upload(receiving.upload);
        }
        match progress.busy.take() {
            Some(Busy::Promoting(promoting)) => self.abandon_promoting(*promoting),
            Some(Busy::Sending(sending)) => self.end_sending(sending.source),
            Some(Busy::Receiving(receiving)) => self.worker.abandon_upload(receiving.upload),
            Some(Busy::Watching(watcher)) => self.stop_watching(&watcher),
            Some(
                Busy::Listing { .. }
                | Busy::Answering
                | Busy::Taking
                | Busy::Measuring { .. }
                | Busy::Pausing,
            )
            | None => {}
        }
    }
}
