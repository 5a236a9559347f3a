//! The empty server: it answers every line with the same reply, so its cost is the cost of sockets alone.
//!
//! Usage: `empty ring|poll PORT VALUE_BYTES [WORKERS]`

use std::process::ExitCode;

use larder_server::io::{self, Backend, CloseReason, Conversation, ListenOptions, Peer, Ready, Service};

/// With this many bytes the output is full.
const OUTPUT_BYTES_MAX: usize = 64 * 1024;

struct Canned {
    reply: Vec<u8>,
}

#[derive(Default)]
struct Lines {
    output: Vec<u8>,
    spare: Vec<u8>,
}

impl Service for Canned {
    type Connection = Lines;

    fn open(&mut self, _peer: &Peer<'_>) -> Lines {
        Lines::default()
    }

    fn serve(&mut self, batch: &mut [Ready<'_, Lines>]) {
        for one in batch {
            for (at, _) in one.input.iter().enumerate().filter(|(_, byte)| **byte == b'\n') {
                if one.connection.output.len() >= OUTPUT_BYTES_MAX {
                    break;
                }
                one.connection.output.extend_from_slice(&self.reply);
                one.consumed = at + 1;
            }
        }
    }

    fn closed(&mut self, _connection: Lines, _reason: CloseReason) {}
    fn before_wait(&mut self) {}
    fn after_wait(&mut self) {}
    fn tick(&mut self, _now_s: u32) {}
}

impl Conversation for Lines {
    fn take_output(&mut self) -> Option<Vec<u8>> {
        let spare = std::mem::take(&mut self.spare);
        (!self.output.is_empty()).then(|| std::mem::replace(&mut self.output, spare))
    }

    fn recycle(&mut self, mut buffer: Vec<u8>) {
        buffer.clear();
        if self.output.capacity() == 0 {
            self.output = buffer;
        } else {
            self.spare = buffer;
        }
    }

    fn has_output(&self) -> bool {
        !self.output.is_empty()
    }

    fn wants_close(&self) -> bool {
        false
    }

    fn wants_input(&self) -> bool {
        self.output.len() < OUTPUT_BYTES_MAX
    }

    fn input_wanted(&self) -> usize {
        0
    }
}

fn main() -> ExitCode {
    let arguments: Vec<String> = std::env::args().collect();
    let number = |at: usize| arguments.get(at).and_then(|text| text.parse::<usize>().ok());
    let (Some(backend), Some(port), Some(value_bytes)) = (arguments.get(1), number(2), number(3)) else {
        eprintln!("usage: empty ring|poll PORT VALUE_BYTES [WORKERS]");
        return ExitCode::FAILURE;
    };
    let options = ListenOptions {
        tcp_port: Some(port as u16),
        addresses: vec!["127.0.0.1".into()],
        workers: number(4).unwrap_or(1),
        backend: if backend == "poll" { Backend::Poll } else { Backend::Ring },
        ..ListenOptions::default()
    };
    let value = "x".repeat(value_bytes);
    let reply =
        format!("VALUE facebook:app:object:1000000000 0 {value_bytes}\r\n{value}\r\nEND\r\n").into_bytes();
    let ended =
        io::start(&options, move |_| Canned { reply: reply.clone() }).map_err(|error| error.to_string());
    match ended.and_then(|running| running.join().map_err(|error| error.to_string())) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("{error}");
            ExitCode::FAILURE
        }
    }
}
