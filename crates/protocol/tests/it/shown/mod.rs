//! Steps and requests as readable lines of text.

use larder_protocol::{MetaVerb, ParseOptions, Request, Step, Worth, parse};

/// Every step of a buffer, as text. Swallowed bytes are skipped, and uploads are completed.
#[allow(dead_code, reason = "not every test file plays whole sessions")]
pub(crate) fn session(mut input: &[u8], options: &ParseOptions) -> Vec<String> {
    let mut shown = Vec::new();
    while !input.is_empty() {
        let step = parse(input, options);
        shown.push(show(&step));
        let skip = match step {
            Step::NeedMore { .. } | Step::Close | Step::Refuse(_) => break,
            Step::Request { consumed, .. } => consumed,
            Step::Upload { consumed, body_bytes, .. } => consumed + body_bytes as usize + 2,
            Step::Reject { consumed, swallow, .. } => consumed + swallow as usize,
        };
        input = input.get(skip..).unwrap_or_default();
    }
    shown
}

/// One step.
pub(crate) fn show(step: &Step<'_>) -> String {
    match step {
        Step::NeedMore { at_least } => format!("... {at_least}"),
        Step::Close => "close".into(),
        Step::Refuse(error) => format!("close after {}", error.trim_end()),
        Step::Request { request, .. } => show_request(request),
        Step::Upload { request, body_bytes, .. } => format!("upload {body_bytes}: {}", show_request(request)),
        Step::Reject { error, swallow, .. } => {
            let error =
                if error.is_empty() { "silence" } else { error.strip_suffix("\r\n").expect("a line") };
            if *swallow == 0 { format!("! {error}") } else { format!("! {error} (swallow {swallow})") }
        }
    }
}

fn text(bytes: &[u8]) -> String {
    if bytes.len() > 40 {
        return format!("{}*{}", bytes[..1].escape_ascii(), bytes.len());
    }
    bytes.escape_ascii().to_string()
}

fn show_request(request: &Request<'_>) -> String {
    match request {
        Request::Get(get) => {
            assert_eq!(get.keys.len(), get.keys.clone().count());
            assert_eq!(get.keys.peek(), get.keys.clone().next());
            let keys: Vec<String> = get.keys.clone().map(text).collect();
            let cas = if get.with_cas { " cas" } else { "" };
            let exptime = get.exptime.map_or(String::new(), |exptime| format!(" exptime={exptime}"));
            format!("get{cas}{exptime} [{}]", keys.join(", "))
        }
        Request::Store(store) => {
            let mut line = format!("{:?}", store.verb).to_lowercase();
            line += &format!(" {} flags={} exptime={}", text(store.key), store.flags, store.exptime);
            if store.cas != 0 {
                line += &format!(" cas={}", store.cas);
            }
            if store.noreply {
                line += " noreply";
            }
            line + format!(" {}: {}", store.bytes, text(store.data)).trim_end()
        }
        Request::Meta(meta) => {
            let verb = match meta.verb {
                MetaVerb::Get => "mg",
                MetaVerb::Set => "ms",
                MetaVerb::Delete => "md",
                MetaVerb::Arith => "ma",
                MetaVerb::Debug => "me",
                MetaVerb::Flush => "mf",
            };
            let mut line = format!("{verb} {}", text(meta.key));
            let flags = &meta.flags;
            for (letter, rest) in flags {
                assert!(flags.has(letter));
                let letter = char::from(letter);
                match letter {
                    'T' => line += &format!(" T={}", flags.ttl),
                    'N' => line += &format!(" N={}", flags.n),
                    'R' => line += &format!(" R={}", flags.r),
                    'C' => line += &format!(" C={}", flags.compare),
                    'E' => line += &format!(" E={}", flags.explicit_cas),
                    'D' => line += &format!(" D={}", flags.delta),
                    'J' => line += &format!(" J={}", flags.initial),
                    'F' => line += &format!(" F={}", flags.client_flags),
                    'G' => line += &format!(" G={}", flags.penalty_us),
                    'M' => line += &format!(" M={}", char::from(flags.mode)),
                    'O' => line += &format!(" O={}", text(flags.opaque.expect("an opaque"))),
                    _ => line += &format!(" {letter}{}", text(rest)),
                }
            }
            if meta.verb == MetaVerb::Set {
                line += format!(" {}: {}", meta.bytes, text(meta.data)).trim_end();
            }
            line
        }
        Request::FlushPrefix { prefix, noreply } => {
            format!("flush_prefix {}{}", text(prefix), if *noreply { " noreply" } else { "" })
        }
        Request::Worth(Worth::Mode(name)) => format!("worth mode={}", text(name)),
        Request::Worth(Worth::Objective(name)) => format!("worth objective={}", text(name)),
        other => format!("{other:?}").escape_default().to_string().replace("\\\"", "\""),
    }
}
