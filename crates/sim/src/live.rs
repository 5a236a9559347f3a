//! A running server's own statistics, over the wire: `stats` of the memcached protocol, and what it says of other sizes
//! of memory.

use std::fmt;
use std::io::{Read, Write};
use std::time::Duration;

use crate::mrc::{Curve, Point, Unit};
use crate::replay::{Blocking, Server};

/// How long a server may take to answer.
const TIMEOUT: Duration = Duration::from_secs(5);
/// The longest reply that is read, bytes.
const REPLY_BYTES_MAX: usize = 4 << 20;

/// Why a server told nothing: one line.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum LiveError {
    /// Nobody answers, or the connection ended.
    Unreachable(String),
    /// What answers is no server of Larder, or refuses.
    Refused(String),
    /// It has seen too few reads.
    Young(String),
}

impl fmt::Display for LiveError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            LiveError::Unreachable(what) | LiveError::Refused(what) | LiveError::Young(what) => {
                f.write_str(what)
            }
        }
    }
}

/// The rows of one `stats` command, in their order.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Stats(Vec<(String, String)>);

impl Stats {
    /// Reads `STAT name value` lines; other lines are left out.
    pub fn parse(text: &str) -> Stats {
        let row = |line: &str| {
            let (name, value) = line.strip_prefix("STAT ")?.split_once(' ')?;
            Some((name.to_owned(), value.trim_end().to_owned()))
        };
        Stats(text.lines().filter_map(row).collect())
    }

    /// The value of a name.
    pub fn text(&self, name: &str) -> Option<&str> {
        self.0.iter().find(|(of, _)| of == name).map(|(_, value)| value.as_str())
    }

    /// The value of a name as a number.
    pub fn number(&self, name: &str) -> Option<f64> {
        self.text(name)?.parse().ok()
    }

    /// All rows.
    pub fn rows(&self) -> impl Iterator<Item = (&str, &str)> {
        self.0.iter().map(|(name, value)| (name.as_str(), value.as_str()))
    }

    /// Whether there are none.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }
}

/// A connection to a running server.
pub struct Live {
    server: Server,
    connection: Blocking,
}

impl Live {
    /// Connects.
    ///
    /// # Errors
    /// Nobody listens there.
    pub fn connect(server: &Server) -> Result<Live, LiveError> {
        let connection = server.connect_blocking(TIMEOUT).map_err(|error| {
            LiveError::Unreachable(format!(
                "no server at {server}: {error}; give the address that it listens on"
            ))
        })?;
        Ok(Live { server: server.clone(), connection })
    }

    /// The rows of `stats topic`, or of `stats` where the topic is empty.
    ///
    /// # Errors
    /// The connection ended, or the reply is no list of statistics.
    pub fn stats(&mut self, topic: &str) -> Result<Stats, LiveError> {
        let command = if topic.is_empty() { "stats\r\n".to_owned() } else { format!("stats {topic}\r\n") };
        let gone = |server: &Server, error: &dyn fmt::Display| {
            LiveError::Unreachable(format!("{server} does not answer 'stats': {error}"))
        };
        self.connection.write_all(command.as_bytes()).map_err(|error| gone(&self.server, &error))?;
        let mut reply = Vec::new();
        let mut part = [0; 16 << 10];
        loop {
            let read = self.connection.read(&mut part).map_err(|error| gone(&self.server, &error))?;
            if read == 0 {
                return Err(gone(&self.server, &"it has closed the connection"));
            }
            reply.extend_from_slice(&part[..read]);
            if reply == b"END\r\n" || reply.ends_with(b"\r\nEND\r\n") {
                return Ok(Stats::parse(&String::from_utf8_lossy(&reply)));
            }
            let is_a_list =
                reply.starts_with(b"STAT ") || b"STAT ".starts_with(&reply) || b"END\r\n".starts_with(&reply);
            if !is_a_list && reply.contains(&b'\n') || reply.len() > REPLY_BYTES_MAX {
                let text = String::from_utf8_lossy(&reply);
                let line: String = text.lines().next().unwrap_or("").chars().take(80).collect();
                return Err(LiveError::Refused(format!(
                    "{} answers 'stats {topic}' with '{line}'",
                    self.server
                )));
            }
        }
    }

    /// What the server expects of other sizes of memory.
    ///
    /// # Errors
    /// It is no server of Larder, or has seen too few reads.
    pub fn sizing(&mut self) -> Result<LiveSizing, LiveError> {
        let stats = match self.stats("mrc") {
            Err(LiveError::Refused(why)) => return Err(LiveError::Refused(self.no_curve(&why))),
            other => other?,
        };
        let missing = || LiveError::Refused(self.no_curve("'stats mrc' is empty"));
        if stats.text("state").ok_or_else(missing)? == "young" {
            let read = |name| stats.text(name).unwrap_or("0");
            return Err(LiveError::Young(format!(
                "{} is too young for a plan: it has sampled {} reads of {} keys, and needs 1000 of 100; one read in {} \
                 is sampled",
                self.server,
                read("sampled_reads"),
                read("sampled_keys"),
                (1.0 / stats.number("sampling_rate").unwrap_or(1.0).max(1e-9)).round(),
            )));
        }
        LiveSizing::of(&self.server.to_string(), &stats).ok_or_else(missing)
    }

    fn no_curve(&self, why: &str) -> String {
        format!("{} has no miss-ratio curve, so it is not Larder, or an old one ({why})", self.server)
    }
}

/// What a running server says of other sizes of its memory.
#[derive(Clone, Debug, PartialEq)]
pub struct LiveSizing {
    /// Its curve over bytes of items: key, value and header.
    pub curve: Curve,
    /// Its memory limit in bytes.
    pub limit_bytes: f64,
    /// Bytes of items that this memory can hold.
    pub capacity_bytes: f64,
    /// Bytes of its flash; 0 = none.
    pub flash_bytes: f64,
    /// Beyond this number of bytes of items it knows nothing.
    pub span_bytes: f64,
    /// Mean time of an answer within the server, in microseconds.
    pub answer_us: f64,
    /// Whether the cost of misses was measured.
    pub knows_penalties: bool,
    /// The share of all reads since its start that missed.
    pub miss_ratio_since_start: f64,
}

impl LiveSizing {
    fn of(server: &str, stats: &Stats) -> Option<LiveSizing> {
        let number = |name| stats.number(name);
        let point = |(name, value): (&str, &str)| {
            let size = name.strip_prefix("curve:")?.parse().ok()?;
            let (miss_ratio, cost_us) = value.split_once(' ')?;
            Some((Point { size, miss_ratio: miss_ratio.parse().ok()? }, cost_us.parse::<f64>().ok()?))
        };
        let points: Vec<(Point, f64)> = stats.rows().filter_map(point).collect();
        let limit_bytes = number("limit_maxbytes").filter(|bytes| *bytes > 0.0)?;
        Some(LiveSizing {
            limit_bytes,
            capacity_bytes: number("item_bytes_capacity").filter(|bytes| *bytes > 0.0)?.min(limit_bytes),
            flash_bytes: number("flash_bytes")?,
            span_bytes: number("span_bytes")?,
            answer_us: number("answer_us")?,
            knows_penalties: stats.text("penalties") == Some("measured"),
            miss_ratio_since_start: number("miss_ratio_since_start")?,
            curve: Curve {
                unit: Unit::Bytes,
                method: format!("SHARDS within the server, {} keys", stats.text("sampled_keys")?),
                source: format!("recent reads of the server at {server}"),
                requests: number("sampled_reads")? as u64,
                cold_misses: 0,
                item_bytes_mean: number("item_bytes_mean")?,
                // Where everything misses, each read costs what a miss costs.
                penalty_us_mean: points.first().map_or(0.0, |(_, cost_us)| *cost_us),
                points: points.into_iter().map(|(point, _)| point).collect(),
            },
        })
        .filter(|sizing| !sizing.curve.points.is_empty())
    }

    /// Bytes of memory for each item beside key, value and header: index, dead bytes, buffers and bookkeeping.
    pub fn overhead_bytes(&self) -> f64 {
        self.curve.item_bytes_mean * (self.limit_bytes / self.capacity_bytes - 1.0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::net::TcpListener;

    const MRC: &str = "STAT state ready\r\nSTAT sampled_reads 5000\r\nSTAT sampled_keys 700\r\n\
        STAT sampling_rate 0.062500\r\nSTAT limit_maxbytes 1000\r\nSTAT item_bytes_capacity 800\r\n\
        STAT span_bytes 8000\r\nSTAT flash_bytes 0\r\nSTAT item_bytes_mean 100.0\r\nSTAT penalties measured\r\n\
        STAT answer_us 12.5\r\nSTAT miss_ratio_since_start 0.25\r\nSTAT curve:0 1.000000 9000.0\r\n\
        STAT curve:800 0.200000 1500.0\r\nEND\r\n";

    /// Answers one connection with `reply`, and closes it.
    fn answering(reply: &'static str) -> Server {
        let listener = TcpListener::bind("127.0.0.1:0").expect("a free port");
        let address = listener.local_addr().expect("an address");
        std::thread::spawn(move || {
            let Ok((mut client, _)) = listener.accept() else { return };
            let mut asked = [0; 64];
            let _ = client.read(&mut asked);
            let _ = client.write_all(reply.as_bytes());
        });
        Server::Tcp { name: address.to_string(), address }
    }

    fn sizing_of(reply: &'static str) -> Result<LiveSizing, LiveError> {
        Live::connect(&answering(reply)).expect("it listens").sizing()
    }

    #[test]
    fn a_curve_is_read_with_what_it_rests_on() {
        let sizing = sizing_of(MRC).expect("a curve");
        assert_eq!(
            (sizing.limit_bytes, sizing.capacity_bytes, sizing.knows_penalties),
            (1000.0, 800.0, true)
        );
        assert_eq!(sizing.overhead_bytes(), 25.0);
        assert_eq!((sizing.curve.miss_ratio(400.0), sizing.curve.penalty_us_mean), (0.6, 9000.0));
    }

    #[test]
    fn servers_without_a_curve_are_told_apart() {
        let young = "STAT state young\r\nSTAT sampled_reads 3\r\nSTAT sampled_keys 2\r\n\
            STAT sampling_rate 0.0625\r\nEND\r\n";
        let Err(LiveError::Young(why)) = sizing_of(young) else { panic!("a young server") };
        assert!(why.contains("3 reads of 2 keys") && why.contains("one read in 16"), "{why}");
        for reply in
            ["ERROR\r\n", "-ERR unknown command 'stats'\r\n", "HTTP/1.1 400 Bad Request\r\n\r\n", "END\r\n"]
        {
            let Err(LiveError::Refused(why)) = sizing_of(reply) else { panic!("{reply}") };
            assert!(why.contains("not Larder") && why.lines().count() == 1, "{why}");
        }
        let Err(LiveError::Unreachable(why)) = sizing_of("STAT pid 1\r\n") else {
            panic!("a reply that ends early")
        };
        assert!(why.contains("closed the connection"), "{why}");
        let address = "127.0.0.1:1".parse().expect("an address");
        let nobody = Server::Tcp { name: "localhost:1".to_owned(), address };
        let Err(LiveError::Unreachable(why)) = Live::connect(&nobody) else { panic!("nobody listens") };
        assert!(why.contains("no server at localhost:1"), "{why}");
    }
}
