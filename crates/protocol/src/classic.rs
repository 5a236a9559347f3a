//! Every line of the protocol by its command name. The classic commands are read here; `meta` and `admin` read
//! theirs.

use memchr::memchr;

use crate::admin;
use crate::keys::find_keys;
use crate::limits::{KEY_BYTES_MAX, LINE_BYTES_MAX, LINE_BYTES_MIN, VALUE_BYTES_MAX, WHOLE_LINE_BYTES_MAX};
use crate::line::{Line, get_line_limit, line_limit, line_text_end, with_block};
use crate::meta::{Meta, MetaVerb, read_flags, read_flags_of_debug};
use crate::reply;
use crate::request::{Request, Store, StoreVerb};
use crate::scan::{
    Words, abbreviates, last_word, number_i32, number_u32, number_u64, wrapped_i32, wrapped_u32,
};
use crate::step::{ParseOptions, Step};

/// Reads any line. `fast` handles the frequent spellings more quickly.
#[inline(never)]
pub(crate) fn any_line<'a>(input: &'a [u8], options: &ParseOptions) -> Step<'a> {
    let limit = line_limit(input, options);
    let window = &input[..input.len().min(limit.max(WHOLE_LINE_BYTES_MAX).saturating_add(1))];
    let Some(newline) = memchr(b'\n', window) else {
        return if input.len() <= limit {
            Step::NeedMore { at_least: input.len() + 1 }
        } else if limit > LINE_BYTES_MAX && limit == get_line_limit(options) {
            Step::Refuse(reply::NO_MEMORY_REQUEST)
        } else {
            Step::Close
        };
    };
    let consumed = newline + 1;
    if consumed < LINE_BYTES_MIN {
        return Step::Reject { error: reply::BAD_FORMAT, consumed, swallow: 0 };
    }
    let text = &input[..line_text_end(input, newline)];
    dispatch(input, text, consumed, options)
}

/// Reads one complete line: `text` is the line without its end, and `consumed` is its length with the end.
fn dispatch<'a>(input: &'a [u8], text: &'a [u8], consumed: usize, options: &ParseOptions) -> Step<'a> {
    let line = Line { input, text, consumed, options: *options };
    let mut words = Words::new(text);
    let command = words.next().unwrap_or_default();
    // memcached looks for the spaces before a command only where the command has a function of its own.
    if text.starts_with(b" ") {
        return administer(&line, command, words);
    }
    match command {
        b"get" => keys(&line, words, false, None),
        b"gets" => keys(&line, words, true, None),
        b"gat" => gat(&line, words, false),
        b"gats" => gat(&line, words, true),
        b"set" => store(&line, words, StoreVerb::Set),
        b"add" => store(&line, words, StoreVerb::Add),
        b"replace" => store(&line, words, StoreVerb::Replace),
        b"append" => store(&line, words, StoreVerb::Append),
        b"prepend" => store(&line, words, StoreVerb::Prepend),
        b"cas" => store(&line, words, StoreVerb::Cas),
        b"delete" => keyed(&line, words, delete),
        b"flush_prefix" => keyed(&line, words, flush_prefix),
        b"touch" => keyed(&line, words, touch),
        b"incr" => keyed(&line, words, |key, words, noreply| arith(key, words, true, noreply)),
        b"decr" => keyed(&line, words, |key, words, noreply| arith(key, words, false, noreply)),
        b"mg" => meta(&line, words, MetaVerb::Get),
        b"ms" => meta_set(&line, words),
        b"md" => meta(&line, words, MetaVerb::Delete),
        b"ma" => meta(&line, words, MetaVerb::Arith),
        b"mf" => meta(&line, words, MetaVerb::Flush),
        b"me" => meta(&line, words, MetaVerb::Debug),
        b"mn" => line.answer(Ok(Request::MetaNoop), false),
        b"version" => line.answer(Ok(Request::Version), false),
        b"quit" => line.answer(Ok(Request::Quit), false),
        b"stats" => line.answer(admin::stats(words).map(Request::Stats), false),
        b"watch" => line.answer(admin::watch(words).map(Request::Watch), false),
        _ => administer(&line, command, words),
    }
}

/// The commands on the whole server, and what is no command.
fn administer<'a>(line: &Line<'a>, command: &[u8], words: Words<'a>) -> Step<'a> {
    let last = last_word(line.text);
    let noreply = last == b"noreply";
    let request = match command {
        b"verbosity" => verbosity(words, noreply),
        b"flush_all" => flush_all(words, noreply),
        b"cache_memlimit" => cache_memlimit(words, noreply),
        b"shutdown" => shutdown(words),
        b"debugtime" => admin::debugtime(words).map(Request::DebugTime),
        b"slabs" => admin::slabs(words).map(Request::Slabs),
        b"worth" => admin::worth(words).map(Request::Worth),
        b"lru" => admin::lru(words).map(Request::Lru),
        b"lru_crawler" => admin::lru_crawler(words).map(Request::LruCrawler),
        b"extstore" => admin::extstore(words).map(Request::Extstore),
        b"config" => config(words),
        b"refresh_certs" => Ok(Request::RefreshCerts),
        _ if last.len() < line.text.len() && last.starts_with(b"HTTP/") => return Step::Close,
        _ => Err(reply::ERROR),
    };
    match request {
        // They tune what Larder does not have: without a reply there is nothing to do.
        Ok(Request::Slabs(_) | Request::Lru(_) | Request::Extstore(_)) if noreply => {
            line.reject(reply::OK, noreply, 0)
        }
        request => line.answer(request, noreply),
    }
}

/// `config get cluster`, the one setting that clients ask for.
fn config(mut words: Words<'_>) -> Result<Request<'_>, &'static str> {
    match (words.next(), words.next(), words.next()) {
        (Some(b"get"), Some(b"cluster"), None) => Ok(Request::Fleet),
        _ => Err(reply::ERROR),
    }
}

/// A retrieval whose keys are the remaining words.
fn keys<'a>(line: &Line<'a>, words: Words<'a>, with_cas: bool, exptime: Option<i32>) -> Step<'a> {
    let from = line.text.len() - words.rest().len();
    match find_keys(line.input, from) {
        Some(found) => found.answer(with_cas, exptime),
        None => line.reject(reply::BAD_FORMAT, false, 0),
    }
}

fn gat<'a>(line: &Line<'a>, mut words: Words<'a>, with_cas: bool) -> Step<'a> {
    let (Some(exptime), true) = (words.next(), words.clone().next().is_some()) else {
        return line.reject(reply::BAD_FORMAT, false, 0);
    };
    match number_i32(exptime) {
        Some(exptime) => keys(line, words, with_cas, Some(exptime)),
        None => line.reject(reply::BAD_EXPTIME, false, 0),
    }
}

/// `<key> <flags> <exptime> <bytes> [cas] [noreply]`. Words that follow are ignored. If `<bytes>` could be read, a
/// refused line takes its data block with it; otherwise its error is sent even with `noreply`.
fn store<'a>(line: &Line<'a>, mut words: Words<'a>, verb: StoreVerb) -> Step<'a> {
    let mut next = || words.next().unwrap_or_default();
    let [key, flags, exptime, bytes] = [next(), next(), next(), next()];
    let Some(bytes) = value_bytes(bytes) else {
        return line.reject(reply::BAD_FORMAT, false, 0);
    };
    let noreply = last_word(line.text) == b"noreply";
    let cas = if verb == StoreVerb::Cas { number_u64(next()) } else { Some(0) };
    let (Some(flags), Some(exptime), Some(cas), true) =
        (wrapped_u32(flags), wrapped_i32(exptime), cas, key.len() <= KEY_BYTES_MAX)
    else {
        return line.reject(reply::BAD_FORMAT, noreply, u64::from(bytes) + 2);
    };
    with_block(line.input, line.consumed, bytes, noreply, &line.options, |data| {
        Request::Store(Store { verb, key, flags, exptime, cas, noreply, bytes, data })
    })
}

/// The length of a value that a storage line announces.
fn value_bytes(word: &[u8]) -> Option<u32> {
    number_i32(word).and_then(|bytes| u32::try_from(bytes).ok()).filter(|&bytes| bytes <= VALUE_BYTES_MAX)
}

/// A `delete` with this many words behind the key is refused.
const DELETE_WORDS_MAX: usize = 4;

/// `<key> ... [noreply]`: checks the key and leaves the other words to `read`.
fn keyed<'a>(
    line: &Line<'a>,
    mut words: Words<'a>,
    read: impl FnOnce(&'a [u8], Words<'a>, bool) -> Result<Request<'a>, &'static str>,
) -> Step<'a> {
    let Some(key) = words.next() else { return line.reject(reply::BAD_FORMAT, false, 0) };
    let noreply = last_word(words.rest()) == b"noreply";
    if key.len() > KEY_BYTES_MAX {
        return line.reject(reply::BAD_FORMAT, noreply, 0);
    }
    line.answer(read(key, words, noreply), noreply)
}

/// Extra words are ignored, as in memcached. But a line with more of them than an old time and a `noreply` is refused,
/// as libmemcached's conformance test expects.
fn delete<'a>(key: &'a [u8], words: Words<'a>, noreply: bool) -> Result<Request<'a>, &'static str> {
    if words.count() >= DELETE_WORDS_MAX {
        return Err(reply::BAD_FORMAT);
    }
    Ok(Request::Delete { key, noreply })
}

/// `flush_prefix <prefix> [noreply]`, and no more words: a prefix with a blank in it is none.
fn flush_prefix<'a>(
    prefix: &'a [u8],
    mut words: Words<'a>,
    noreply: bool,
) -> Result<Request<'a>, &'static str> {
    match (words.next(), words.next()) {
        (None, _) | (Some(b"noreply"), None) => Ok(Request::FlushPrefix { prefix, noreply }),
        _ => Err(reply::BAD_FORMAT),
    }
}

fn touch<'a>(key: &'a [u8], mut words: Words<'a>, noreply: bool) -> Result<Request<'a>, &'static str> {
    let exptime = words.next().ok_or(reply::BAD_FORMAT)?;
    let exptime = number_i32(exptime).ok_or(reply::BAD_EXPTIME)?;
    Ok(Request::Touch { key, exptime, noreply })
}

fn arith<'a>(
    key: &'a [u8],
    mut words: Words<'a>,
    incr: bool,
    noreply: bool,
) -> Result<Request<'a>, &'static str> {
    let delta = words.next().ok_or(reply::BAD_FORMAT)?;
    let delta = number_u64(delta).ok_or(reply::BAD_DELTA)?;
    Ok(Request::Arith { key, incr, delta, noreply })
}

fn meta<'a>(line: &Line<'a>, mut words: Words<'a>, verb: MetaVerb) -> Step<'a> {
    let flags = match words.next() {
        None => Err(reply::BAD_FORMAT),
        Some(key) if key.len() > KEY_BYTES_MAX => {
            Err(if verb == MetaVerb::Arith { reply::INVALID_OR_DUPLICATE_FLAG } else { reply::BAD_FORMAT })
        }
        Some(key) if verb == MetaVerb::Debug => {
            read_flags_of_debug(key, words.rest()).map(|flags| (key, flags))
        }
        Some(key) => read_flags(verb, key, words.rest(), 2).map(|flags| (key, flags)),
    };
    let request = flags.map(|(key, flags)| Request::Meta(Meta { verb, key, flags, bytes: 0, data: &[] }));
    line.answer(request, false)
}

/// `ms <key> <datalen> <flag>*`. If the length could be read, a refused line takes its data block with it.
fn meta_set<'a>(line: &Line<'a>, mut words: Words<'a>) -> Step<'a> {
    let verb = MetaVerb::Set;
    let (Some(key), Some(bytes)) = (words.next(), words.next()) else {
        return line.reject(reply::BAD_FORMAT, false, 0);
    };
    let Some(bytes) = value_bytes(bytes) else {
        return line.reject(reply::BAD_FORMAT, false, 0);
    };
    let swallow = u64::from(bytes) + 2;
    if key.len() > KEY_BYTES_MAX {
        return line.reject(reply::BAD_FORMAT, false, swallow);
    }
    match read_flags(verb, key, words.rest(), 3) {
        Ok(flags) => with_block(line.input, line.consumed, bytes, false, &line.options, |data| {
            Request::Meta(Meta { verb, key, flags, bytes, data })
        }),
        Err(error) => line.reject(error, false, swallow),
    }
}

/// A request, or the reply that refuses its line.
type Answer<'a> = Result<Request<'a>, &'static str>;

fn verbosity<'a>(mut words: Words<'a>, noreply: bool) -> Answer<'a> {
    let level = words.next().and_then(number_u32).ok_or(reply::BAD_FORMAT)?;
    Ok(Request::Verbosity { level: level.min(2) as u8, noreply })
}

fn flush_all<'a>(mut words: Words<'a>, noreply: bool) -> Answer<'a> {
    let exptime = match words.next() {
        None => None,
        Some(b"noreply") if words.next().is_none() => None,
        Some(word) => Some(number_i32(word).ok_or(reply::BAD_EXPTIME)?),
    };
    Ok(Request::FlushAll { exptime, noreply })
}

fn cache_memlimit<'a>(mut words: Words<'a>, noreply: bool) -> Answer<'a> {
    let megabytes = words.next().and_then(number_u32).ok_or(reply::ERROR)?;
    Ok(Request::CacheMemlimit { megabytes, noreply })
}

fn shutdown<'a>(mut words: Words<'a>) -> Answer<'a> {
    match words.next() {
        None => Ok(Request::Shutdown { graceful: Some(false) }),
        Some(word) if abbreviates(word, b"graceful") && words.next().is_none() => {
            Ok(Request::Shutdown { graceful: Some(true) })
        }
        Some(_) => Ok(Request::Shutdown { graceful: None }),
    }
}
