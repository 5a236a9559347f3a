//! Detects the format of a file from its name and its first bytes.

use super::columns::{self, Column, Twitter};
use super::events::Teller;
use super::field::shown;
use super::format::Format;
use super::{oracle_general, records};

/// The byte order mark in UTF-8.
pub(super) const BYTE_ORDER_MARK: &[u8] = &[0xef, 0xbb, 0xbf];

/// The number of bytes examined.
pub(super) const HEAD_BYTES: usize = 24 * 1024;

/// The number of lines examined.
const LINES_MAX: usize = 5;

/// What captures of packets begin with: pcap with times in us and ns, in both orders of bytes, and pcapng.
const PACKETS: [[u8; 4]; 5] = [
    [0xd4, 0xc3, 0xb2, 0xa1],
    [0xa1, 0xb2, 0xc3, 0xd4],
    [0x4d, 0x3c, 0xb2, 0xa1],
    [0xa1, 0xb2, 0x3c, 0x4d],
    [0x0a, 0x0d, 0x0d, 0x0a],
];

/// The advice where the format cannot be detected.
fn hint() -> String {
    let names = Format::names(|_| true);
    format!("name it by --format: {names}; or name its columns, as in --columns time=1,key=2,size=3")
}

/// The non-empty lines.
fn lines(head: &[u8]) -> impl Iterator<Item = &[u8]> {
    let head = head.strip_prefix(BYTE_ORDER_MARK).unwrap_or(head);
    head.split(|&octet| octet == b'\n').map(<[u8]>::trim_ascii).filter(|line| !line.is_empty())
}

/// The first non-empty lines.
pub(super) fn first_lines(head: &[u8]) -> impl Iterator<Item = &[u8]> {
    lines(head).take(LINES_MAX)
}

/// The format of a file with this name and these first bytes.
///
/// # Errors
/// The reason why the format cannot be detected.
pub(super) fn detect(name: &str, head: &[u8]) -> Result<Format, String> {
    let name = name.to_ascii_lowercase();
    if name.contains("oraclegeneral") || name.contains("oracle-general") {
        if head.len() >= oracle_general::RECORD_BYTES && !oracle_general::is_plausible(head) {
            return Err("is named oracleGeneral but its first records are none; \
                        --format oracle-general reads it nevertheless"
                .to_owned());
        }
        return Ok(Format::OracleGeneral);
    }
    if records::is_lcs(head) {
        return Ok(Format::Lcs);
    }
    if PACKETS.iter().any(|magic| head.starts_with(magic)) {
        return Err("is a capture of packets: 'larder capture FILE -o TRACE' makes a trace of it".to_owned());
    }
    if is_utf16(head) {
        return Err("is a text in UTF-16; write it in UTF-8 first: iconv -f UTF-16 -t UTF-8".to_owned());
    }
    if is_binary(head) {
        if records::vscsi_version(head).is_some() {
            return Ok(Format::Vscsi);
        }
        if oracle_general::is_plausible(head) {
            return Ok(Format::OracleGeneral);
        }
        return Err(format!(
            "its format cannot be told: neither text nor records of a known kind; {}",
            hint()
        ));
    }
    let Some(first) = first_lines(head).next() else {
        return Err(format!("is empty, its format cannot be told; {}", hint()));
    };
    if let Some(teller) = first_lines(head).find_map(Teller::of_line) {
        return Ok(match teller {
            Teller::Watch => Format::Watch,
            Teller::Monitor => Format::Monitor,
        });
    }
    if columns::is_msr(first) {
        return Ok(Format::Msr);
    }
    let is_twitter = |line: &[u8]| Twitter::seen_in(line).is_some();
    // A key may be called `key`: the first line is no header if it is one of Twitter's.
    if is_twitter(first) || (first_lines(head).any(is_twitter) && !names_key(first)) {
        return Ok(Format::Twitter);
    }
    let separated = first.iter().any(|octet| matches!(octet, b',' | b'\t' | b';'));
    match (separated, names_key(first)) {
        (true, true) => Ok(Format::Csv),
        (false, true) if name.contains(".csv") => Ok(Format::Csv),
        // No key has a blank in it: this is a text of another kind.
        (false, _) => match lines(head).find(|line| line.contains(&b' ')) {
            None => Ok(Format::Keys),
            Some(line) => Err(format!(
                "does not look like a trace: '{}' is no key; --format keys reads a text line by line nevertheless, \
                 and --columns time=1,key=2,size=3 names columns between blanks",
                shown(line)
            )),
        },
        (true, false) => Err(format!(
            "its format cannot be told: '{}' is neither a header that names a key nor one \
             of Twitter's lines; {}",
            shown(first),
            hint()
        )),
    }
}

/// Whether a line is a header with a column for the key.
fn names_key(line: &[u8]) -> bool {
    let delimiter = columns::delimiter(line);
    line.split(|&octet| octet == delimiter).any(|name| Column::named(name) == Column::Key)
}

/// Whether it looks like a text in UTF-16: all letters have a zero before or behind them. A byte order mark may come
/// first.
fn is_utf16(head: &[u8]) -> bool {
    let has_mark = head.starts_with(&[0xff, 0xfe]) || head.starts_with(&[0xfe, 0xff]);
    let (first, least) = if has_mark { (&head[2..], 2) } else { (head, 16) };
    let first = &first[..first.len().min(64) & !1];
    let is_letter = |octet: u8| octet.is_ascii_graphic() || matches!(octet, b' ' | b'\t' | b'\r' | b'\n');
    let are_letters =
        |letter: usize| first.chunks(2).all(|unit| is_letter(unit[letter]) && unit[1 - letter] == 0);
    first.len() >= least && (are_letters(0) || are_letters(1))
}

/// Whether there is a byte that never occurs in text.
fn is_binary(head: &[u8]) -> bool {
    head.iter().any(|&octet| octet < 0x20 && !matches!(octet, b'\t' | b'\n' | b'\r' | 0x0c))
}
