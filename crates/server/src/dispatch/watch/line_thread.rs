//! The thread that makes lines of events while somebody watches.

use super::event::Page;
use super::line::write_line;
use super::{Lines, Watch, Watcher};
use std::sync::atomic::Ordering::Relaxed;
use std::sync::{Arc, MutexGuard};
use std::thread::sleep;
use std::time::{Duration, Instant};

/// The shortest and the longest pause between two rounds. The longest is how late a line may be.
const PAUSE_MIN: Duration = Duration::from_millis(1);
const PAUSE_MAX: Duration = Duration::from_millis(100);
/// A pause is this number of times as long as the round before it: the thread takes at most about 1 % of one processor,
/// however much happens, and events that come faster are dropped on their lanes.
const PAUSE_TIMES: u32 = 100;

/// Runs until nobody watches. `page` is exchanged for the pages of the lanes.
pub(super) fn run(watch: &Watch, mut page: Page) {
    let (mut line, mut pause) = (Vec::new(), PAUSE_MIN);
    loop {
        sleep(pause);
        let started = Instant::now();
        let watchers = {
            let mut watchers = watch.lock_watchers();
            if watchers.all.is_empty() {
                return watch.end_thread(&mut watchers);
            }
            watchers.all.clone()
        };
        let mut has_events = false;
        for lane in &watch.lanes {
            lane.exchange(&mut page);
            has_events |= deliver(watch, &watchers, &page, &mut line);
            page.clear();
        }
        for watcher in &watchers {
            announce(watch, watcher);
        }
        pause = if has_events {
            (started.elapsed() * PAUSE_TIMES).max(PAUSE_MIN)
        } else {
            (pause * 9 / 8).min(PAUSE_MAX)
        };
    }
}

/// Gives the events of a page to the watchers that want them. Returns whether there were any.
fn deliver(watch: &Watch, watchers: &[Arc<Watcher>], page: &Page, line: &mut Vec<u8>) -> bool {
    let mut open: Vec<(&Watcher, MutexGuard<'_, Lines>)> = Vec::new();
    let (mut sent, mut skipped) = (0, 0);
    for (event, key) in page.iter() {
        if open.is_empty() {
            open = watchers.iter().map(|watcher| (&**watcher, watcher.lock_lines())).collect();
        }
        line.clear();
        for (watcher, lines) in &mut open {
            if watcher.wants(event.what.kind(), event.gid) {
                if line.is_empty() {
                    write_line(line, event, key);
                }
                let is_sent = lines.append(line, watcher.bytes_max);
                *(if is_sent { &mut sent } else { &mut skipped }) += 1;
            }
        }
    }
    watch.sent.fetch_add(sent, Relaxed);
    watch.skipped.fetch_add(skipped, Relaxed);
    !open.is_empty()
}

/// Tells a watcher's worker that there are lines, unless the worker knows.
fn announce(watch: &Watch, watcher: &Watcher) {
    let has_lines = !watcher.lock_lines().bytes.is_empty();
    if has_lines && !watcher.is_told.swap(true, Relaxed) {
        watch.news.tell(watcher.worker, watcher.id);
    }
}
