//! Fuzz targets for all protocols and for compressed values, and a driver that needs no coverage tool.
//!
//! A [`Target`] takes bytes and panics if something is wrong. [`Bench`] runs targets on a thread of its own, because
//! dispatchers cannot move between threads. [`seeds`] takes the initial inputs from the transcripts, and [`mutate`]
//! changes them.

mod binary;
mod choices;
mod compressed;
mod dispatching;
pub mod mutate;
mod parsing;
mod resp;
pub mod seeds;
mod structured;
#[path = "../../crates/server/tests/dispatch_support/mod.rs"]
mod talk;
mod target;
#[path = "../../crates/server/tests/dispatch_support/transcript.rs"]
mod transcript;

pub use target::{INPUT_BYTES_MAX, Target};

use std::sync::mpsc::{Receiver, SyncSender, sync_channel};

/// Runs inputs on a thread that dispatchers can use.
pub struct Bench {
    inputs: SyncSender<(Target, Vec<u8>)>,
    results: Receiver<Result<(), String>>,
}

impl Bench {
    /// Starts the thread, which ends with the process.
    pub fn start() -> Bench {
        let (inputs, to_run) = sync_channel::<(Target, Vec<u8>)>(1);
        let (done, results) = sync_channel(1);
        std::thread::spawn(move || {
            talk::on_a_connection(move |client| {
                for (target, input) in to_run {
                    let run = std::panic::AssertUnwindSafe(|| match target {
                        Target::Parser => parsing::run(&input),
                        Target::Dispatcher => dispatching::run(&input, client),
                        Target::Structured => structured::run(&input, client),
                        Target::Binary => binary::run(&input, client),
                        Target::Resp => resp::run(&input, client),
                        Target::Compressed => compressed::run(&input),
                    });
                    let result = std::panic::catch_unwind(run).map_err(|panic| {
                        let text = panic.downcast_ref::<String>().cloned();
                        text.or_else(|| panic.downcast_ref::<&str>().map(|text| (*text).to_owned()))
                            .unwrap_or_default()
                    });
                    if done.send(result).is_err() {
                        return;
                    }
                }
            })
        });
        Bench { inputs, results }
    }

    /// Runs one input.
    ///
    /// # Errors
    /// The text of the panic.
    pub fn run(&self, target: Target, input: &[u8]) -> Result<(), String> {
        let input = input[..input.len().min(INPUT_BYTES_MAX)].to_vec();
        self.inputs.send((target, input)).map_err(|_| "the bench ended".to_owned())?;
        self.results.recv().unwrap_or_else(|_| Err("the bench ended".to_owned()))
    }
}
