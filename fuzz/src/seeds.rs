//! Initial inputs: the requests of the transcripts.

use crate::mutate::Rng;
use crate::target::Target;
use crate::transcript;
use std::path::Path;

/// The initial inputs for a target.
pub fn of(target: Target) -> Vec<Vec<u8>> {
    let cases = transcript::cases();
    let sent = cases.iter().filter_map(transcript::Case::sent).filter(|sent| sent.len() < 4000);
    match target {
        Target::Parser => sent.collect(),
        // The first four bytes choose the pieces.
        Target::Dispatcher => sent.map(|sent| [&[3, 1, 0, 2], &sent[..]].concat()).collect(),
        Target::Structured => {
            let choices = |seed: u64| {
                let mut rng = Rng(seed);
                (0..200 + seed * 40).map(|_| rng.random() as u8).collect()
            };
            (0..40).map(choices).collect()
        }
    }
}

/// Writes the initial inputs to files in a folder.
///
/// # Errors
/// The folder or a file cannot be written.
pub fn write(target: Target, folder: &Path) -> std::io::Result<()> {
    std::fs::create_dir_all(folder)?;
    for (number, seed) in of(target).iter().enumerate() {
        std::fs::write(folder.join(format!("seed-{number}")), seed)?;
    }
    Ok(())
}
