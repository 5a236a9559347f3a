//! One connection to a server: a batch of requests, then all of its replies.

use std::collections::BTreeMap;
use std::io::{Read, Write};
use std::time::Duration;

use anyhow::{Context, Result, bail};

use crate::door::Stream;
use crate::reply::{Reply, parse};
use crate::wire::{Protocol, Wire};

/// See [`STORE_CONNECTIONS`].
pub(crate) const STORE_DEPTH: usize = 64;

/// Room for replies that are no values.
const INPUT_BYTES_MIN: usize = 4096;
/// A store of one byte that states a cost of one microsecond.
const COST_REQUEST: &[u8] = b"ms larder:bench:cost 1 G1\r\nx\r\n";

/// One connection on which a batch is sent and all its replies are received.
pub(crate) struct Exchange<'a> {
    stream: Stream,
    wire: &'a Wire,
    out: Vec<u8>,
    input: Vec<u8>,
}

impl<'a> Exchange<'a> {
    /// An exchange over `stream` of batches of at most `batch` requests.
    pub(crate) fn new(stream: Stream, wire: &'a Wire, batch: usize) -> Result<Self> {
        stream.socket().set_read_timeout(Some(Duration::from_secs(20)))?;
        let input = vec![0; wire.message_bytes_max() * batch + INPUT_BYTES_MIN];
        Ok(Self { stream, wire, out: Vec::new(), input })
    }

    /// GETs a batch. Returns the hits and adds every missing key to `missing` once.
    pub(crate) fn get(&mut self, ids: &[u32], missing: &mut Vec<u32>) -> Result<u64> {
        self.out.clear();
        ids.iter().for_each(|&id| self.wire.put_get(&mut self.out, id));
        let wire = self.wire;
        let mut hits = 0;
        self.replies(ids, |id, reply| {
            match reply {
                Reply::Hit(value) if wire.belongs(id, value) => hits += 1,
                Reply::Hit(_) => bail!("a wrong value for key {id}"),
                Reply::Miss if missing.contains(&id) => {}
                Reply::Miss => missing.push(id),
                other => bail!("GET was answered with {other:?}"),
            }
            Ok(())
        })?;
        Ok(hits)
    }

    /// SETs a batch of items that never expire. Returns how many were refused.
    pub(crate) fn set(&mut self, ids: &[u32]) -> Result<u64> {
        self.set_for(ids, |_| 0)
    }

    /// SETs a batch. `ttl_s` gives the time to live of an item in seconds; 0 = the item never expires. Returns how many
    /// were refused.
    pub(crate) fn set_for(&mut self, ids: &[u32], ttl_s: impl Fn(u32) -> u32) -> Result<u64> {
        self.out.clear();
        ids.iter().for_each(|&id| self.wire.put_set_for(&mut self.out, id, ttl_s(id)));
        let mut refused = 0;
        self.replies(ids, |_, reply| {
            match reply {
                Reply::Stored => {}
                Reply::Refused(_) => refused += 1,
                other => bail!("SET was answered with {other:?}"),
            }
            Ok(())
        })?;
        Ok(refused)
    }

    fn replies(&mut self, ids: &[u32], mut each: impl FnMut(u32, Reply<'_>) -> Result<()>) -> Result<()> {
        self.stream.write_all(&self.out).context("write")?;
        let (mut filled, mut at, mut answered) = (0, 0, 0);
        while answered < ids.len() {
            let read = self.stream.read(&mut self.input[filled..]).context("read")?;
            if read == 0 {
                bail!("the server closed the connection");
            }
            filled += read;
            while answered < ids.len() {
                let Ok(parsed) = parse(self.wire.protocol, &self.input[at..filled]) else {
                    bail!("a reply that is none");
                };
                let Some((reply, consumed)) = parsed else { break };
                each(ids[answered], reply)?;
                at += consumed;
                answered += 1;
            }
        }
        if at < filled {
            bail!("a reply without a request");
        }
        Ok(())
    }

    /// How many of a batch of keys the server holds, without a hit that would change what the server evicts.
    pub(crate) fn peek(&mut self, ids: &[u32]) -> Result<u64> {
        self.out.clear();
        ids.iter().for_each(|&id| self.wire.put_peek(&mut self.out, id));
        let lines = self.lines(|lines| lines.len() == ids.len())?;
        Ok(lines.iter().filter(|line| line.starts_with("ME ") || *line == ":1").count() as u64)
    }

    /// Whether a store may state what a miss of its key costs, with Larder's flag of `ms`.
    pub(crate) fn takes_costs(&mut self) -> Result<bool> {
        if self.wire.protocol != Protocol::Text {
            return Ok(false);
        }
        self.out.clear();
        self.out.extend_from_slice(COST_REQUEST);
        Ok(self.lines(|lines| !lines.is_empty())?[0] == "HD")
    }

    /// The number of items that the server says it holds.
    pub(crate) fn items(&mut self) -> Result<u64> {
        self.out.clear();
        if self.wire.protocol == Protocol::Resp {
            self.out.extend_from_slice(b"*1\r\n$6\r\nDBSIZE\r\n");
            let lines = self.lines(|lines| lines.len() == 1)?;
            return lines[0].trim_start_matches(':').parse().context("DBSIZE");
        }
        self.stats("stats")?
            .remove("curr_items")
            .context("stats lack curr_items")?
            .parse()
            .context("curr_items")
    }

    /// The number of items that the server says it has evicted since it started.
    pub(crate) fn evictions(&mut self) -> Result<u64> {
        if self.wire.protocol == Protocol::Resp {
            self.out.clear();
            self.out.extend_from_slice(b"*2\r\n$4\r\nINFO\r\n$5\r\nstats\r\n");
            let evicted = |line: &String| line.strip_prefix("evicted_keys:").map(str::to_owned);
            // The length of the reply, then its lines. What follows that one comes with it, or is not read.
            let lines = self.lines(|lines| lines.iter().any(|line| evicted(line).is_some()))?;
            return lines.iter().find_map(evicted).context("INFO")?.parse().context("evicted_keys");
        }
        self.stats("stats")?.remove("evictions").context("stats lack evictions")?.parse().context("evictions")
    }

    /// What `request`, a `stats` of memcached's protocol, is answered with; nothing if the server does not know it.
    pub(crate) fn stats(&mut self, request: &str) -> Result<BTreeMap<String, String>> {
        if self.wire.protocol != Protocol::Text {
            return Ok(BTreeMap::new());
        }
        self.out.clear();
        self.out.extend_from_slice(format!("{request}\r\n").as_bytes());
        let ends = |line: &String| line == "END" || line == "RESET" || line.contains("ERROR");
        let lines = self.lines(|lines| lines.last().is_some_and(ends))?;
        let words = lines.iter().filter_map(|line| line.strip_prefix("STAT ")?.split_once(' '));
        Ok(words.map(|(name, value)| (name.to_owned(), value.to_owned())).collect())
    }

    /// Sends what is in `out` and reads lines until `whole`.
    fn lines(&mut self, whole: impl Fn(&[String]) -> bool) -> Result<Vec<String>> {
        self.stream.write_all(&self.out).context("write")?;
        let (mut text, mut lines) = (Vec::new(), Vec::new());
        while !whole(&lines) {
            let read = self.stream.read(&mut self.input).context("read")?;
            if read == 0 {
                bail!("the server closed the connection");
            }
            text.extend_from_slice(&self.input[..read]);
            while let Some(end) = text.iter().position(|&byte| byte == b'\n') {
                let line: Vec<u8> = text.drain(..=end).collect();
                lines.push(String::from_utf8_lossy(&line).trim_end().to_owned());
            }
        }
        Ok(lines)
    }
}
