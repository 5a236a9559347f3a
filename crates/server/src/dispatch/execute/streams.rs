//! Large values on their way in and out, and lists of items: work that goes on over many turns.

use super::Executor;
use crate::dispatch::operation::{OldItem, Operation, StoreItem};
use crate::dispatch::outcome::{ListingPage, Outcome};
use crate::dispatch::progress::{Busy, Progress, Receiving, Sending, ValueSource};
use larder_cache::{KeyHash, StoreOutcome, Toured, Upload};

/// Items that are listed before other connections have their turn.
const LISTED_AT_ONCE: usize = 64;

/// What came of announcing a value that follows in pieces.
pub(in crate::dispatch) enum UploadStart {
    /// The operation has to wait for flash first. The same announcement comes again.
    Waits,
    /// The value is received from now on.
    Receiving,
    /// Nothing can be received. The value has to be thrown away when it comes.
    Refused(StoreOutcome),
}

/// What came of a piece of a large value.
pub(in crate::dispatch) enum Received {
    /// More of the value is missing. How many bytes of the input were taken.
    Part(usize),
    /// The upload has ended, after this number of bytes of the input was taken.
    Ended(Box<Receiving>, usize, UploadEnd),
}

/// How an upload ended.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(in crate::dispatch) enum UploadEnd {
    /// The value is here, and what the protocol wants behind it.
    Complete,
    /// The value is here, but something else is behind it.
    BadEnd,
    /// There is no memory for the rest of the value. `missing_bytes` of it, and what follows it, are still to come.
    NoMemory { missing_bytes: usize },
}

impl Executor {
    /// A store whose value follows in pieces. `request` is kept until the value is here.
    pub(in crate::dispatch) fn begin_upload(
        &mut self,
        progress: &mut Progress,
        operation: &Operation<'_>,
        item: &StoreItem<'_>,
        request: &[u8],
    ) -> UploadStart {
        if self.fetches.is_some() && self.bring_present(progress, operation).is_none() {
            return UploadStart::Waits;
        }
        let begun = if self.worker.fits(item.store.key.len(), item.value_bytes.into()) {
            self.worker.begin_upload(item.store.hash, item.value_bytes).ok_or(StoreOutcome::NoRoom)
        } else {
            Err(StoreOutcome::TooLarge)
        };
        match begun {
            Ok(upload) => {
                let receiving = Receiving { upload, request: request.to_vec(), end: Vec::with_capacity(2) };
                progress.busy = Some(Busy::Receiving(Box::new(receiving)));
                UploadStart::Receiving
            }
            Err(outcome) => {
                self.count_store(outcome, false);
                self.observe_upload(progress.fd, item, outcome);
                self.end_old_item_of_upload(item);
                UploadStart::Refused(outcome)
            }
        }
    }

    /// Takes in what has come of a large value. `end` = the bytes that the protocol wants behind the value.
    pub(in crate::dispatch) fn receive(
        &mut self,
        progress: &mut Progress,
        input: &[u8],
        end: &[u8],
    ) -> Received {
        let mut receiving = match progress.busy.take() {
            Some(Busy::Receiving(receiving)) => receiving,
            busy => {
                progress.busy = busy;
                return Received::Part(0);
            }
        };
        let missing_bytes = receiving.upload.missing_bytes();
        let value_bytes = missing_bytes.min(input.len());
        if !self.worker.fill_upload(&mut receiving.upload, &input[..value_bytes]) {
            return Received::Ended(receiving, 0, UploadEnd::NoMemory { missing_bytes });
        }
        let mut taken = value_bytes;
        if receiving.upload.missing_bytes() == 0 {
            let end_bytes = (end.len() - receiving.end.len()).min(input.len() - value_bytes);
            receiving.end.extend_from_slice(&input[value_bytes..value_bytes + end_bytes]);
            taken += end_bytes;
        }
        if receiving.upload.missing_bytes() > 0 || receiving.end.len() < end.len() {
            progress.busy = Some(Busy::Receiving(receiving));
            return Received::Part(taken);
        }
        let how = if receiving.end == end { UploadEnd::Complete } else { UploadEnd::BadEnd };
        Received::Ended(receiving, taken, how)
    }

    /// A value was received that changes the present item. That item may have left memory since the upload began: then
    /// the upload waits until it is back. Returns the upload unless it waits.
    pub(in crate::dispatch) fn bring_present_of_upload(
        &mut self,
        progress: &mut Progress,
        receiving: Box<Receiving>,
        operation: &Operation<'_>,
    ) -> Option<Box<Receiving>> {
        if self.fetches.is_none() || self.bring_present(progress, operation).is_some() {
            return Some(receiving);
        }
        match progress.busy {
            None => progress.busy = Some(Busy::Receiving(receiving)),
            Some(_) => progress.received = Some(receiving),
        }
        None
    }

    /// Stores what was received, or lets it go.
    pub(in crate::dispatch) fn finish_upload(
        &mut self,
        fd: i32,
        upload: Upload,
        item: &StoreItem<'_>,
        how: UploadEnd,
    ) -> Outcome<'static> {
        match how {
            UploadEnd::Complete => {
                let store = self.with_compared_cas(&item.store);
                let outcome = self.worker.complete_upload(upload, &store);
                self.count_store(outcome, item.store.compare.is_some());
                self.observe_upload(fd, item, outcome);
                self.note_size(item.store.hash, item.store.key);
                Outcome::Stored(self.settle_store(item, outcome))
            }
            UploadEnd::BadEnd => {
                self.worker.abandon_upload(upload);
                Outcome::BadUploadEnd
            }
            UploadEnd::NoMemory { .. } => {
                self.worker.abandon_upload(upload);
                self.count_store(StoreOutcome::NoRoom, false);
                self.observe_upload(fd, item, StoreOutcome::NoRoom);
                self.end_old_item_of_upload(item);
                Outcome::NoMemoryForUpload
            }
        }
    }

    fn end_old_item_of_upload(&mut self, item: &StoreItem<'_>) {
        if item.old_if_refused != OldItem::Stays {
            self.delete_quietly(item.store.key, item.store.hash);
        }
    }

    /// Sends the next piece of a large value: at most `room` bytes of it, and what follows the value after its last
    /// piece.
    pub(in crate::dispatch) fn continue_sending(
        &mut self,
        progress: &mut Progress,
        room: usize,
        out: &mut Vec<u8>,
    ) {
        let Sending { source, tail } = match progress.busy.take() {
            Some(Busy::Sending(sending)) => sending,
            busy => {
                progress.busy = busy;
                return;
            }
        };
        let rest = match source {
            ValueSource::Memory(mut value) => {
                let has_more = self.worker.continue_large_read(&mut value, room, out);
                (has_more, ValueSource::Memory(value))
            }
            ValueSource::Copy { value, sent, charge } => {
                let until = value.len().min(sent + room);
                out.extend_from_slice(&value[sent..until]);
                (until < value.len(), ValueSource::Copy { value, sent: until, charge })
            }
        };
        match rest {
            (true, source) => progress.busy = Some(Busy::Sending(Sending { source, tail })),
            (false, source) => {
                self.end_sending(source);
                out.extend_from_slice(tail);
            }
        }
    }

    /// Begins to take in an argument of `bytes` bytes. `None` = there is no room.
    pub(in crate::dispatch) fn begin_argument(&mut self, hash: KeyHash, bytes: u32) -> Option<Upload> {
        self.worker.begin_upload(hash, bytes)
    }

    /// Whether an item of this key and value may be stored at all (`-I`).
    pub(in crate::dispatch) fn fits(&self, key_bytes: usize, value_bytes: u64) -> bool {
        self.worker.fits(key_bytes, value_bytes)
    }

    /// Takes in bytes of an argument. `false` = there is no memory for them.
    pub(in crate::dispatch) fn fill_argument(&mut self, upload: &mut Upload, input: &[u8]) -> bool {
        self.worker.fill_upload(upload, input)
    }

    /// There is no memory for the rest of an argument.
    pub(in crate::dispatch) fn refuse_argument(&mut self, upload: Upload) {
        self.worker.abandon_upload(upload);
        self.count_store(StoreOutcome::NoRoom, false);
    }

    /// The argument is not wanted any more.
    pub(in crate::dispatch) fn abandon_argument(&self, upload: Upload) {
        self.worker.abandon_upload(upload);
    }

    /// A reply that is not to be sent was about to be streamed, or takes several turns.
    pub(in crate::dispatch) fn stop_sending(&self, progress: &mut Progress) {
        let is_reply = |busy: &mut Busy| matches!(busy, Busy::Sending(_) | Busy::Answering);
        if let Some(Busy::Sending(sending)) = progress.busy.take_if(is_reply) {
            self.end_sending(sending.source);
        }
    }

    /// Nothing more of the value is sent.
    pub(super) fn end_sending(&self, source: ValueSource) {
        if let ValueSource::Memory(value) = source {
            self.worker.end_large_read(value);
        }
    }

    /// Lists the next items. `compose` returns whether it wants more of them.
    pub(in crate::dispatch) fn continue_listing(
        &mut self,
        progress: &mut Progress,
        compose: impl FnOnce(ListingPage<'_>) -> bool,
    ) {
        let (mut tour, mut form) = match progress.busy.take() {
            Some(Busy::Listing { tour, form }) => (tour, form),
            busy => {
                progress.busy = busy;
                return;
            }
        };
        let mut items = Vec::new();
        let wait = self.flash_wait();
        let toured = self.worker.list(&mut tour, LISTED_AT_ONCE, wait, &mut items);
        let page = ListingPage { form: &mut form, items: &items, is_last: toured == Toured::End };
        if compose(page) {
            progress.busy = Some(Busy::Listing { tour, form });
        }
    }
}
