//! What a server says about its own start: what is probably not what the user wants.

use crate::io::Addresses;
use crate::settings::{FleetSettings, Port, Settings, serves_strangers};
use std::fs;
use std::path::{Path, PathBuf};

/// What the machine, or the container, gives a server.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Machine {
    /// Bytes of memory; `None` = unknown.
    pub(crate) memory_bytes: Option<u64>,
    /// Whether the server runs as root.
    pub(crate) is_root: bool,
}

impl Machine {
    /// This machine.
    pub(crate) fn here() -> Machine {
        let info = fs::read_to_string("/proc/meminfo").unwrap_or_default();
        let groups = fs::read_to_string("/proc/self/cgroup").unwrap_or_default();
        let limits = group_files(&groups, Path::new("/sys/fs/cgroup"))
            .into_iter()
            .filter_map(|file| fs::read_to_string(file).ok()?.trim().parse().ok());
        Machine {
            memory_bytes: total_bytes(&info).into_iter().chain(limits).min(),
            is_root: rustix::process::geteuid().is_root(),
        }
    }
}

/// The memory of the machine in `/proc/meminfo`.
fn total_bytes(info: &str) -> Option<u64> {
    let kib: u64 = info
        .lines()
        .find_map(|line| line.strip_prefix("MemTotal:"))?
        .split_whitespace()
        .next()?
        .parse()
        .ok()?;
    Some(kib << 10)
}

/// The files that may limit the memory of this process: those of its control group and of the groups around that.
/// `groups` = `/proc/self/cgroup`.
fn group_files(groups: &str, mounted_at: &Path) -> Vec<PathBuf> {
    let Some(own) = groups.lines().find_map(|line| line.strip_prefix("0::/")) else { return Vec::new() };
    let folders = Path::new(own).ancestors().map(|folder| mounted_at.join(folder).join("memory.max"));
    folders.collect()
}

/// One sentence for each thing that is probably not what the user wants.
pub(crate) fn startup_warnings(settings: &Settings, addresses: &Addresses, machine: Machine) -> Vec<String> {
    let mut warnings = Vec::new();
    if let Some(wanted_bytes) = settings.memory_raised_from {
        warnings.push(format!(
            "-m asks for {}, and {} is the least that a server works with: it has that",
            size(wanted_bytes),
            size(settings.memory_bytes)
        ));
    }
    if let Some(there_bytes) = machine.memory_bytes.filter(|&there_bytes| settings.memory_bytes > there_bytes)
    {
        warnings.push(format!(
            "-m allows {}, and there are {}: the system will end the server when memory runs out; lower -m",
            size(settings.memory_bytes),
            size(there_bytes)
        ));
    }
    let Addresses { tcp, udp, resp, .. } = addresses;
    let listens_everywhere = tcp.iter().chain(udp).chain(resp).any(|at| at.ip().is_unspecified());
    if addresses.are_unasked && !serves_strangers(settings) {
        warnings.push(
            "only clients of this machine are served: for others name addresses with -l, ask for passwords with -Y, or \
             give --open"
                .to_owned(),
        );
    } else if listens_everywhere && settings.auth_file.is_none() {
        warnings.push(
            "every machine that reaches this one may read and change all items: name addresses with -l, or ask for \
             passwords with -Y"
                .to_owned(),
        );
    }
    warnings.extend(settings.fleet.as_ref().and_then(FleetSettings::doubt));
    if machine.is_root && settings.user.is_none() {
        warnings.push("running as root: name another user with -u".to_owned());
    }
    if tcp.is_empty() && udp.is_empty() && resp.is_empty() && addresses.unix.is_none() {
        warnings
            .push("nothing listens: give a TCP port (-p), a UDP port (-U) or a UNIX socket (-s)".to_owned());
    }
    if !udp.is_empty() && settings.addresses.is_empty() && settings.udp_port != Port::Off {
        warnings.push("UDP is for this machine only, because no address is named with -l".to_owned());
    }
    warnings
}

/// A number of bytes in its largest unit, with a digit behind the point where that says more.
fn size(bytes: u64) -> String {
    const UNITS: [&str; 5] = ["bytes", "KiB", "MiB", "GiB", "TiB"];
    let power = (0..UNITS.len()).rev().find(|&power| bytes >> (10 * power) > 0).unwrap_or(0);
    let number = bytes as f64 / (1u64 << (10 * power)) as f64;
    let digits = usize::from(number < 100.0 && number.fract() >= 0.05);
    format!("{number:.digits$} {}", UNITS[power])
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::net::SocketAddr;

    fn at(addresses: &[&str]) -> Vec<SocketAddr> {
        addresses.iter().map(|at| at.parse().expect("an address")).collect()
    }

    fn said(settings: &Settings, tcp: &[&str], udp: &[&str], machine: Machine) -> Vec<String> {
        startup_warnings(settings, &Addresses { tcp: at(tcp), udp: at(udp), ..Addresses::default() }, machine)
    }

    const USUAL: Machine = Machine { memory_bytes: Some(23 << 30), is_root: false };

    #[test]
    fn a_careful_start_causes_no_warning() {
        assert_eq!(said(&Settings::default(), &["127.0.0.1:11211"], &[], USUAL), [""; 0]);
        let closed = Settings {
            auth_file: Some("users".into()),
            user: Some("root".to_owned()),
            ..Settings::default()
        };
        assert_eq!(said(&closed, &["0.0.0.0:11211"], &[], Machine { is_root: true, ..USUAL }), [""; 0]);
    }

    #[test]
    fn a_port_of_resp_is_a_door_as_well() {
        let addresses = Addresses { resp: at(&["0.0.0.0:6379"]), ..Addresses::default() };
        let said = startup_warnings(&Settings::default(), &addresses, USUAL);
        assert!(said.len() == 1 && said[0].contains("may read and change all items"), "{said:?}");
    }

    #[test]
    fn each_warning_is_a_sentence() {
        let settings = Settings { memory_bytes: 10 << 40, ..Settings::default() };
        let root = Machine { is_root: true, ..USUAL };
        let all = said(&settings, &["0.0.0.0:1", "[::]:1"], &[], root);
        assert_eq!(all.len(), 3, "{all:?}");
        assert!(all[0].starts_with("-m allows 10 TiB, and there are 23 GiB"), "{all:?}");
        assert!(all[1].contains("name addresses with -l") && all[2].contains("-u"), "{all:?}");
        let raised =
            Settings { memory_bytes: 8 << 20, memory_raised_from: Some(3 << 19), ..Settings::default() };
        let all = said(&raised, &[], &[], USUAL);
        assert!(all[0].starts_with("-m asks for 1.5 MiB, and 8 MiB is the least"), "{all:?}");
        assert!(all[1].starts_with("nothing listens"), "{all:?}");
        let udp = Settings { udp_port: Port::Fixed(7), ..Settings::default() };
        assert!(
            said(&udp, &["127.0.0.1:7"], &["127.0.0.1:7"], USUAL)[0]
                .starts_with("UDP is for this machine only")
        );
    }

    #[test]
    fn memory_is_what_the_machine_has_or_its_groups_allow() {
        assert_eq!(total_bytes("MemTotal:        1024 kB\nMemFree: 5 kB\n"), Some(1 << 20));
        assert_eq!(total_bytes(""), None);
        let files = group_files("1:name=systemd:/x\n0::/a/b\n", Path::new("/s"));
        assert_eq!(
            files,
            [Path::new("/s/a/b/memory.max"), Path::new("/s/a/memory.max"), Path::new("/s/memory.max")]
        );
        assert!(group_files("4:memory:/a\n", Path::new("/s")).is_empty());
        assert!(Machine::here().memory_bytes.is_some_and(|bytes| bytes > 1 << 20));
    }

    #[test]
    fn sizes_are_short() {
        let shown = [0, 1023, 1024, 1 << 20, 3 << 19, 100 << 20, 23 << 30, (10 << 40) + 5];
        let expected = ["0 bytes", "1023 bytes", "1 KiB", "1 MiB", "1.5 MiB", "100 MiB", "23 GiB", "10 TiB"];
        assert_eq!(shown.map(size), expected);
    }
}
