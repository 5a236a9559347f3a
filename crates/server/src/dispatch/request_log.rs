//! What `-vv` logs of a request: one line with what was asked and how the reply begins.

use super::connection::{Connection, SessionState};
use super::protocol::Protocol;
use super::window::{Progressed, WindowOp};
use crate::io::Ready;
use larder_protocol::binary;

/// The longest part of a line that is logged, in bytes.
const LOGGED_BYTES_MAX: usize = 300;

/// Logs the first line of what was asked, or the key of a retrieval, and the first line of the reply. A value is never
/// logged, unless it is a counter.
#[cold]
pub(super) fn log_request<S: SessionState>(connection: &Connection<S>, asked: &[u8], answered_before: usize) {
    let answered = connection.output.bytes().get(answered_before..).unwrap_or_default();
    let (asked, answered) = match connection.protocol() {
        Protocol::Binary => (shown_request(asked), shown_reply(answered)),
        _ => (first_line(asked), first_line(answered)),
    };
    tracing::debug!(target: "larder::requests", "{}: {asked} -> {answered}", connection.progress.id);
}

/// How an entry of the window is logged.
pub(super) enum Logged {
    /// A key of a retrieval, by itself.
    Key,
    /// These words, and no others: those might be a password.
    Words(Vec<u8>),
    /// The first line of the input.
    Input,
    /// Not at all.
    Nothing,
}

/// Logs what was executed. What waits for the rest of its value, or for flash, is logged when it is answered.
#[cold]
pub(super) fn log_progress<S: SessionState, W>(
    ready: &Ready<'_, Connection<S>>,
    op: &WindowOp<'_, W>,
    logged: &Logged,
    progressed: Progressed,
    answered_before: usize,
) {
    let connection = &*ready.connection;
    let is_answered = match (logged, progressed) {
        (Logged::Nothing, _) => return,
        (_, Progressed::Waits) => false,
        (Logged::Key, _) => true,
        _ => connection.progress.busy.is_none(),
    };
    if is_answered || connection.output.len() > answered_before {
        let asked = match logged {
            Logged::Key => op.key,
            Logged::Words(words) => words,
            _ => &ready.input[ready.consumed..op.end],
        };
        log_request(connection, asked, answered_before);
    }
}

/// The first word of a line.
pub(super) fn first_word(line: &[u8]) -> &[u8] {
    line.trim_ascii().split(|byte| byte.is_ascii_whitespace()).next().unwrap_or_default()
}

fn first_line(text: &[u8]) -> String {
    let line = text.split(|&byte| byte == b'\n').next().unwrap_or_default();
    line[..line.len().min(LOGGED_BYTES_MAX)].trim_ascii_end().escape_ascii().to_string()
}

/// A packet in words, for the log: its opcode and its key.
#[cold]
fn shown_request(packet: &[u8]) -> String {
    let [_, opcode, k0, k1, extras_bytes, ..] = packet else { return String::new() };
    let body = packet.get(binary::HEADER_BYTES + usize::from(*extras_bytes)..).unwrap_or_default();
    let key = &body[..body.len().min(u16::from_be_bytes([*k0, *k1]).into())];
    format!("packet {opcode:#04x} {}", key.escape_ascii()).trim_end().to_string()
}

/// The status of the first packet of a reply.
#[cold]
fn shown_reply(packets: &[u8]) -> String {
    let [_, _, _, _, _, _, s0, s1, ..] = packets else { return String::new() };
    format!("status {:#04x}", u16::from_be_bytes([*s0, *s1]))
}
