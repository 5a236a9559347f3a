use super::at_once::{AtOnce, reads_at_once};
use super::clock::Clock;
use larder_flash::device::{DeviceError, PageBuffer, ReadDone, ReadQueue, ZoneId};
use rustix::time::{
    Itimerspec, TimerfdClockId, TimerfdFlags, TimerfdTimerFlags, Timespec, timerfd_create, timerfd_settime,
};
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::time::Duration;

/// A queue of reads of a simulated drive with this clock.
///
/// # Errors
/// The system gives no timer or eventfd.
pub(super) fn reads(
    source: impl AtOnce,
    clock: Clock,
    depth: u32,
) -> Result<Box<dyn ReadQueue>, DeviceError> {
    match clock.is_real() {
        true => Ok(Box::new(TimedReads::new(source, clock, depth)?)),
        false => reads_at_once(source, depth),
    }
}

/// A queue whose reads complete when the simulated drive has done them, in real time.
struct TimedReads<S> {
    source: S,
    clock: Clock,
    depth: usize,
    /// Expires when the first of the reads is done.
    timer: OwnedFd,
    /// The reads under way, each with the time of its end.
    reads: Vec<(u64, ReadDone)>,
}

impl<S: AtOnce> TimedReads<S> {
    /// # Errors
    /// The system gives no timer.
    fn new(source: S, clock: Clock, depth: u32) -> Result<TimedReads<S>, DeviceError> {
        let timer = timerfd_create(TimerfdClockId::Monotonic, TimerfdFlags::NONBLOCK | TimerfdFlags::CLOEXEC)
            .map_err(|error| DeviceError::io("timerfd", error.into()))?;
        Ok(TimedReads { source, clock, depth: depth.max(1) as usize, timer, reads: Vec::new() })
    }

    /// Makes the descriptor readable when the next read is done.
    fn set_timer(&self) {
        let Some(first) = self.reads.iter().map(|(end, _)| *end).min() else { return };
        // A time of 0 would stop the timer.
        let left = self.clock.left(first).max(Duration::from_nanos(1));
        let it_value = Timespec { tv_sec: left.as_secs() as i64, tv_nsec: left.subsec_nanos().into() };
        let it_interval = Timespec { tv_sec: 0, tv_nsec: 0 };
        let once = Itimerspec { it_interval, it_value };
        let _ = timerfd_settime(&self.timer, TimerfdTimerFlags::empty(), &once);
    }
}

impl<S: AtOnce> ReadQueue for TimedReads<S> {
    fn fd(&self) -> BorrowedFd<'_> {
        self.timer.as_fd()
    }

    fn has_room(&self) -> bool {
        self.reads.len() < self.depth
    }

    fn submit(
        &mut self,
        token: u64,
        zone: ZoneId,
        offset: u64,
        mut buffer: PageBuffer,
    ) -> Result<(), PageBuffer> {
        if !self.has_room() {
            return Err(buffer);
        }
        let (result, end) = self.source.read_now(zone, offset, &mut buffer);
        self.reads.push((end, ReadDone { token, buffer, result }));
        Ok(())
    }

    fn kick(&mut self) {
        self.set_timer();
    }

    fn reap(&mut self, done: &mut Vec<ReadDone>) {
        let _ = rustix::io::read(&self.timer, &mut [0; 8]);
        let now = self.clock.now_ns();
        let (ended, left) = std::mem::take(&mut self.reads).into_iter().partition(|(end, _)| *end <= now);
        self.reads = left;
        let ended: Vec<(u64, ReadDone)> = ended;
        done.extend(ended.into_iter().map(|(_, read)| read));
        self.set_timer();
    }

    fn in_flight(&self) -> usize {
        self.reads.len()
    }
}
