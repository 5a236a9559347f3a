//! Where values come from: a file with one value in each line, or a running server.

use super::Values;
use crate::replay::probe::{Way, meet};
use crate::replay::server::Blocking;
use crate::replay::{Credentials, Protocol, Server};
use crate::trace::events::unescaped;
use std::io::{BufRead, BufReader, Read, Write};
use std::path::PathBuf;
use std::time::Duration;

/// How long the server may take to answer.
const ANSWER_TIMEOUT: Duration = Duration::from_secs(10);
/// Keys that are asked for together.
const KEYS_TOGETHER: usize = 50;
/// The longest line, in bytes: a value of a file, or what a server says of a key.
const LINE_BYTES_MAX: u64 = 4 << 20;
/// The longest value of a server that is read, in bytes.
const VALUE_BYTES_MAX: usize = 64 << 20;

/// Where values come from.
pub enum Origin {
    /// A file, or standard input for `-`: a line is a value, or a key, a tab and a value.
    File(PathBuf),
    /// A server of memcached, Redis, Valkey or Larder.
    Server {
        /// Its address.
        server: Server,
        /// The protocol; `None` = detected.
        protocol: Option<Protocol>,
        /// The login.
        credentials: Option<Credentials>,
    },
}

/// Reads `count` values, or all that there are. `goes_on` is asked now and then.
///
/// # Errors
/// One line: the file or the server cannot be read, or the server lists no keys.
pub fn read(
    origin: &Origin,
    count: u64,
    values: &mut Values,
    goes_on: &dyn Fn() -> bool,
) -> Result<(), String> {
    match origin {
        Origin::File(path) => {
            let failed = |error: std::io::Error| format!("{}: {error}", path.display());
            if path.as_os_str() == "-" {
                return lines(&mut std::io::stdin().lock(), count, values, goes_on).map_err(failed);
            }
            let mut file = BufReader::new(std::fs::File::open(path).map_err(failed)?);
            lines(&mut file, count, values, goes_on).map_err(failed)
        }
        Origin::Server { server, protocol, credentials } => {
            let way = || Way {
                server,
                protocol: *protocol,
                credentials: credentials.as_ref(),
                database: None,
                timeout: ANSWER_TIMEOUT,
            };
            let (found, listing) = meet(&way())?;
            let (_, reading) = meet(&way())?;
            let mut asked = Asked { listing: BufReader::new(listing), reading: BufReader::new(reading) };
            let done = match found.protocol {
                Protocol::Memcached => asked.memcached(count, values, goes_on),
                Protocol::Resp => asked.resp(count, values, goes_on),
            };
            done.map_err(|error| format!("{server}: {error}"))
        }
    }
}

fn lines(
    file: &mut dyn BufRead,
    count: u64,
    values: &mut Values,
    goes_on: &dyn Fn() -> bool,
) -> std::io::Result<()> {
    let mut line = Vec::new();
    while values.count < count && goes_on() {
        line.clear();
        if file.take(LINE_BYTES_MAX).read_until(b'\n', &mut line)? == 0 {
            break;
        }
        let text = line.strip_suffix(b"\n").unwrap_or(&line);
        match text.iter().position(|byte| *byte == b'\t') {
            Some(tab) => values.add(&text[..tab], &text[tab + 1..]),
            None => values.add(b"", text),
        }
    }
    Ok(())
}

/// A server: one connection lists keys, and the other one reads their values.
struct Asked {
    listing: BufReader<Blocking>,
    reading: BufReader<Blocking>,
}

impl Asked {
    /// Keys come in the order of their hashes, which is one by chance, where the server knows that order.
    fn memcached(
        &mut self,
        count: u64,
        values: &mut Values,
        goes_on: &dyn Fn() -> bool,
    ) -> std::io::Result<()> {
        self.listing.get_mut().write_all(b"lru_crawler metadump hash\r\n")?;
        let mut said = line(&mut self.listing)?;
        if said != b"OK" && !said.starts_with(b"key=") && said != b"END" {
            self.listing.get_mut().write_all(b"lru_crawler metadump all\r\n")?;
            said = line(&mut self.listing)?;
        }
        if said == b"OK" {
            said = line(&mut self.listing)?;
        }
        let mut keys = Vec::new();
        loop {
            let is_over = said == b"END" || values.count >= count || !goes_on();
            if let Some(rest) = said.strip_prefix(b"key=") {
                let name = rest.split(|byte| *byte == b' ').next().unwrap_or_default();
                // A key that no request can name is left out.
                keys.extend(Some(unescaped(name).into_owned()).filter(|key| is_plain(key)));
            } else if !is_over {
                let why = format!("it lists no keys: '{}'", String::from_utf8_lossy(&said));
                return Err(std::io::Error::other(why));
            }
            if keys.len() >= KEYS_TOGETHER || is_over {
                self.get(&keys, values)?;
                keys.clear();
            }
            if is_over {
                return Ok(());
            }
            said = line(&mut self.listing)?;
        }
    }

    fn get(&mut self, keys: &[Vec<u8>], values: &mut Values) -> std::io::Result<()> {
        if keys.is_empty() {
            return Ok(());
        }
        self.reading.get_mut().write_all(&[&b"get "[..], &keys.join(&b' '), b"\r\n"].concat())?;
        loop {
            let head = line(&mut self.reading)?;
            if head == b"END" {
                return Ok(());
            }
            let mut words = head.split(|byte| *byte == b' ').skip(1);
            let key = words.next().unwrap_or_default().to_vec();
            let length = words.nth(1).and_then(number).ok_or_else(|| surprised(&head))?;
            let value = block(&mut self.reading, length)?;
            values.add(&key, &value);
        }
    }

    fn resp(&mut self, count: u64, values: &mut Values, goes_on: &dyn Fn() -> bool) -> std::io::Result<()> {
        let mut cursor = b"0".to_vec();
        while values.count < count && goes_on() {
            let ask = [&b"*4\r\n$4\r\nSCAN\r\n"[..], &bulk(&cursor), &bulk(b"COUNT"), &bulk(b"500")].concat();
            self.listing.get_mut().write_all(&ask)?;
            let keys = match (line(&mut self.listing)?, element(&mut self.listing)?) {
                (head, Some(next)) if head == b"*2" => {
                    cursor = next;
                    array(&mut self.listing)?
                }
                (head, _) => return Err(surprised(&head)),
            };
            for keys in keys.chunks(KEYS_TOGETHER) {
                let mut ask = format!("*{}\r\n", keys.len() + 1).into_bytes();
                ask.extend(bulk(b"MGET"));
                keys.iter().for_each(|key| ask.extend(bulk(key.as_deref().unwrap_or_default())));
                self.reading.get_mut().write_all(&ask)?;
                for (key, value) in keys.iter().zip(array(&mut self.reading)?) {
                    // What is no string has no value here.
                    if let (Some(key), Some(value)) = (key, value) {
                        values.add(key, &value);
                    }
                }
            }
            if cursor == b"0" {
                break;
            }
        }
        Ok(())
    }
}

/// Whether memcached's text protocol can name the key.
fn is_plain(key: &[u8]) -> bool {
    (1..=250).contains(&key.len()) && key.iter().all(|byte| *byte > b' ' && *byte != 0x7f)
}

fn surprised(said: &[u8]) -> std::io::Error {
    std::io::Error::other(format!("it answered '{}'", String::from_utf8_lossy(said)))
}

fn number(digits: &[u8]) -> Option<usize> {
    std::str::from_utf8(digits).ok()?.parse().ok()
}

fn bulk(word: &[u8]) -> Vec<u8> {
    [format!("${}\r\n", word.len()).as_bytes(), word, b"\r\n"].concat()
}

/// A line without its end.
fn line(from: &mut BufReader<Blocking>) -> std::io::Result<Vec<u8>> {
    let mut line = Vec::new();
    from.take(LINE_BYTES_MAX).read_until(b'\n', &mut line)?;
    let text = line.strip_suffix(b"\n").ok_or(std::io::ErrorKind::UnexpectedEof)?;
    Ok(text.strip_suffix(b"\r").unwrap_or(text).to_vec())
}

/// A value of known length, and the end of its line.
fn block(from: &mut BufReader<Blocking>, length: usize) -> std::io::Result<Vec<u8>> {
    if length > VALUE_BYTES_MAX {
        return Err(std::io::Error::other(format!("a value of {length} bytes is too long")));
    }
    let mut value = vec![0; length + 2];
    from.read_exact(&mut value)?;
    value.truncate(length);
    Ok(value)
}

/// A string of RESP; `None` = nothing is there.
fn element(from: &mut BufReader<Blocking>) -> std::io::Result<Option<Vec<u8>>> {
    let head = line(from)?;
    match head.strip_prefix(b"$").map(|digits| (digits == b"-1", number(digits))) {
        Some((true, _)) => Ok(None),
        Some((false, Some(length))) => block(from, length).map(Some),
        _ => Err(surprised(&head)),
    }
}

fn array(from: &mut BufReader<Blocking>) -> std::io::Result<Vec<Option<Vec<u8>>>> {
    let head = line(from)?;
    let count = head.strip_prefix(b"*").and_then(number).ok_or_else(|| surprised(&head))?;
    (0..count).map(|_| element(from)).collect()
}
