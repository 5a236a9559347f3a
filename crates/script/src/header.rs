//! The first line of a script: `#!lua flags=no-writes`.

/// What the first line of a script says.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Header {
    /// The script changes nothing.
    pub is_read_only: bool,
    /// The script runs on no server of a cluster.
    pub is_not_for_clusters: bool,
}

/// Reads the first line. The rest is the text that is compiled.
///
/// # Errors
/// Valkey's own words.
pub(crate) fn header(text: &[u8]) -> Result<(Header, &[u8]), Vec<u8>> {
    let mut header = Header::default();
    if !text.starts_with(b"#!") {
        return Ok((header, text));
    }
    let end = text.iter().position(|byte| *byte == b'\n').ok_or(b"ERR Invalid script shebang".to_vec())?;
    let about = |what: &str, word: &[u8]| [what.as_bytes(), word].concat();
    let line = text[2..end].strip_suffix(b"\r").unwrap_or(&text[2..end]);
    let mut words = line.split(|byte| *byte == b' ').filter(|word| !word.is_empty());
    let engine = words.next().unwrap_or_default();
    if !engine.eq_ignore_ascii_case(b"lua") {
        return Err(about("ERR Could not find scripting engine '", &[engine, b"'"].concat()));
    }
    for word in words {
        let Some(flags) = word.strip_prefix(b"flags=") else {
            return Err(about("ERR Unknown lua shebang option: ", word));
        };
        for flag in flags.split(|byte| *byte == b',').filter(|flag| !flag.is_empty()) {
            match flag {
                b"no-writes" => header.is_read_only = true,
                b"no-cluster" => header.is_not_for_clusters = true,
                b"allow-oom" | b"allow-stale" | b"allow-cross-slot-keys" => {}
                _ => return Err(about("ERR Unexpected flag in script shebang: ", flag)),
            }
        }
    }
    Ok((header, &text[end..]))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_first_line_says_what_a_script_does() {
        let none = Header::default();
        assert_eq!(header(b"return 1"), Ok((none, &b"return 1"[..])));
        assert_eq!(header(b"#!lua\nreturn 1"), Ok((none, &b"\nreturn 1"[..])), "lines keep their numbers");
        let both = Header { is_read_only: true, is_not_for_clusters: true };
        assert_eq!(header(b"#!lua flags=no-writes,no-cluster,allow-oom\nx"), Ok((both, &b"\nx"[..])));
        let error = |text: &'static str| {
            header(text.as_bytes()).map_err(|error| String::from_utf8_lossy(&error).into_owned())
        };
        assert_eq!(error("#!lua").unwrap_err(), "ERR Invalid script shebang");
        assert_eq!(error("#!js\n").unwrap_err(), "ERR Could not find scripting engine 'js'");
        assert_eq!(error("#!lua flags=x\n").unwrap_err(), "ERR Unexpected flag in script shebang: x");
        assert_eq!(error("#!lua x=y\n").unwrap_err(), "ERR Unknown lua shebang option: x=y");
    }
}
