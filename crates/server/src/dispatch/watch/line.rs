//! The lines that watchers read, as memcached 1.6.45 writes them.

use super::super::operation::THE_CLASS;
use super::event::{Client, Event, Leaver, StoreCommand, StoreStatus, What};
use crate::io::{CloseReason, Transport};
use crate::keys::url_encode;
use larder_cache::Absence;
use larder_protocol::compose::decimal;
use std::net::IpAddr;

/// The class where there is no item.
const NO_CLASS: u32 = 0;
/// The bucket of an item on flash: memcached numbers its kinds of pages, of which there is one here.
const THE_BUCKET: u32 = 0;

/// Writes the line of an event. Microseconds are not filled up with zeros, as in memcached.
pub(super) fn write_line(out: &mut Vec<u8>, event: &Event, key: &[u8]) {
    number(out, "ts=", event.at_us / 1_000_000);
    number(out, ".", event.at_us % 1_000_000);
    number(out, " gid=", event.gid);
    match &event.what {
        What::Get { found, fd } => {
            write_key(out, "item_get", key);
            let (status, class, bytes) = match found {
                Ok(bytes) => ("found", THE_CLASS, *bytes),
                Err(Absence::NotFound) => ("not_found", NO_CLASS, 0),
                Err(Absence::Flushed) => ("flushed", NO_CLASS, 0),
                Err(Absence::Expired) => ("expired", NO_CLASS, 0),
            };
            word(out, " status=", status);
            number(out, " clsid=", class);
            socket(out, *fd);
            number(out, " size=", bytes);
        }
        What::Store { status, command, ttl_s, class, value_bytes, fd } => {
            write_key(out, "item_store", key);
            word(out, " status=", status.name());
            word(out, " cmd=", command.name());
            number(out, " ttl=", *ttl_s);
            number(out, " clsid=", *class);
            socket(out, *fd);
            number(out, " size=", *value_bytes);
        }
        What::Delete { is_meta, value_bytes } => {
            write_key(out, "deleted", key);
            word(out, " cmd=", if *is_meta { "md" } else { "delete" });
            number(out, " clsid=", THE_CLASS);
            number(out, " size=", *value_bytes);
        }
        What::Evict(leaver) => {
            write_key(out, "eviction", key);
            write_leaver(out, leaver);
            number(out, " size=", leaver.value_bytes);
        }
        What::WriteToFlash(leaver) => {
            write_key(out, "extwrite", key);
            write_leaver(out, leaver);
            number(out, " bucket=", THE_BUCKET);
        }
        What::Open(client) => {
            write_client(out, "conn_new", client);
            socket(out, client.fd);
        }
        What::Close(client, reason) => {
            write_client(out, "conn_close", client);
            let reason = match reason {
                CloseReason::Error => "error",
                CloseReason::Normal => "normal",
                CloseReason::IdleTimeout => "idle_timeout",
                CloseReason::Shutdown => "shutdown",
            };
            word(out, " reason=", reason);
            socket(out, client.fd);
        }
    }
    out.push(b'\n');
}

fn word(out: &mut Vec<u8>, name: &str, value: &str) {
    out.extend_from_slice(name.as_bytes());
    out.extend_from_slice(value.as_bytes());
}

fn number(out: &mut Vec<u8>, name: &str, value: impl Into<u64>) {
    out.extend_from_slice(name.as_bytes());
    decimal(out, value.into());
}

/// The number of a socket, which is never negative.
fn socket(out: &mut Vec<u8>, fd: i32) {
    number(out, " cfd=", fd.unsigned_abs());
}

fn write_key(out: &mut Vec<u8>, kind: &str, key: &[u8]) {
    word(out, " type=", kind);
    word(out, " key=", "");
    url_encode(out, key);
}

fn write_leaver(out: &mut Vec<u8>, leaver: &Leaver) {
    word(out, " fetch=", if leaver.was_fetched { "yes" } else { "no" });
    match leaver.ttl_s {
        Some(ttl_s) => number(out, " ttl=", ttl_s),
        None => word(out, " ttl=", "-1"),
    }
    number(out, " la=", leaver.idle_s);
    number(out, " clsid=", THE_CLASS);
}

fn write_client(out: &mut Vec<u8>, kind: &str, client: &Client) {
    word(out, " type=", kind);
    match client.address {
        Some(address) => {
            let ip = match address.ip() {
                IpAddr::V6(v6) => v6.to_ipv4_mapped().map_or(IpAddr::V6(v6), IpAddr::V4),
                v4 => v4,
            };
            word(out, " rip=", &ip.to_string());
            number(out, " rport=", address.port());
        }
        None => word(out, " rip=", "unix rport=0"),
    }
    let transport = match client.transport {
        Transport::Unix => "local",
        Transport::Tcp => "tcp",
        Transport::Udp => "udp",
    };
    word(out, " transport=", transport);
}

impl StoreStatus {
    fn name(self) -> &'static str {
        match self {
            StoreStatus::NotStored => "not_stored",
            StoreStatus::Stored => "stored",
            StoreStatus::Exists => "exists",
            StoreStatus::NotFound => "not_found",
            StoreStatus::TooLarge => "too_large",
            StoreStatus::NoMemory => "no_memory",
        }
    }
}

impl StoreCommand {
    fn name(self) -> &'static str {
        match self {
            StoreCommand::Add => "add",
            StoreCommand::Set => "set",
            StoreCommand::Replace => "replace",
            StoreCommand::Append => "append",
            StoreCommand::Prepend => "prepend",
            StoreCommand::Cas => "cas",
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[track_caller]
    fn check(what: What, key: &[u8], expected: &str) {
        let mut event = Event::new(9, 0, what, key);
        event.at_us = 1_700_000_000_000_005;
        let mut out = Vec::new();
        write_line(&mut out, &event, key);
        let expected = format!("ts=1700000000.5 gid=9 {expected}\n");
        assert_eq!(String::from_utf8(out).expect("lines are ASCII"), expected);
    }

    #[test]
    fn lines_are_those_of_memcached() {
        let key = b"a b/\x80\xff-._~Z9";
        check(
            What::Get { found: Ok(5), fd: 30 },
            key,
            "type=item_get key=a%20b%2F%80%FF-._~Z9 status=found clsid=1 cfd=30 size=5",
        );
        for (absence, status) in
            [(Absence::NotFound, "not_found"), (Absence::Flushed, "flushed"), (Absence::Expired, "expired")]
        {
            let line = format!("type=item_get key=k status={status} clsid=0 cfd=1 size=0");
            check(What::Get { found: Err(absence), fd: 1 }, b"k", &line);
        }
        check(
            What::Store {
                status: StoreStatus::Stored,
                command: StoreCommand::Cas,
                ttl_s: 60,
                class: 1,
                value_bytes: 3,
                fd: 4,
            },
            b"k",
            "type=item_store key=k status=stored cmd=cas ttl=60 clsid=1 cfd=4 size=3",
        );
        check(
            What::Delete { is_meta: true, value_bytes: 2 },
            b"k",
            "type=deleted key=k cmd=md clsid=1 size=2",
        );
        let leaver = Leaver { was_fetched: true, ttl_s: None, idle_s: 17, value_bytes: 100 };
        check(What::Evict(leaver), b"k", "type=eviction key=k fetch=yes ttl=-1 la=17 clsid=1 size=100");
        let leaver = Leaver { was_fetched: false, ttl_s: Some(9), ..leaver };
        check(What::WriteToFlash(leaver), b"k", "type=extwrite key=k fetch=no ttl=9 la=17 clsid=1 bucket=0");
    }

    #[test]
    fn clients_are_shown_with_their_addresses() {
        let client = |address: &str| Client {
            address: address.parse().ok(),
            transport: if address.is_empty() { Transport::Unix } else { Transport::Tcp },
            fd: 8,
        };
        check(
            What::Open(client("10.0.0.1:77")),
            b"",
            "type=conn_new rip=10.0.0.1 rport=77 transport=tcp cfd=8",
        );
        check(What::Open(client("[::1]:77")), b"", "type=conn_new rip=::1 rport=77 transport=tcp cfd=8");
        check(
            What::Open(client("[::ffff:10.0.0.1]:77")),
            b"",
            "type=conn_new rip=10.0.0.1 rport=77 transport=tcp cfd=8",
        );
        check(
            What::Close(client(""), CloseReason::IdleTimeout),
            b"",
            "type=conn_close rip=unix rport=0 transport=local reason=idle_timeout cfd=8",
        );
    }
}
