//! Records of TLS in, bytes of the client out, and the other way round. No socket, and no memory of its own.

use crate::io::buffers::Buffers;
use crate::io::left_over::LeftOver;
use rustls::server::{ServerConnectionData, UnbufferedServerConnection};
use rustls::unbuffered::{
    ConnectionState, EncodeError, EncodeTlsData, EncryptError, InsufficientSizeError, UnbufferedStatus,
    WriteTraffic,
};

/// The most bytes that encrypting adds to each record: its header, the number of the record (TLS 1.2) or the type of
/// its content (TLS 1.3), and the authentication tag.
const RECORD_BYTES_BESIDE: usize = 5 + 8 + 16;
/// Room for most records of a handshake. A longer one, such as a chain of certificates, says how much it needs.
const HANDSHAKE_RECORD_BYTES: usize = 1024;
/// The most bytes of plain text in one record.
const RECORD_BYTES_MAX: usize = 16 << 10;

/// How far a conversation is.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Stage {
    /// The handshake goes on when more has come.
    Handshake,
    /// Both sides may send.
    Open,
    /// The client has said that it sends no more.
    Ended,
    /// The client broke the rules, or nothing can be agreed on. It is told why, and the connection ends.
    Failed,
    /// The plain text does not fit the buffers' limit.
    OutOfMemory,
}

/// Reads the records at the front of `input`. Returns how many bytes they take, and how far the conversation is now.
///
/// Plain text is added to `plain`, with as much memory as input of `wanted` bytes needs. What the client is to be sent
/// is added to `outgoing`. The start of an incomplete record is left in `input`, and has to come again.
pub(crate) fn read(
    connection: &mut UnbufferedServerConnection,
    input: &mut [u8],
    plain: &mut LeftOver,
    outgoing: &mut Vec<u8>,
    wanted: usize,
    buffers: &Buffers,
) -> (usize, Stage) {
    let (mut taken, mut has_ended, mut has_failed) = (0, false, false);
    loop {
        // After an error there is no more input, only what the client is told of the error.
        let rest = if has_failed { &mut [][..] } else { &mut input[taken..] };
        let UnbufferedStatus { mut discard, state } = connection.process_tls_records(rest);
        let stage = match state {
            Ok(ConnectionState::ReadTraffic(mut traffic)) => {
                let mut stage = None;
                while let Some(record) = traffic.next_record() {
                    let Ok(record) = record else {
                        stage = Some(Stage::Failed);
                        break;
                    };
                    discard += record.discard;
                    if !plain.append(record.payload, wanted, buffers) {
                        stage = Some(Stage::OutOfMemory);
                    }
                }
                stage
            }
            Ok(ConnectionState::EncodeTlsData(mut data)) => {
                encode(&mut data, outgoing);
                None
            }
            Ok(ConnectionState::TransmitTlsData(data)) => {
                data.done();
                None
            }
            Ok(ConnectionState::PeerClosed) => {
                has_ended = true;
                None
            }
            Ok(ConnectionState::Closed) => Some(Stage::Ended),
            Ok(_) if has_failed => Some(Stage::Failed),
            Ok(ConnectionState::WriteTraffic(_)) => Some(if has_ended { Stage::Ended } else { Stage::Open }),
            Ok(ConnectionState::BlockedHandshake) => Some(Stage::Handshake),
            Ok(_) => Some(Stage::Failed),
            Err(_) if !has_failed => {
                has_failed = true;
                None
            }
            Err(_) => Some(Stage::Failed),
        };
        taken += discard;
        if let Some(stage) = stage {
            return (taken, stage);
        }
    }
}

fn encode<Data>(data: &mut EncodeTlsData<'_, Data>, outgoing: &mut Vec<u8>) {
    let before = outgoing.len();
    let mut room = HANDSHAKE_RECORD_BYTES;
    loop {
        outgoing.resize(before + room, 0);
        match data.encode(&mut outgoing[before..]) {
            Ok(written) => return outgoing.truncate(before + written),
            Err(EncodeError::InsufficientSize(InsufficientSizeError { required_size })) => {
                room = required_size
            }
            Err(EncodeError::AlreadyEncoded) => return outgoing.truncate(before),
        }
    }
}

/// Encrypts `plain` behind what is in `outgoing`. Returns `false` if the connection can encrypt no more.
pub(crate) fn write(
    connection: &mut UnbufferedServerConnection,
    plain: &[u8],
    outgoing: &mut Vec<u8>,
) -> bool {
    let records = plain.len() / RECORD_BYTES_MAX + 1;
    let room = plain.len() + records * RECORD_BYTES_BESIDE;
    with_traffic(connection, outgoing, room, |traffic, room| traffic.encrypt(plain, room))
}

/// Says that nothing more will be sent.
pub(crate) fn say_goodbye(connection: &mut UnbufferedServerConnection, outgoing: &mut Vec<u8>) {
    with_traffic(connection, outgoing, RECORD_BYTES_BESIDE + 2, |traffic, room| {
        traffic.queue_close_notify(room)
    });
}

/// Encrypts something behind what is in `outgoing`, with `room` bytes for it, or more.
fn with_traffic(
    connection: &mut UnbufferedServerConnection,
    outgoing: &mut Vec<u8>,
    mut room: usize,
    mut encrypt: impl FnMut(&mut WriteTraffic<'_, ServerConnectionData>, &mut [u8]) -> Result<usize, EncryptError>,
) -> bool {
    loop {
        let UnbufferedStatus { state, .. } = connection.process_tls_records(&mut []);
        match state {
            Ok(ConnectionState::WriteTraffic(mut traffic)) => {
                let before = outgoing.len();
                outgoing.resize(before + room, 0);
                let written = encrypt(&mut traffic, &mut outgoing[before..]);
                outgoing.truncate(before + written.as_ref().map_or(0, |written| *written));
                match written {
                    Ok(_) => return true,
                    Err(EncryptError::InsufficientSize(InsufficientSizeError { required_size })) => {
                        room = required_size;
                    }
                    Err(EncryptError::EncryptExhausted) => return false,
                }
            }
            // New keys of this side go before what they encrypt.
            Ok(ConnectionState::EncodeTlsData(mut data)) => encode(&mut data, outgoing),
            Ok(ConnectionState::TransmitTlsData(data)) => data.done(),
            _ => return false,
        }
    }
}
