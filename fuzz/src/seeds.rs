//! First inputs: what the cases of the transcripts send.

use crate::mutate::Numbers;
use crate::target::Target;
use crate::transcript;
use std::path::Path;

/// Inputs to begin with.
pub fn of(target: Target) -> Vec<Vec<u8>> {
    let cases = transcript::cases();
    let sent = cases.iter().filter_map(transcript::Case::sent).filter(|sent| sent.len() < 4000);
    match target {
        Target::Parser => sent.collect(),
        // The first four bytes choose the pieces.
        Target::Dispatcher => sent.map(|sent| [&[3, 1, 0, 2], &sent[..]].concat()).collect(),
        Target::Structured => {
            let choices = |seed: u64| {
                let mut numbers = Numbers(seed);
                (0..200 + seed * 40).map(|_| numbers.draw() as u8).collect()
            };
            (0..40).map(choices).collect()
        }
    }
}

/// Writes them to files of a folder.
///
/// # Errors
/// When the folder or a file cannot be written.
pub fn write(target: Target, folder: &Path) -> std::io::Result<()> {
    std::fs::create_dir_all(folder)?;
    for (number, seed) in of(target).iter().enumerate() {
        std::fs::write(folder.join(format!("seed-{number}")), seed)?;
    }
    Ok(())
}
