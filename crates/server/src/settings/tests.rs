//! Settings that contradict each other, and the sockets that they name.

use std::net::SocketAddr;

use super::*;

#[test]
fn defaults_are_a_server_that_can_start() {
    let settings = Settings::default();
    assert_eq!(check(&settings), Ok(()));
    let at: Vec<String> = tcp_sockets(&settings).unwrap().iter().map(ToString::to_string).collect();
    assert_eq!(at, ["0.0.0.0:11211", "[::]:11211"]);
    assert_eq!(udp_sockets(&settings), Ok(Vec::new()));
    let udp = Settings { udp_port: Port::Fixed(9), ..settings };
    let at: Vec<String> = udp_sockets(&udp).unwrap().iter().map(ToString::to_string).collect();
    assert_eq!(at, ["127.0.0.1:9", "[::1]:9"]);
}

#[test]
fn an_item_may_take_half_of_memory_and_no_more() {
    let half = Settings { memory_bytes: 2 * MIB, ..Settings::default() };
    assert_eq!(check(&half), Ok(()));
    let more = Settings { memory_bytes: MIB, ..Settings::default() };
    assert!(check(&more).unwrap_err().contains("lower -I or raise -m"));
}

#[test]
fn a_unix_socket_turns_the_network_off() {
    let settings =
        Settings { unix_socket: Some("/tmp/s".into()), udp_port: Port::Random, ..Settings::default() };
    assert_eq!(tcp_sockets(&settings), Ok(Vec::new()));
    assert_eq!(udp_sockets(&settings), Ok(Vec::new()));
}

#[test]
fn an_address_with_its_own_port_keeps_it_for_tcp_only() {
    let address = |host: &str, port| Address { host: host.to_owned(), port, tls: ListenerTls::Default };
    let settings = Settings {
        addresses: vec![address("127.0.0.1", Some(5)), address("::1", None), address("127.0.0.1", Some(5))],
        udp_port: Port::Fixed(9),
        ..Settings::default()
    };
    let text = |found: Vec<SocketAddr>| found.iter().map(ToString::to_string).collect::<Vec<_>>();
    assert_eq!(text(tcp_sockets(&settings).unwrap()), ["127.0.0.1:5", "[::1]:11211"]);
    assert_eq!(text(udp_sockets(&settings).unwrap()), ["127.0.0.1:9", "[::1]:9"]);
    assert_eq!(settings.addresses[0].to_string(), "127.0.0.1:5");
    let nowhere = Settings { addresses: vec![address("no such host", None)], ..Settings::default() };
    assert!(tcp_sockets(&nowhere).unwrap_err().contains("'no such host'"));
}

#[test]
fn every_worker_needs_a_cpu_of_a_list() {
    let settings = Settings { pin_cpus: PinCpus::List(vec![0, 1]), threads: 3, ..Settings::default() };
    assert!(check(&settings).unwrap_err().contains("one for each thread"));
}
