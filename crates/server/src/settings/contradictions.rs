//! Settings that contradict each other.

use super::all::Settings;
use super::memory::{PAGES, Pages, UserNamespace};
use super::network::{Address, Port, Protocol};
use super::process::PinCpus;
use super::tls::ListenerTls;
use super::units::MIB;
use larder_cache::{Compress, NAMESPACE_BYTES_MAX, check_compress};

/// Looks for settings that contradict each other.
///
/// # Errors
/// One line that says what to do.
pub fn check(settings: &Settings) -> Result<(), String> {
    problems(settings).into_iter().next().map_or(Ok(()), Err)
}

/// All contradictions between settings, one line each that says what to do.
pub fn problems(settings: &Settings) -> Vec<String> {
    let mut found = Vec::new();
    let mut wrong = |what: String| found.push(what);
    if u64::from(settings.item_bytes_max) > settings.memory_bytes / 2 {
        wrong(format!(
            "the largest item ({} bytes, -I) may take at most half of the memory ({} MiB, -m): \
             lower -I or raise -m",
            settings.item_bytes_max,
            settings.memory_bytes / MIB
        ));
    }
    check_ports(settings, &mut wrong);
    check_login(settings, &mut wrong);
    check_user_namespaces(settings, &mut wrong);
    if let Compress::Only(names) = &settings.compress
        && let Err(what) = check_compress(names, settings.prefix_delimiter)
    {
        wrong(format!("--compress: {what}"));
    }
    settings.tls.tell_problems(&mut wrong);
    if !settings.tls.enabled && settings.addresses.iter().any(|address| address.tls != ListenerTls::Default) {
        wrong(
            "notls, btls and mtls before an address (-l) say how it is encrypted: turn TLS on with -Z"
                .to_owned(),
        );
    }
    if settings.device.is_apart() && !settings.temperature.can_use_device() {
        wrong(
            "a device (--device) works on a hitmap: give --temperature hitmap too, or leave --device out"
                .to_owned(),
        );
    }
    settings.flash.tell_problems(settings.evict, &mut wrong);
    check_keep(settings, &mut wrong);
    if settings.numa && settings.keep.is_some() {
        wrong(
            "the items in a file (--keep) stay where they are: leave --numa out, or use --numa off"
                .to_owned(),
        );
    }
    if settings.numa && settings.pages == Pages::Coloured {
        wrong(
            "pages that are sorted by colour lie on any NUMA node: choose other --pages, or use --numa off"
                .to_owned(),
        );
    }
    if let PinCpus::List(cpus) = &settings.pin_cpus
        && (cpus.len() as u64) < u64::from(settings.threads)
    {
        wrong(format!(
            "--pin-cpus names {} CPUs for {} threads (-t): name one for each thread, or use --pin-cpus auto",
            cpus.len(),
            settings.threads
        ));
    }
    found
}

/// RESP has a port of its own, or none.
fn check_ports(settings: &Settings, wrong: &mut dyn FnMut(String)) {
    let (Port::Fixed(resp), None) = (settings.resp_port, &settings.unix_socket) else { return };
    let tcp = |address: &Address| address.port.map_or(settings.tcp_port, Port::Fixed);
    let mut ports =
        settings.addresses.iter().map(tcp).chain(settings.addresses.is_empty().then_some(settings.tcp_port));
    if settings.tcp_port != Port::Off && ports.any(|port| port == Port::Fixed(resp)) {
        wrong(format!(
            "port {resp} is that of --resp-port and that of -p (or -l): RESP is understood on the port of -p too, \
             so leave --resp-port out, or name another port"
        ));
    }
}

/// A file that memory is kept in decides about the pages, and flash keeps items already.
fn check_keep(settings: &Settings, wrong: &mut dyn FnMut(String)) {
    if settings.keep.is_none() {
        return;
    }
    if settings.flash.is_set() {
        wrong(
            "with flash (--flash) items outlive the process already: leave --keep out, or use memory alone"
                .to_owned(),
        );
    }
    if !matches!(settings.pages, Pages::Auto | Pages::Small) {
        wrong(format!(
            "the file system of --keep decides about the pages: leave --pages {} out, and name a file on a \
             hugetlbfs for huge ones",
            PAGES.name(settings.pages)
        ));
    }
}

fn check_login(settings: &Settings, wrong: &mut dyn FnMut(String)) {
    let mut wrong = |what: &str| wrong(what.to_owned());
    if settings.sasl && settings.auth_file.is_none() {
        wrong(
            "SASL (-S) needs users: name a file of user:password lines with -Y FILE, or with the environment \
             variable MEMCACHED_SASL_PWDB",
        );
    }
    if settings.sasl && settings.protocol != Protocol::Binary {
        wrong(
            "SASL (-S) is a login of the binary protocol: leave -B out, or replace -S by -Y FILE, which serves \
             logins of all protocols",
        );
    }
    if settings.auth_file.is_some() && settings.unix_socket.is_none() && settings.udp_port != Port::Off {
        wrong("nobody can log in over UDP: turn it off with -U 0, or leave the users out (-Y, -S)");
    }
}

fn check_user_namespaces(settings: &Settings, wrong: &mut dyn FnMut(String)) {
    let list = &settings.user_namespaces;
    if list.is_empty() {
        return;
    }
    if settings.auth_file.is_none() {
        wrong("namespaces of users (--user-namespaces) need users: name a file of them with -Y".to_owned());
    }
    if settings.fleet.is_some() {
        wrong(
            "clients of a fleet choose the server by the key that they send: give no namespaces to users \
             (--user-namespaces)"
                .to_owned(),
        );
    }
    for (nth, UserNamespace { user, namespace }) in list.iter().enumerate() {
        if list[..nth].iter().any(|other| other.user == *user) {
            wrong(format!("the user '{user}' has two namespaces (--user-namespaces)"));
        }
        let is_good = |byte: u8| byte.is_ascii_graphic() && byte != settings.prefix_delimiter;
        if !(1..=NAMESPACE_BYTES_MAX).contains(&namespace.len()) || !namespace.bytes().all(is_good) {
            wrong(format!(
                "the namespace of the user '{user}' has 1 to {NAMESPACE_BYTES_MAX} letters, digits and signs \
                 without '{}': '{namespace}'",
                char::from(settings.prefix_delimiter)
            ));
        }
    }
}
