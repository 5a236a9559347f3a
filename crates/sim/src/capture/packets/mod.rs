//! Captures of packets, as `tcpdump -w` writes them: what the clients of memcached or Redis ask for in them.
//!
//! ```text
//!   file (packets) -> segment (of TCP) -> stream (one direction) -> talk (requests, answers) -> Asked
//! ```
//!
//! A connection takes at most about 10 MiB of memory, and a few hundred bytes where nothing is missing.

mod file;
mod memcached;
mod reader;
mod resp;
mod segment;
mod stream;
mod talk;
#[cfg(test)]
mod tests;
mod waiting;

use std::collections::HashMap;
use std::net::SocketAddr;
use std::path::Path;
use std::time::Duration;

use self::file::{File, Packet};
use self::segment::Segment;
use self::stream::Stream;
use self::talk::{Counts, Talk};
use super::{Listener, Times};
use crate::trace::asked::Asked;
use crate::{Fields, Request, SourceError};

/// The ports of memcached and Redis.
pub const PORTS: [u16; 2] = [11211, 6379];

/// Requests that may wait for their answers.
const WAITING_MAX: usize = 1 << 16;
/// Packets of one call.
const PACKETS: usize = 4096;
/// The most connections that are followed at a time, and for how long nothing may come on one where there are more.
const CONNECTIONS_MAX: usize = 100_000;
const IDLE_US_MAX: u64 = 60_000_000;

/// A connection of a client.
struct Connection {
    client: Stream,
    server: Stream,
    talk: Talk,
    latest_us: u64,
    /// How many directions have ended.
    ended: [bool; 2],
}

/// What the connections have in common.
struct Heard {
    asked: Asked,
    counts: Counts,
    lost_bytes: u64,
    /// Connections without a request that was recognised.
    silent: u64,
}

/// The connections of a capture: by the addresses of client and server.
struct Connections {
    of_peers: HashMap<(SocketAddr, SocketAddr), Connection>,
    heard: Heard,
    /// Packets of connections that there was no room for.
    turned_away: u64,
    /// When idle connections were looked for, in microseconds.
    looked_us: u64,
}

/// A capture of packets that is being read.
pub struct Packets {
    file: File,
    ports: Vec<u16>,
    /// How long to read, in microseconds of the capture's time.
    lasts_us: u64,
    first_us: Option<u64>,
    connections: Connections,
    times: Times,
    /// Packets that could not be read, and why the first one could not.
    unread: u64,
    unread_first: Option<String>,
}

impl Packets {
    /// Opens a capture of the traffic to servers at these ports. `lasts`: as much of its time is read.
    ///
    /// # Errors
    /// The file cannot be opened, or is no capture of packets.
    pub fn open(path: &Path, ports: &[u16], lasts: Option<Duration>) -> Result<Packets, SourceError> {
        let heard =
            Heard { asked: Asked::new(WAITING_MAX), counts: Counts::default(), lost_bytes: 0, silent: 0 };
        Ok(Packets {
            file: File::open(path)?,
            ports: ports.to_vec(),
            lasts_us: lasts.map_or(u64::MAX, |lasts| lasts.as_micros().try_into().unwrap_or(u64::MAX)),
            first_us: None,
            connections: Connections { of_peers: HashMap::new(), heard, turned_away: 0, looked_us: 0 },
            times: Times::default(),
            unread: 0,
            unread_first: None,
        })
    }

    fn give(&mut self, into: &mut Vec<Request>, is_over: bool) {
        while let Some(one) = self.connections.heard.asked.pop(is_over) {
            into.push(self.times.stamp(one));
        }
    }
}

impl Listener for Packets {
    fn fields(&self) -> Fields {
        Fields { times: true, sizes: true, ops: true, ttls: true, penalties: true }
    }

    fn take(&mut self, into: &mut Vec<Request>) -> Result<bool, SourceError> {
        let mut is_late = false;
        for _ in 0..PACKETS {
            let Packets { file, ports, connections, .. } = self;
            let (first_us, lasts_us) = (&mut self.first_us, self.lasts_us);
            let mut unread = None;
            let goes_on = file.next(|packet: &Packet<'_>| {
                let first_us = *first_us.get_or_insert(packet.time_us);
                is_late = packet.time_us.saturating_sub(first_us) >= lasts_us;
                match segment::read(packet) {
                    Ok(Some(segment)) if !is_late => connections.take(&segment, ports),
                    Ok(_) => {}
                    Err(why) => unread = Some(why),
                }
            })?;
            if let Some(why) = unread {
                self.unread += 1;
                self.unread_first.get_or_insert(why);
            }
            if !goes_on || is_late {
                return Ok(false);
            }
        }
        self.give(into, false);
        Ok(true)
    }

    fn end(&mut self, into: &mut Vec<Request>) {
        self.connections.end();
        self.give(into, true);
    }

    fn hit_ratio(&self) -> Option<(f64, u64)> {
        self.connections.heard.asked.hit_ratio()
    }

    fn notice(&self) -> Option<String> {
        let Connections { heard, turned_away, .. } = &self.connections;
        let counted = |count: u64, what: &str| (count > 0).then(|| format!("{what}: {count}"));
        let why = self.unread_first.as_deref().unwrap_or_default();
        let parts = [
            self.file.notice(),
            counted(heard.lost_bytes, "bytes that were not captured"),
            counted(heard.counts.losses, "losses of requests, after which the next one was looked for"),
            counted(heard.asked.cut(), "requests left out because their key was not captured whole"),
            counted(heard.counts.others, "other commands"),
            counted(heard.silent, "connections without a request of memcached's text protocol or of Redis's"),
            counted(*turned_away, "packets of connections that there was no room for"),
            counted(self.unread, &format!("packets that could not be read, the first one because {why}")),
        ];
        let parts: Vec<String> = parts.into_iter().flatten().collect();
        (!parts.is_empty()).then(|| format!("{}: {}", self.file.name(), parts.join("; ")))
    }

    fn done_ratio(&self) -> Option<f64> {
        self.file.done_ratio()
    }
}

impl Connections {
    /// Takes a segment, if it is of a server at one of the ports.
    fn take(&mut self, segment: &Segment<'_>, ports: &[u16]) {
        let is_asking = ports.contains(&segment.to.port());
        let peers = match is_asking {
            true => (segment.from, segment.to),
            false if ports.contains(&segment.from.port()) => (segment.to, segment.from),
            false => return,
        };
        if is_asking && segment.is_first {
            let is_other = |of: &Connection| of.client.begins_anew(segment.sequence);
            if self.of_peers.get(&peers).is_some_and(is_other) {
                self.close(peers);
            }
        }
        if !self.of_peers.contains_key(&peers) {
            // The rest of a connection that has ended begins none.
            if segment.octets.is_empty() && !segment.is_first {
                return;
            }
            if !self.has_room(segment.time_us) {
                self.turned_away += 1;
                return;
            }
            self.of_peers.insert(peers, Connection::new());
        }
        let Some(connection) = self.of_peers.get_mut(&peers) else { return };
        connection.take(segment, is_asking, &mut self.heard);
        if connection.ended == [true, true] {
            self.close(peers);
        }
    }

    /// Whether there is room for another connection, perhaps in place of idle ones.
    fn has_room(&mut self, now_us: u64) -> bool {
        if self.of_peers.len() >= CONNECTIONS_MAX && now_us.saturating_sub(self.looked_us) > IDLE_US_MAX {
            self.looked_us = now_us;
            let is_idle = |of: &Connection| now_us.saturating_sub(of.latest_us) > IDLE_US_MAX;
            let idle: Vec<_> =
                self.of_peers.iter().filter(|(_, of)| is_idle(of)).map(|(peers, _)| *peers).collect();
            idle.into_iter().for_each(|peers| self.close(peers));
        }
        self.of_peers.len() < CONNECTIONS_MAX
    }

    fn close(&mut self, peers: (SocketAddr, SocketAddr)) {
        if let Some(mut connection) = self.of_peers.remove(&peers) {
            connection.end(&mut self.heard);
        }
    }

    /// Nothing follows.
    fn end(&mut self) {
        let mut all: Vec<_> = self.of_peers.keys().copied().collect();
        all.sort_unstable();
        all.into_iter().for_each(|peers| self.close(peers));
    }
}

impl Connection {
    fn new() -> Connection {
        Connection {
            client: Stream::default(),
            server: Stream::default(),
            talk: Talk::new(),
            latest_us: 0,
            ended: [false; 2],
        }
    }

    fn take(&mut self, segment: &Segment<'_>, is_asking: bool, heard: &mut Heard) {
        let Connection { client, server, talk, .. } = self;
        let Heard { asked, counts, .. } = heard;
        self.latest_us = segment.time_us;
        let (has_data, got) = (!segment.octets.is_empty(), segment.acknowledges);
        // What a segment answers has come before it.
        if is_asking {
            if has_data {
                server.give_early(got, &mut |piece| talk.answer(&piece, asked));
            }
            let got = server.acknowledged();
            client.take(segment, got, &mut |piece| talk.ask(&piece, server, asked, counts));
        } else {
            if has_data {
                client.give_early(got, &mut |piece| talk.ask(&piece, server, asked, counts));
            }
            server.take(segment, client.acknowledged(), &mut |piece| talk.answer(&piece, asked));
        }
        self.ended[usize::from(is_asking)] |= segment.is_last;
        self.ended = if segment.is_reset { [true, true] } else { self.ended };
    }

    /// Nothing follows.
    fn end(&mut self, heard: &mut Heard) {
        let Connection { client, server, talk, .. } = self;
        let Heard { asked, counts, .. } = heard;
        client.finish(&mut |piece| talk.ask(&piece, server, asked, counts));
        server.finish(&mut |piece| talk.answer(&piece, asked));
        heard.lost_bytes += client.lost_bytes + server.lost_bytes;
        heard.silent += u64::from(client.has_data() && !talk.is_known());
    }
}
