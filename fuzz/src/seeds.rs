//! Initial inputs: the requests of the transcripts, packets of every opcode, commands of RESP, and compressed values.

use crate::mutate::Rng;
use crate::talk::resp_twin::{encoded, words};
use crate::target::Target;
use crate::transcript;
use larder_protocol::resp;
use std::path::Path;

/// The initial inputs for a target.
pub fn of(target: Target) -> Vec<Vec<u8>> {
    let cases = transcript::cases();
    let sent = cases.iter().filter_map(transcript::Case::sent).filter(|sent| sent.len() < 4000);
    match target {
        Target::Parser => sent.collect(),
        // The first four bytes choose the pieces.
        Target::Dispatcher => sent.map(|sent| [&[3, 1, 0, 2], &sent[..]].concat()).collect(),
        Target::Binary => crate::binary::seeds(),
        Target::Resp => of_resp(),
        Target::Compressed => crate::compressed::seeds(),
        Target::Structured => {
            let choices = |seed: u64| {
                let mut rng = Rng(seed);
                (0..200 + seed * 40).map(|_| rng.random() as u8).collect()
            };
            (0..40).map(choices).collect()
        }
    }
}

/// Requests of every command that there is, and broken ones.
fn of_resp() -> Vec<Vec<u8>> {
    let commands = resp::all().flat_map(|command| {
        let names = command.subcommands.iter().map(|sub| format!("{} {}", command.name, sub.name));
        names.chain((command.subcommands.is_empty()).then(|| command.name.to_owned())).map(|name| {
            let count = usize::from(command.arity.unsigned_abs());
            let rest = ["key", "1", "2", "value"].iter().take(count.saturating_sub(1).max(1));
            encoded(&[words(&name), rest.map(|word| word.as_bytes().to_vec()).collect()].concat())
        })
    });
    let lines = [
        "MULTI\r\nSET a 1\r\nINCR a\r\nWATCH a\r\nEXEC\r\nGET a\r\n",
        "SET a \"b\\x00\\n\" EX 10\r\nGETEX a PERSIST\r\nHELLO 3\r\nGET b\r\n",
        "CLIENT REPLY SKIP\r\nGET a\r\nSCAN 0 MATCH * COUNT 5 TYPE string\r\nKEYS *\r\n",
        "COMMAND DOCS\r\nCOMMAND\r\nCOMMAND LIST\r\n",
        "*1\r\n$-1\r\n",
        "*0\r\n\r\n*-1\r\n*2147483647\r\n",
        "*2\r\n$3\r\nGET\r\n$536870912\r\n",
        "SET a \"b\r\n",
        "*1\r\n*1\r\n*1\r\n",
    ];
    let large = encoded(&[words("SET large"), vec![vec![b'v'; 30_000]], words("EX 100 GET")].concat());
    let seeds = commands.chain(lines.map(|text| text.as_bytes().to_vec())).chain([large]);
    seeds.map(|seed| [&[3, 1, 0, 2], &seed[..]].concat()).collect()
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
