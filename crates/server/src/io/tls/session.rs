//! An encrypted connection behind its handshake.

use super::records::{self, Stage};
use crate::io::buffers::{Buffers, SessionCharge};
use crate::io::left_over::LeftOver;
use rustls::server::UnbufferedServerConnection;
use std::fmt;

/// Memory of a session, from the beginning of its handshake to its end: what was measured of both, rounded up.
pub(crate) const SESSION_BYTES: u64 = 6 << 10;

/// What one connection needs to encrypt and decrypt. It belongs to the connection's worker.
pub(crate) struct Session {
    connection: UnbufferedServerConnection,
    /// The start of a record whose rest has not come.
    incomplete: LeftOver,
    /// Records that go before anything else: session tickets, new keys, the reason of a failure.
    outgoing: Vec<u8>,
    has_said_goodbye: bool,
    /// The client broke the rules: nothing is said beside that.
    has_failed: bool,
    /// The memory of the session.
    _charge: SessionCharge,
}

impl fmt::Debug for Session {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        // Keys are not shown.
        f.debug_struct("Session").finish_non_exhaustive()
    }
}

impl Session {
    /// The session of a handshake that is done. `outgoing` = what of it is not sent.
    pub(crate) fn new(
        connection: UnbufferedServerConnection,
        incomplete: LeftOver,
        outgoing: Vec<u8>,
        charge: SessionCharge,
    ) -> Session {
        Session {
            connection,
            incomplete,
            outgoing,
            has_said_goodbye: false,
            has_failed: false,
            _charge: charge,
        }
    }

    /// Decrypts what has come. See [`records::read`].
    pub(crate) fn receive(
        &mut self,
        received: &mut [u8],
        plain: &mut LeftOver,
        wanted: usize,
        buffers: &Buffers,
    ) -> Stage {
        let stage = self.read(received, plain, wanted, buffers);
        self.has_failed |= stage == Stage::Failed;
        stage
    }

    fn read(&mut self, received: &mut [u8], plain: &mut LeftOver, wanted: usize, buffers: &Buffers) -> Stage {
        let Session { connection, incomplete, outgoing, .. } = self;
        if incomplete.bytes().is_empty() {
            let (taken, stage) = records::read(connection, received, plain, outgoing, wanted, buffers);
            let rest = &received[taken..];
            return match rest.is_empty() || incomplete.append(rest, record_bytes(rest), buffers) {
                true => stage,
                false => Stage::OutOfMemory,
            };
        }
        if !incomplete.append(received, record_bytes(incomplete.bytes()), buffers) {
            return Stage::OutOfMemory;
        }
        let (taken, stage) =
            records::read(connection, incomplete.bytes_mut(), plain, outgoing, wanted, buffers);
        incomplete.consume(taken, buffers);
        stage
    }

    /// Whether only the reason of the failure may still be sent.
    pub(crate) fn has_failed(&self) -> bool {
        self.has_failed
    }

    /// Whether there are records to be sent though the service has nothing to say.
    pub(crate) fn has_outgoing(&self) -> bool {
        !self.outgoing.is_empty()
    }

    /// Encrypts `plain`, behind the records that go before it. `None` = the connection can encrypt no more.
    pub(crate) fn encrypt(&mut self, plain: &[u8]) -> Option<Vec<u8>> {
        let mut outgoing = std::mem::take(&mut self.outgoing);
        records::write(&mut self.connection, plain, &mut outgoing).then_some(outgoing)
    }

    /// The records that go before anything else, if there are any.
    pub(crate) fn take_outgoing(&mut self) -> Option<Vec<u8>> {
        (!self.outgoing.is_empty()).then(|| std::mem::take(&mut self.outgoing))
    }

    /// Says, once, that nothing more will be sent.
    pub(crate) fn say_goodbye(&mut self) {
        if !self.has_failed && !std::mem::replace(&mut self.has_said_goodbye, true) {
            records::say_goodbye(&mut self.connection, &mut self.outgoing);
        }
    }

    /// Bytes of input that are accounted outside of the session's own charge.
    pub(crate) fn held_bytes(&self) -> u64 {
        self.incomplete.capacity()
    }

    /// Gives back what is accounted outside of the session's own charge.
    pub(crate) fn close(&mut self, buffers: &Buffers) {
        self.incomplete.clear(buffers);
    }
}

/// The length of the record that begins with these bytes, as far as it is known.
fn record_bytes(start: &[u8]) -> usize {
    match start {
        [_, _, _, high, low, ..] => 5 + usize::from(u16::from_be_bytes([*high, *low])),
        _ => 5,
    }
}
