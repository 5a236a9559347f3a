//! Reads processor time and memory of processes, and the load of cores, from the kernel.

use std::collections::HashMap;
use std::fs;
use std::io;
use std::time::Duration;

use rustix::thread::CpuSet;

/// Adds up the processor time of all threads of one process, including threads that start and end. The time of a
/// thread at its last sample stays counted.
#[derive(Debug)]
pub(crate) struct CpuMeter {
    pid: u32,
    last_seen: HashMap<u32, u64>,
    total_ns: u64,
    ticks_at_start: Option<u64>,
}

impl CpuMeter {
    /// A meter that counts from now on.
    pub(crate) fn new(pid: u32) -> io::Result<Self> {
        let mut meter = Self { pid, last_seen: HashMap::new(), total_ns: 0, ticks_at_start: None };
        meter.sample()?;
        meter.total_ns = 0;
        meter.ticks_at_start = process_ticks(pid);
        Ok(meter)
    }

    /// Samples the threads. Returns the time used since the meter was made. Call it a few times per second: a thread
    /// that starts and ends between two calls is missed.
    pub(crate) fn sample(&mut self) -> io::Result<Duration> {
        for entry in fs::read_dir(format!("/proc/{}/task", self.pid))? {
            let name = entry?.file_name();
            let Some(thread) = name.to_str().and_then(|name| name.parse().ok()) else { continue };
            // A thread may end between the listing and the reading.
            let Ok(text) = fs::read_to_string(format!("/proc/{}/task/{thread}/schedstat", self.pid)) else {
                continue;
            };
            if let Some(used) = text.split_ascii_whitespace().next().and_then(|field| field.parse().ok()) {
                self.seen(thread, used);
            }
        }
        Ok(Duration::from_nanos(self.total_ns))
    }

    fn seen(&mut self, thread: u32, used_ns: u64) {
        let before = self.last_seen.insert(thread, used_ns).unwrap_or(0);
        // Less than before: the id was reused for a new thread.
        self.total_ns += if used_ns >= before { used_ns - before } else { used_ns };
    }

    /// The time by which the kernel's own total, which includes ended threads, exceeds the sum over the threads. The
    /// total counts in hundredths of a second and is read at another instant, so a few hundredths mean nothing.
    pub(crate) fn unseen(&self) -> Duration {
        const COARSE: Duration = Duration::from_millis(40);
        let ticks = process_ticks(self.pid).zip(self.ticks_at_start).map_or(0, |(now, then)| now - then);
        let unseen = Duration::from_millis(10 * ticks).saturating_sub(Duration::from_nanos(self.total_ns));
        if unseen > COARSE { unseen } else { Duration::ZERO }
    }
}

/// User and system time of a process, ended threads included, in hundredths of a second.
fn process_ticks(pid: u32) -> Option<u64> {
    let text = fs::read_to_string(format!("/proc/{pid}/stat")).ok()?;
    // The name in parentheses may contain blanks. Of the fields after it, number 11 is user time and number 12 is
    // system time.
    let fields: Vec<&str> = text.rsplit_once(')')?.1.split_ascii_whitespace().collect();
    Some(fields.get(11)?.parse::<u64>().ok()? + fields.get(12)?.parse::<u64>().ok()?)
}

/// Resident memory of a process in bytes, including reserved huge pages.
pub(crate) fn resident_bytes(pid: u32) -> io::Result<u64> {
    Ok(resident_of(&fs::read_to_string(format!("/proc/{pid}/status"))?))
}

fn resident_of(status: &str) -> u64 {
    kibibytes(status, "VmRSS:").unwrap_or(0) + kibibytes(status, "HugetlbPages:").unwrap_or(0)
}

/// Memory in bytes that could be allocated without swapping; the largest number if the kernel does not tell.
pub(crate) fn available_bytes() -> u64 {
    let meminfo = fs::read_to_string("/proc/meminfo").unwrap_or_default();
    kibibytes(&meminfo, "MemAvailable:").unwrap_or(u64::MAX)
}

fn kibibytes(text: &str, name: &str) -> Option<u64> {
    let line = text.lines().find_map(|line| line.strip_prefix(name))?;
    line.split_ascii_whitespace().next()?.parse::<u64>().ok().map(|kibibytes| kibibytes * 1024)
}

/// Busy time of some cores, and time withheld by a hypervisor.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct CoreTime {
    /// Time running anything.
    pub(crate) busy: Duration,
    /// Time wanted, but not given by the hypervisor.
    pub(crate) stolen: Duration,
}

impl CoreTime {
    /// The times since boot of the given cores (all if empty).
    pub(crate) fn now(cores: &[usize]) -> io::Result<Self> {
        Ok(Self::of(&fs::read_to_string("/proc/stat")?, cores))
    }

    fn of(stat: &str, cores: &[usize]) -> Self {
        let mut time = Self::default();
        for line in stat.lines() {
            let mut fields = line.split_ascii_whitespace();
            let Some(core) = fields.next().and_then(|name| name.strip_prefix("cpu")) else { continue };
            let wanted = match core.parse::<usize>() {
                Ok(core) => cores.contains(&core),
                Err(_) => cores.is_empty(),
            };
            if wanted {
                let ticks: Vec<u64> = fields.filter_map(|field| field.parse().ok()).collect();
                let at = |index: usize| ticks.get(index).copied().unwrap_or(0);
                // user nice system idle iowait irq softirq steal
                time.busy += Duration::from_millis(10 * (at(0) + at(1) + at(2) + at(5) + at(6)));
                time.stolen += Duration::from_millis(10 * at(7));
            }
        }
        time
    }

    /// The difference to `earlier`.
    pub(crate) fn since(self, earlier: Self) -> Self {
        Self {
            busy: self.busy.saturating_sub(earlier.busy),
            stolen: self.stolen.saturating_sub(earlier.stolen),
        }
    }
}

/// Processor time of the calling thread.
pub(crate) fn thread_cpu() -> Duration {
    let time = rustix::time::clock_gettime(rustix::time::ClockId::ThreadCPUTime);
    Duration::new(time.tv_sec as u64, time.tv_nsec as u32)
}

/// Binds the calling thread, and what it starts from now on, to `cores`; does nothing if the list is empty.
pub(crate) fn pin(cores: &[usize]) -> io::Result<()> {
    if cores.is_empty() {
        return Ok(());
    }
    let mut set = CpuSet::new();
    for &core in cores {
        if core >= CpuSet::MAX_CPU {
            return Err(io::Error::new(io::ErrorKind::InvalidInput, format!("there is no core {core}")));
        }
        set.set(core);
    }
    Ok(rustix::thread::sched_setaffinity(None, &set)?)
}

/// The cores the calling thread may run on.
pub(crate) fn allowed_cores() -> io::Result<Vec<usize>> {
    let set = rustix::thread::sched_getaffinity(None)?;
    Ok((0..CpuSet::MAX_CPU).filter(|&core| set.is_set(core)).collect())
}

/// The machine, for the report.
#[derive(Clone, Debug, serde::Serialize)]
pub(crate) struct Machine {
    /// Model of the first core.
    pub(crate) processor: String,
    /// Cores this process may use.
    pub(crate) cores: usize,
    /// Kernel release.
    pub(crate) kernel: String,
    /// All memory, in bytes.
    pub(crate) memory_bytes: u64,
}

impl Machine {
    /// This machine.
    pub(crate) fn here() -> Self {
        let read = |path: &str| fs::read_to_string(path).unwrap_or_default();
        let cpuinfo = read("/proc/cpuinfo");
        let model = cpuinfo.lines().find(|line| line.starts_with("model name"));
        Self {
            processor: model.and_then(|line| line.split(": ").nth(1)).unwrap_or("unknown").to_owned(),
            cores: std::thread::available_parallelism().map_or(1, usize::from),
            kernel: read("/proc/sys/kernel/osrelease").trim().to_owned(),
            memory_bytes: kibibytes(&read("/proc/meminfo"), "MemTotal:").unwrap_or(0),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::time::Instant;

    fn spin(time: Duration) {
        let start = Instant::now();
        while start.elapsed() < time {
            std::hint::spin_loop();
        }
    }

    #[test]
    fn threads_that_end_stay_counted() {
        let mut meter = CpuMeter { pid: 1, last_seen: HashMap::new(), total_ns: 0, ticks_at_start: None };
        meter.seen(10, 100);
        meter.seen(11, 50);
        meter.seen(10, 130);
        assert_eq!(meter.total_ns, 180);
        // 11 ended, its number came back with a new thread.
        meter.seen(11, 20);
        assert_eq!(meter.total_ns, 200);
    }

    #[test]
    fn the_meter_sees_this_process_work() {
        let mut meter = CpuMeter::new(std::process::id()).expect("/proc is there");
        let before = thread_cpu();
        std::thread::spawn(|| spin(Duration::from_millis(60))).join().expect("the spinner ends");
        spin(Duration::from_millis(60));
        let mine = thread_cpu() - before;
        let all = meter.sample().expect("/proc is there") + meter.unseen();
        assert!(
            mine > Duration::from_millis(5) && all + Duration::from_millis(30) > mine,
            "{mine:?} {all:?}"
        );
    }

    #[test]
    fn resident_memory_counts_huge_pages() {
        let status = "Name:\tx\nVmRSS:\t  1000 kB\nRssAnon:\t 900 kB\nHugetlbPages:\t    2048 kB\n";
        assert_eq!(resident_of(status), 3048 * 1024);
        assert!(resident_bytes(std::process::id()).expect("/proc is there") > 100_000);
    }

    #[test]
    fn core_times_are_picked_by_core() {
        let stat = "cpu  10 0 10 5 0 0 2 3\ncpu0 4 0 6 5 0 0 1 2\ncpu1 6 0 4 0 0 0 1 1\nintr 5\n";
        assert_eq!(CoreTime::of(stat, &[]).busy, Duration::from_millis(220));
        assert_eq!(CoreTime::of(stat, &[1]).busy, Duration::from_millis(110));
        assert_eq!(CoreTime::of(stat, &[0, 1]).stolen, Duration::from_millis(30));
    }
}
