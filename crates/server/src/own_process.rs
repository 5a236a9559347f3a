//! What the kernel says of this process.

use crate::admin::{Family, Kind, Value};
use procfs::WithCurrentSystemInfo;
use procfs::process::{LimitValue, Process, Stat};
use std::sync::OnceLock;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

fn stat() -> Option<Stat> {
    Process::myself().ok()?.stat().ok()
}

/// The resident memory of the process.
pub(crate) fn resident_bytes() -> u64 {
    stat().map_or(0, |stat| stat.rss_bytes().get())
}

/// The time that the process has had a CPU: in its own code, and in the kernel.
pub(crate) fn cpu_times() -> (Duration, Duration) {
    let hz = procfs::ticks_per_second().max(1);
    let time =
        |ticks: u64| Duration::from_secs(ticks / hz) + Duration::from_micros(ticks % hz * 1_000_000 / hz);
    stat().map_or_else(Default::default, |stat| (time(stat.utime), time(stat.stime)))
}

/// When the process was started, in seconds of the unix time. It is read once, because the kernel tells it by a clock
/// that is not that of the unix time.
fn started_s() -> f64 {
    static STARTED: OnceLock<f64> = OnceLock::new();
    *STARTED.get_or_init(|| {
        let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default().as_secs_f64();
        let runs = || {
            let begun = stat()?.starttime as f64 / procfs::ticks_per_second() as f64;
            Some(procfs::Uptime::current().ok()?.uptime - begun)
        };
        use procfs::Current;
        now - runs().unwrap_or_default()
    })
}

/// The families that Prometheus's own client libraries have of a process, with their names.
pub(crate) fn families() -> Vec<Family> {
    let Ok(process) = Process::myself() else { return Vec::new() };
    let (user, system) = cpu_times();
    let gauge = |name, help, unit, value| Family::single(name, help, Kind::Gauge, unit, Value::Count(value));
    let mut families = vec![
        Family::single(
            "process_cpu",
            "Time that the process has had a CPU, of all of its threads, in seconds.",
            Kind::Counter,
            "seconds",
            Value::Amount((user + system).as_secs_f64()),
        ),
        Family::single(
            "process_start_time",
            "When the process was started, in seconds of the unix time.",
            Kind::Gauge,
            "seconds",
            Value::Amount(started_s()),
        ),
    ];
    if let Ok(stat) = process.stat() {
        families.extend([
            gauge(
                "process_resident_memory",
                "Resident memory of the process in bytes.",
                "bytes",
                stat.rss_bytes().get(),
            ),
            gauge("process_virtual_memory", "Address space of the process in bytes.", "bytes", stat.vsize),
            gauge("process_threads", "Threads of the process.", "", stat.num_threads.max(0) as u64),
        ]);
    }
    if let Ok(open) = process.fd_count() {
        families.push(gauge(
            "process_open_fds",
            "Open files and connections of the process.",
            "",
            open as u64,
        ));
    }
    if let Some(LimitValue::Value(most)) =
        process.limits().ok().map(|limits| limits.max_open_files.soft_limit)
    {
        families.push(gauge(
            "process_max_fds",
            "Most files and connections that the process may open.",
            "",
            most,
        ));
    }
    families
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_kernel_says_it() {
        assert!(resident_bytes() > 1 << 20);
        let names: Vec<_> = families().iter().map(|family| family.name).collect();
        assert_eq!(names.len(), 7, "{names:?}");
        let now = SystemTime::now().duration_since(UNIX_EPOCH).expect("it is later").as_secs_f64();
        assert!((now - 86_400.0..=now + 1.0).contains(&started_s()), "{}", started_s());
    }
}
