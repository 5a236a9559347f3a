//! `... HELP`: what the subcommands of a command do, from the table of commands.

use larder_protocol::resp::{Command, all, compose as words};

/// Words the help of the command that this one is below, or of the command itself.
pub(in crate::dispatch) fn compose(out: &mut Vec<u8>, command: &Command) {
    let is_above = |above: &&Command| above.subcommands.iter().any(|sub| sub.id == command.id);
    let command = all().find(is_above).unwrap_or(command);
    let name = command.name.to_uppercase();
    let mut lines = vec![format!("{name} <subcommand> [<arg> [value] [opt] ...]. Subcommands are:")];
    for sub in command.subcommands {
        let mut line = sub.name.to_uppercase();
        if !sub.syntax.is_empty() {
            line.push(' ');
            line.push_str(sub.syntax);
        }
        lines.push(line);
        lines.push(format!("    {}", sub.summary));
    }
    words::array_head(out, lines.len());
    lines.iter().for_each(|line| words::simple(out, line));
}
