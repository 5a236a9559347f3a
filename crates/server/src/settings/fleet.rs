//! The servers among which the keys are shared out, and which of them this one is.

use super::values::By;
use larder_protocol::resp::SLOTS;
use std::fs;
use std::net::{ToSocketAddrs, UdpSocket};

/// The most servers of a fleet.
const NODES_MAX: usize = 1000;

/// Ranges of slots that a sentence names.
const RANGES_SHOWN: usize = 4;

/// A fleet of servers.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct FleetSettings {
    /// The servers, in the order of the settings file.
    pub nodes: Vec<FleetNode>,
    /// The name of this server; empty = the one that is named like this machine and has its host alone, or else the one
    /// whose host is an address of this machine.
    pub own: String,
    /// The version of the list. Clients of memcached that ask for it take only a list of a higher version. 0 = when the
    /// settings file was written last.
    pub version: u64,
}

/// One server of a fleet.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FleetNode {
    /// Its name, unique in the fleet.
    pub name: String,
    /// Where clients reach it: a name or an address.
    pub host: String,
    /// The port on which it speaks memcached's protocols.
    pub port: u16,
    /// The port on which clients speak RESP with it. Default: `port`.
    pub resp_port: u16,
    /// Ranges of slots, both ends included.
    pub slots: Vec<(u16, u16)>,
}

impl FleetSettings {
    /// Looks for servers that contradict each other. Slots are shared out evenly, in the order of the servers, if none
    /// of them names any.
    ///
    /// # Errors
    /// One line that says what to do.
    pub fn settled(mut self) -> Result<FleetSettings, String> {
        let wrong = |text: String| Err(format!("[fleet] {text}"));
        if self.nodes.is_empty() || self.nodes.len() > NODES_MAX {
            return wrong(format!(
                "names {} servers: write a table [[fleet.node]] for each, up to {NODES_MAX}",
                self.nodes.len()
            ));
        }
        for (at, node) in self.nodes.iter().enumerate() {
            if self.nodes[..at].iter().any(|before| before.name == node.name) {
                return wrong(format!("has two servers '{}': give each a name of its own", node.name));
            }
        }
        if self.nodes.iter().all(|node| node.slots.is_empty()) {
            let (count, all) = (self.nodes.len() as u32, u32::from(SLOTS));
            for (at, node) in (0..).zip(&mut self.nodes) {
                node.slots = vec![((at * all / count) as u16, ((at + 1) * all / count - 1) as u16)];
            }
        }
        let mut owners: Vec<Option<&str>> = vec![None; usize::from(SLOTS)];
        for node in &self.nodes {
            for slot in node.slots.iter().flat_map(|(first, last)| *first..=*last) {
                if let Some(other) = owners[usize::from(slot)].replace(&node.name) {
                    return wrong(format!("gives slot {slot} to '{other}' and to '{}'", node.name));
                }
            }
        }
        if self.own.is_empty() {
            self.own = self.named_like(&machine_name());
        }
        if self.own.is_empty() {
            let here: Vec<&FleetNode> = self.nodes.iter().filter(|node| is_here(&node.host)).collect();
            match here[..] {
                [one] => self.own = one.name.clone(),
                [] => {
                    return wrong(
                        "has no server of this machine: say which it is with self = \"NAME\"".into(),
                    );
                }
                [_, second, ..] => {
                    return wrong(format!(
                        "has several servers of this machine ('{}', '{}'): say which it is with self = \"NAME\"",
                        here[0].name, second.name
                    ));
                }
            }
        }
        if !self.nodes.iter().any(|node| node.name == self.own) {
            return wrong(format!("has no server '{}', which self names", self.own));
        }
        Ok(self)
    }

    /// The name of the machine, if a server has it that shares its host with no other; else nothing. So a name service
    /// that does not know a machine yet keeps no server from starting.
    fn named_like(&self, machine: &str) -> String {
        let of_host = |host: &str| self.nodes.iter().filter(|node| node.host == host).count();
        let found = self.nodes.iter().find(|node| node.name == machine && of_host(&node.host) == 1);
        found.map(|node| node.name.clone()).unwrap_or_default()
    }

    fn line(&self) -> String {
        let nodes = self.nodes.iter().map(|node| {
            let slots: Vec<String> =
                node.slots.iter().map(|(first, last)| format!("{first}-{last}")).collect();
            format!("{}={}:{}:{} {}", node.name, node.host, node.port, node.resp_port, slots.join(","))
        });
        let nodes: Vec<String> = nodes.collect();
        format!("version {}, self {}, {}", self.version, self.own, nodes.join("; "))
    }

    /// One sentence about the slots that no server has; `None` = each has one.
    pub(crate) fn doubt(&self) -> Option<String> {
        let mut owned: Vec<(u16, u16)> =
            self.nodes.iter().flat_map(|node| node.slots.iter().copied()).collect();
        owned.sort_unstable();
        owned.push((SLOTS, SLOTS));
        let (mut next, mut count, mut ranges) = (0, 0, Vec::new());
        for (first, last) in owned {
            if next < first {
                count += first - next;
                ranges.push(if next + 1 == first {
                    next.to_string()
                } else {
                    format!("{next}-{}", first - 1)
                });
            }
            next = last + 1;
        }
        let more = if ranges.len() > RANGES_SHOWN { " and others" } else { "" };
        ranges.truncate(RANGES_SHOWN);
        (count > 0).then(|| {
            format!(
                "[fleet] gives {count} of {SLOTS} slots to no server ({}{more}), and requests for keys in them are \
                 refused: name each slot in the slots of one [[fleet.node]]",
                ranges.join(",")
            )
        })
    }
}

/// A fleet in one line: its version, this server, and each server with its slots. Only the settings file sets it.
pub(super) const FLEET: By<Option<FleetSettings>> = By(
    |_| Err("it can be changed in the settings file only".to_owned()),
    |fleet| fleet.as_ref().map(FleetSettings::line).unwrap_or_default(),
);

/// The name that this machine gives itself; in a container the container's.
fn machine_name() -> String {
    fs::read_to_string("/proc/sys/kernel/hostname").unwrap_or_default().trim_end().to_owned()
}

/// Whether the host is this machine: one of its addresses can be bound.
fn is_here(host: &str) -> bool {
    (host, 0).to_socket_addrs().is_ok_and(|mut addresses| addresses.any(|at| UdpSocket::bind(at).is_ok()))
}

/// Reads ranges of slots: `0-5460`, `7`, `0-99,200-299`.
///
/// # Errors
/// What a valid list looks like.
pub fn slot_ranges(text: &str) -> Result<Vec<(u16, u16)>, String> {
    let expected = || format!("expected ranges of slots from 0 to {}, such as 0-5460,7000", SLOTS - 1);
    let slot = |text: &str| text.trim().parse::<u16>().ok().filter(|slot| *slot < SLOTS);
    text.split(',')
        .filter(|range| !range.trim().is_empty())
        .map(|range| {
            let (first, last) = range.split_once('-').unwrap_or((range, range));
            match (slot(first), slot(last)) {
                (Some(first), Some(last)) if first <= last => Ok((first, last)),
                _ => Err(expected()),
            }
        })
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn node(name: &str, slots: &str) -> FleetNode {
        let slots = slot_ranges(slots).expect("ranges");
        FleetNode { name: name.into(), host: "192.0.2.1".into(), port: 11211, resp_port: 6379, slots }
    }

    fn fleet(nodes: Vec<FleetNode>) -> Result<FleetSettings, String> {
        let own = "a".to_owned();
        FleetSettings { nodes, own, version: 0 }.settled()
    }

    #[test]
    fn slots_are_shared_out_or_named() {
        let even = fleet(vec![node("a", ""), node("b", ""), node("c", "")]).expect("a fleet");
        let ranges: Vec<_> = even.nodes.iter().flat_map(|node| node.slots.clone()).collect();
        assert_eq!(ranges, [(0, 5460), (5461, 10921), (10922, 16383)]);
        let named = fleet(vec![node("a", "0-99, 200"), node("b", "100-199")]).expect("a fleet");
        assert_eq!(named.nodes[0].slots, [(0, 99), (200, 200)]);
        for (nodes, what) in [
            (vec![], "names 0 servers"),
            (vec![node("b", "")], "no server 'a'"),
            (vec![node("a", ""), node("a", "")], "two servers 'a'"),
            (vec![node("a", "0-9"), node("b", "9")], "slot 9 to 'a' and to 'b'"),
        ] {
            let error = fleet(nodes).expect_err("it contradicts itself");
            assert!(error.contains(what), "{error}");
        }
        for text in ["x", "5-4", "16384", "1-", "-1"] {
            assert!(slot_ranges(text).is_err(), "{text}");
        }
    }

    #[test]
    fn a_server_finds_itself_by_the_name_of_its_machine() {
        let mut nodes = vec![node(&machine_name(), ""), node("b", "")];
        let settled = |nodes: &[FleetNode]| {
            let fleet = FleetSettings { nodes: nodes.to_vec(), ..FleetSettings::default() };
            fleet.settled().map(|fleet| fleet.own)
        };
        nodes[0].host = "192.0.2.2".into();
        assert_eq!(settled(&nodes), Ok(machine_name()));
        nodes[1].host = nodes[0].host.clone();
        let error = settled(&nodes).expect_err("both may be here");
        assert!(error.contains("self ="), "{error}");
    }

    #[test]
    fn a_server_finds_itself_by_its_host() {
        let mut nodes = vec![node("a", ""), node("b", "")];
        nodes[1].host = "127.0.0.1".into();
        let found = FleetSettings { nodes: nodes.clone(), ..FleetSettings::default() }.settled();
        assert_eq!(found.map(|fleet| fleet.own), Ok("b".to_owned()));
        nodes[0].host = "localhost".into();
        let error = FleetSettings { nodes, ..FleetSettings::default() }.settled().expect_err("two are here");
        assert!(error.contains("self ="), "{error}");
    }
}
