//! The fleet as clients of Redis Cluster and of memcached see it. Servers do not talk to each other: each is told the
//! whole list, and sends clients on that ask the wrong one.

use crate::settings::{FleetNode, FleetSettings};
use larder_protocol::resp::{SLOTS, Version, compose as words, slot_of};
use ring::digest::{SHA256, digest};
use std::net::ToSocketAddrs;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::sync::{Arc, PoisonError, RwLock};

/// No server has the slot.
const NOBODY: u16 = u16::MAX;
/// Hexadecimal digits of a server's name for cluster clients.
const ID_DIGITS: usize = 40;

/// A fleet, and the owner of each slot.
pub(super) struct Fleet {
    nodes: Vec<Node>,
    own: usize,
    owners: Box<[u16]>,
    /// For each slot that came back from another server: items of up to this CAS number are left over from before, when
    /// the slot was here. Empty = no slot has come back.
    left_over: Box<[u64]>,
    version: u64,
}

struct Node {
    id: String,
    /// An address of its host; empty = none was found when the list was read.
    address: String,
    settings: FleetNode,
}

/// Where a request belongs.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Route {
    /// Here, or anywhere: it has no keys.
    Here,
    /// To another server.
    Moved { slot: u16, node: usize },
    /// Its keys are in different slots.
    CrossSlot,
    /// No server has the slot.
    Nobody,
}

impl Fleet {
    /// The fleet of settings that were settled.
    pub(super) fn new(settings: &FleetSettings) -> Fleet {
        let mut owners = vec![NOBODY; usize::from(SLOTS)].into_boxed_slice();
        for (number, node) in (0..).zip(&settings.nodes) {
            for (first, last) in &node.slots {
                owners[usize::from(*first)..=usize::from(*last)].fill(number);
            }
        }
        let own = settings.nodes.iter().position(|node| node.name == settings.own).unwrap_or(0);
        let nodes = settings.nodes.iter().map(|node| {
            let found = (&node.host[..], node.port).to_socket_addrs().ok().and_then(|mut found| found.next());
            let address = found.map_or(String::new(), |at| at.ip().to_string());
            Node { id: id_of(&node.name), address, settings: node.clone() }
        });
        Fleet { nodes: nodes.collect(), own, owners, left_over: Box::default(), version: settings.version }
    }

    /// The fleet that follows another one. `last_cas` = the highest CAS number so far: what this server has of a slot
    /// that comes back to it may be outdated.
    pub(super) fn after(before: Option<&Fleet>, settings: &FleetSettings, last_cas: u64) -> Fleet {
        let fleet = Fleet::new(settings);
        let Some(before) = before else { return fleet };
        let left_over: Vec<u64> = (0..SLOTS)
            .map(|slot| match (before.has_slot(slot), fleet.has_slot(slot)) {
                (false, true) => last_cas,
                _ => before.left_over(slot),
            })
            .collect();
        let is_any = left_over.iter().any(|cas| *cas > 0);
        Fleet { left_over: if is_any { left_over.into() } else { Box::default() }, ..fleet }
    }

    fn has_slot(&self, slot: u16) -> bool {
        usize::from(self.owners[usize::from(slot)]) == self.own
    }

    /// Items of this slot with a CAS number of up to this are left over from before, when the slot was here. 0 = there
    /// are none.
    pub(super) fn left_over(&self, slot: u16) -> u64 {
        self.left_over.get(usize::from(slot)).copied().unwrap_or(0)
    }

    /// Whether there may be left-over items of some slot.
    pub(super) fn has_left_over(&self) -> bool {
        !self.left_over.is_empty()
    }

    /// Whether the key is served here, and every item of its slot is up to date.
    #[inline]
    pub(super) fn is_plainly_here(&self, key: &[u8]) -> bool {
        let slot = slot_of(key);
        self.has_slot(slot) && self.left_over(slot) == 0
    }

    /// Whether an item with this key and CAS number is one that clients may see.
    pub(super) fn shows(&self, key: &[u8], cas: u64) -> bool {
        let slot = slot_of(key);
        self.has_slot(slot) && cas > self.left_over(slot)
    }

    fn route_slot(&self, slot: u16) -> Route {
        match self.owners[usize::from(slot)] {
            NOBODY => Route::Nobody,
            owner if usize::from(owner) == self.own => Route::Here,
            owner => Route::Moved { slot, node: owner.into() },
        }
    }

    /// Where a request belongs whose keys are in these slots.
    pub(super) fn route_slots(&self, mut slots: impl Iterator<Item = u16>) -> Route {
        let Some(slot) = slots.next() else { return Route::Here };
        if slots.all(|other| other == slot) { self.route_slot(slot) } else { Route::CrossSlot }
    }

    /// Whether all of these keys are in one slot.
    pub(super) fn has_one_slot<'a>(&self, mut keys: impl Iterator<Item = &'a [u8]>) -> bool {
        let slot = keys.next().map(slot_of);
        keys.all(|key| slot == Some(slot_of(key)))
    }

    /// The error that sends a client on.
    pub(super) fn moved(&self, slot: u16, node: usize) -> String {
        let FleetNode { host, resp_port, .. } = &self.nodes[node].settings;
        format!("MOVED {slot} {host}:{resp_port}")
    }

    pub(super) fn own_id(&self) -> &str {
        &self.nodes[self.own].id
    }

    /// Whether there is a server of this name.
    pub(super) fn has_node(&self, id: &[u8]) -> bool {
        self.nodes.iter().any(|node| node.id.as_bytes() == id)
    }

    /// `CLUSTER SLOTS`.
    pub(super) fn compose_slots(&self, out: &mut Vec<u8>, version: Version) {
        let ranges =
            self.nodes.iter().flat_map(|node| node.settings.slots.iter().map(move |range| (node, range)));
        let mut ranges: Vec<(&Node, &(u16, u16))> = ranges.collect();
        ranges.sort_by_key(|(_, (first, _))| *first);
        words::array_head(out, ranges.len());
        for (node, (first, last)) in ranges {
            words::array_head(out, 3);
            words::integer(out, (*first).into());
            words::integer(out, (*last).into());
            words::array_head(out, 4);
            words::bulk(out, node.settings.host.as_bytes());
            words::integer(out, node.settings.resp_port.into());
            words::bulk(out, node.id.as_bytes());
            words::map_head(out, version, 0);
        }
    }

    /// `CLUSTER SHARDS`.
    pub(super) fn compose_shards(&self, out: &mut Vec<u8>, version: Version) {
        words::array_head(out, self.nodes.len());
        for node in &self.nodes {
            let FleetNode { host, resp_port, slots, .. } = &node.settings;
            words::map_head(out, version, 2);
            words::bulk(out, b"slots");
            words::array_head(out, 2 * slots.len());
            for (first, last) in slots {
                words::integer(out, (*first).into());
                words::integer(out, (*last).into());
            }
            words::bulk(out, b"nodes");
            words::array_head(out, 1);
            words::map_head(out, version, 7);
            for (name, text) in [("id", &node.id[..]), ("ip", host), ("endpoint", host)] {
                words::bulk(out, name.as_bytes());
                words::bulk(out, text.as_bytes());
            }
            words::bulk(out, b"port");
            words::integer(out, (*resp_port).into());
            for (name, text) in [("role", "master"), ("health", "online")] {
                words::bulk(out, name.as_bytes());
                words::bulk(out, text.as_bytes());
            }
            words::bulk(out, b"replication-offset");
            words::integer(out, 0);
        }
    }

    /// `CLUSTER NODES`: a line for each server.
    pub(super) fn nodes_text(&self) -> String {
        let mut text = String::new();
        for (number, node) in self.nodes.iter().enumerate() {
            let FleetNode { host, resp_port, slots, .. } = &node.settings;
            let flags = if number == self.own { "myself,master" } else { "master" };
            let id = &node.id;
            text += &format!("{id} {host}:{resp_port}@{resp_port} {flags} - 0 0 {} connected", number + 1);
            for (first, last) in slots {
                match first == last {
                    true => text += &format!(" {first}"),
                    false => text += &format!(" {first}-{last}"),
                }
            }
            text.push('\n');
        }
        text
    }

    /// `CLUSTER INFO`.
    pub(super) fn info_text(&self) -> String {
        let assigned = self.owners.iter().filter(|owner| **owner != NOBODY).count();
        let state = if assigned == usize::from(SLOTS) { "ok" } else { "fail" };
        let size = self.nodes.iter().filter(|node| !node.settings.slots.is_empty()).count();
        let rows = [
            ("cluster_state", state.to_owned()),
            ("cluster_slots_assigned", assigned.to_string()),
            ("cluster_slots_ok", assigned.to_string()),
            ("cluster_slots_pfail", "0".to_owned()),
            ("cluster_slots_fail", "0".to_owned()),
            ("cluster_known_nodes", self.nodes.len().to_string()),
            ("cluster_size", size.to_string()),
            ("cluster_current_epoch", self.nodes.len().to_string()),
            ("cluster_my_epoch", (self.own + 1).to_string()),
            ("cluster_stats_messages_sent", "0".to_owned()),
            ("cluster_stats_messages_received", "0".to_owned()),
            ("total_cluster_links_buffer_limit_exceeded", "0".to_owned()),
        ];
        rows.iter().map(|(name, value)| format!("{name}:{value}\r\n")).collect()
    }

    /// The list for clients of memcached that discover their servers (`config get cluster`): the version, and all
    /// servers as `host|ip|port`.
    pub(super) fn discovery_text(&self) -> String {
        let nodes = self
            .nodes
            .iter()
            .map(|Node { address, settings, .. }| format!("{}|{address}|{}", settings.host, settings.port));
        format!("{}\n{}\n", self.version, nodes.collect::<Vec<_>>().join(" "))
    }
}

/// The name of a server for cluster clients, which stays the same as long as the server is called the same.
fn id_of(name: &str) -> String {
    let digest = digest(&SHA256, format!("larder server {name}").as_bytes());
    let digits: String = digest.as_ref().iter().map(|byte| format!("{byte:02x}")).collect();
    digits[..ID_DIGITS].to_owned()
}

/// The fleet that the server is part of now, if it is part of one.
pub(super) struct CurrentFleet {
    fleet: RwLock<Option<Arc<Fleet>>>,
    /// Goes up with every change of the fleet.
    version: AtomicU64,
}

impl CurrentFleet {
    pub(super) fn new(fleet: Option<Fleet>) -> CurrentFleet {
        CurrentFleet { fleet: RwLock::new(fleet.map(Arc::new)), version: AtomicU64::new(1) }
    }

    pub(super) fn get(&self) -> Option<Arc<Fleet>> {
        self.fleet.read().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// Replaces the fleet. A worker looks at the beginning of each turn whether it has another version.
    pub(super) fn set(&self, fleet: Option<Fleet>) {
        *self.fleet.write().unwrap_or_else(PoisonError::into_inner) = fleet.map(Arc::new);
        self.version.fetch_add(1, Relaxed);
    }

    #[inline]
    pub(super) fn version(&self) -> u64 {
        self.version.load(Relaxed)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use larder_protocol::resp::{inline_args, lookup};

    fn fleet() -> Fleet {
        let node = |name: &str, slots: &str| FleetNode {
            name: name.to_owned(),
            host: "10.0.0.1".to_owned(),
            port: 11211,
            resp_port: 6379,
            slots: crate::settings::slot_ranges(slots).expect("ranges"),
        };
        let nodes = vec![node("a", "0-8191"), node("b", "8192-16382")];
        Fleet::new(&FleetSettings { nodes, own: "a".to_owned(), version: 7 })
    }

    #[test]
    fn a_request_goes_where_its_keys_are() {
        let (fleet, mut buffer) = (fleet(), Vec::new());
        let mut route = |line: &str| {
            let args = inline_args(line.as_bytes(), &mut buffer).expect("words");
            let keys = lookup(args.clone().next().expect("a name")).expect("a command").keys;
            fleet.route_slots(keys.of(args).map(slot_of))
        };
        // foo is in slot 12182, bar in 5061.
        assert_eq!(route("get bar"), Route::Here);
        assert_eq!(route("get foo"), Route::Moved { slot: 12182, node: 1 });
        assert_eq!(route("mget bar {bar}2"), Route::Here);
        assert_eq!(route("mset bar 1 foo 2"), Route::CrossSlot);
        assert_eq!(route("ping"), Route::Here);
        assert_eq!(fleet.route_slot(16383), Route::Nobody);
        assert_eq!(fleet.moved(12182, 1), "MOVED 12182 10.0.0.1:6379");
        assert_eq!(fleet.discovery_text(), "7\n10.0.0.1|10.0.0.1|11211 10.0.0.1|10.0.0.1|11211\n");
        assert!(fleet.info_text().starts_with("cluster_state:fail\r\ncluster_slots_assigned:16383\r\n"));
        let lines = fleet.nodes_text();
        assert!(lines.lines().nth(1).is_some_and(|line| line.ends_with("connected 8192-16382")), "{lines}");
        assert!(lines.starts_with(fleet.own_id()) && fleet.own_id().len() == 40);
    }
}
