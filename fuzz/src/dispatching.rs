//! Sends any bytes, in any pieces, to a dispatcher over a small cache, which takes them for text.

use crate::choices::Choices;
use crate::talk::{Client, Talk, dispatcher};
use larder_protocol::limits::LINE_BYTES_MAX;
use larder_server::settings::{Protocol, Settings};

/// Memory limit of the cache (`-m`) in bytes.
const MEMORY_BYTES: u64 = 10 << 20;
/// Maximum output that may be ready at once: the backlog, and one more answer of the longest kind.
const OUTPUT_BYTES_MAX: usize = (64 << 10) + (4 << 20);

/// Serves the input twice, in one piece and in pieces chosen by its first bytes, and compares the answers.
pub(crate) fn run(input: &[u8], client: &Client<'_>) {
    let (head, stream) = input.split_at(input.len().min(4));
    let whole = answers(stream, client, &mut |left| left);
    check_form(&whole);
    // A dump and a watch must be the only request, which depends on the pieces.
    if [&b"lru_crawler"[..], b"watch"]
        .iter()
        .any(|word| stream.windows(word.len()).any(|window| window == *word))
    {
        return;
    }
    let mut choices = Choices::new(head);
    let longest = choices.of(&[1, 2, 7, 30, 200, 3000, 20_000]);
    let cut = answers(stream, client, &mut |left| left.min(1 + choices.below(longest)));
    // A long line without an end closes the connection; the answers before it remain.
    let is_long = stream.split(|&byte| byte == b'\n').any(|line| line.len() > LINE_BYTES_MAX);
    let (seen, seen_cut) = (without_numbers(&whole), without_numbers(&cut));
    assert!(
        seen == seen_cut || (is_long && seen.starts_with(&seen_cut)),
        "{}\n--- cut up:\n{}",
        shown(&whole),
        shown(&cut)
    );
}

/// The answers of a fresh dispatcher to `stream`, sent in pieces whose lengths `next` chooses.
fn answers(stream: &[u8], client: &Client<'_>, next: &mut dyn FnMut(usize) -> usize) -> Vec<u8> {
    let settings = Settings {
        memory_bytes: MEMORY_BYTES,
        threads: 1,
        debugtime_enabled: true,
        // Packets and RESP are for other targets, which know their replies.
        protocol: Protocol::Ascii,
        ..Settings::default()
    };
    let (mut dispatcher, cache) = dispatcher(settings, Some(1), None);
    cache.clock().hold();
    let mut talk = Talk::open(&mut dispatcher, client.peer);
    let mut rest = stream;
    while !rest.is_empty() {
        let (piece, more) = rest.split_at(next(rest.len()));
        talk.send(&mut dispatcher, piece);
        rest = more;
    }
    talk.close(&mut dispatcher);
    assert!(talk.output_bytes_max <= OUTPUT_BYTES_MAX, "{} bytes of output at once", talk.output_bytes_max);
    let used = cache.memory_use();
    let held = used.columns_bytes + used.index_bytes + used.bookkeeping_bytes;
    assert!(held <= MEMORY_BYTES, "{used:?}");
    talk.answered
}

/// The lines of the answers without the parts that vary.
fn without_numbers(answers: &[u8]) -> Vec<&[u8]> {
    let lines = answers.split_inclusive(|&byte| byte == b'\n');
    lines.map(|line| if line.starts_with(b"STAT ") { &b"STAT"[..] } else { line }).collect()
}

/// The possible starts of a line of an answer.
const BEGINNINGS: [&str; 37] = [
    "STORED",
    "NOT_STORED",
    "EXISTS",
    "NOT_FOUND",
    "DELETED",
    "TOUCHED",
    "OK",
    "END",
    "RESET",
    "HD",
    "EN",
    "NF",
    "NS",
    "EX",
    "MN",
    "ME ",
    "ERROR",
    "Error ",
    "CLIENT_ERROR ",
    "SERVER_ERROR ",
    "SERVER_ERROR: ",
    "VERSION ",
    "STAT ",
    "ITEM ",
    "PREFIX ",
    "MEMLIMIT_",
    "BUSY ",
    "BADCLASS ",
    "NOSPARE ",
    "SAME ",
    "NOTSTARTED ",
    "WATCHER_",
    "key=",
    "mg ",
    "HD ",
    "EN ",
    "NF ",
];

/// Checks that every line is one that a client can know, and that every value has the announced length.
fn check_form(answers: &[u8]) {
    let mut rest = answers;
    while !rest.is_empty() {
        let end =
            rest.iter().position(|&byte| byte == b'\n').unwrap_or_else(|| panic!("no end: {}", shown(rest)));
        let line = rest[..end].strip_suffix(b"\r").unwrap_or(&rest[..end]);
        rest = &rest[end + 1..];
        let words: Vec<&[u8]> = line.split(|&byte| byte == b' ').collect();
        let length = match words[0] {
            b"VALUE" => words.get(3),
            b"VA" => words.get(1),
            word => {
                let is_number = !word.is_empty() && word.iter().all(u8::is_ascii_digit);
                let is_known = BEGINNINGS.iter().any(|known| line.starts_with(known.as_bytes()));
                assert!(is_known || is_number, "what is {}?", shown(line));
                continue;
            }
        };
        let length: usize = length
            .and_then(|digits| std::str::from_utf8(digits).ok()?.parse().ok())
            .unwrap_or_else(|| panic!("no length: {}", shown(line)));
        assert!(
            rest.len() >= length + 2 && rest[length..].starts_with(b"\r\n"),
            "not {length} bytes: {}",
            shown(line)
        );
        rest = &rest[length + 2..];
    }
}

fn shown(bytes: &[u8]) -> String {
    bytes[..bytes.len().min(2000)].escape_ascii().to_string().replace("\\r\\n", "\n")
}
