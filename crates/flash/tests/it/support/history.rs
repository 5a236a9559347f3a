//! Random operations on a tier, and a model that says what a lookup may find.
#![allow(unreachable_pub, reason = "a module of a test")]

use larder_flash::device::Device;
use larder_flash::space::Watermarks;
use larder_flash::{Begun, Commit, Fetcher, Flash, FlashItem, FlashOptions, Found, Put, Recover};
use larder_item::{KeyHash, KeyHasher};
use larder_laboratory::Dice;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};

/// Number of keys in a history. With few keys, the same key is used again soon.
const KEYS: u64 = 40;
const BEGIN_UNIX_S: u32 = 1_700_000_000;

/// The options that a tier is opened with.
#[derive(Clone, Debug)]
pub struct Setup {
    pub recover: Recover,
    pub generations: bool,
    /// Whether the tier works after every step, as if its threads were fast. Otherwise it works in steps of its own.
    pub works_at_once: bool,
    /// The percentage of the zones that is held erased.
    pub erased_percent: u8,
    /// Bytes of the largest value.
    pub value_max: u64,
}

impl Setup {
    pub fn random(dice: &mut Dice, recover: Recover) -> Setup {
        Setup {
            recover,
            generations: dice.chance(50),
            works_at_once: !dice.chance(70),
            erased_percent: [10, 10, 40, 100][dice.below(4) as usize],
            value_max: [300, 1500, 5000, 9000][dice.below(4) as usize],
        }
    }

    fn options(&self, clock: Arc<AtomicU32>) -> FlashOptions {
        FlashOptions {
            memory_bytes: 4 << 20,
            segment_bytes: Some(8 * 4096),
            generations: self.generations,
            recover: self.recover,
            space: Watermarks::fixed(self.erased_percent),
            cutoff_s: 0,
            // With generations, a merge between the shutdown and the lookups would drop cold items.
            log_percent: 8,
            fill_percent: if self.generations { 100 } else { 50 },
            seed: 5,
            now_unix_s: Arc::new(move || clock.load(Ordering::Relaxed)),
            format: false,
        }
    }
}

/// The versions of a key that a lookup may find. Version numbers count up over all keys, and no number is used twice.
#[derive(Clone, Debug, Default)]
struct Known {
    /// The only version that may be found now; `None` = none. Not used while `any` is set.
    newest: Option<u64>,
    /// After a crash any version from `floor` on may be found, until a version is found or put.
    any: bool,
    /// An older version than this one may never be found.
    floor: u64,
    /// The version that was found since the last crash. No older version may be found.
    seen: u64,
    /// Invalidations that wait for their commit: the number of the commit, and the floor that it sets.
    pending: Vec<(Commit, u64)>,
    /// The versions that were put. Another value was never put.
    put: Vec<Version>,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
struct Version {
    number: u64,
    bytes: u64,
    expires_unix_s: u32,
}

/// Counts of what happened, for a person who looks at a failure, and for checks that a test was not empty.
#[derive(Clone, Copy, Default, Debug)]
pub struct Tally {
    pub crashes: u64,
    pub closes: u64,
    pub stored: u64,
    pub shed: u64,
    pub hits: u64,
    pub misses: u64,
    pub hits_after_crash: u64,
    pub commits: u64,
    /// Keys that were found before a clean shutdown, and how many of them were found after it.
    pub before_close: u64,
    pub after_close: u64,
}

impl Tally {
    pub fn add(&mut self, other: &Tally) {
        self.crashes += other.crashes;
        self.closes += other.closes;
        self.stored += other.stored;
        self.shed += other.shed;
        self.hits += other.hits;
        self.misses += other.misses;
        self.hits_after_crash += other.hits_after_crash;
        self.commits += other.commits;
        self.before_close += other.before_close;
        self.after_close += other.after_close;
    }
}

/// Opens the device, again after every crash and shutdown.
type Opens = Box<dyn Fn() -> Result<Arc<dyn Device>, String>>;

/// A tier, and the model of its contents.
pub struct History {
    setup: Setup,
    device: Opens,
    /// `None` between a crash or shutdown and the next start.
    tier: Option<(Arc<Flash>, Fetcher)>,
    hasher: KeyHasher,
    clock: Arc<AtomicU32>,
    keys: Vec<Known>,
    next_version: u64,
    token: u64,
    /// Whether the power is cut. Then no operation is acknowledged.
    is_gone: Arc<dyn Fn() -> bool>,
    /// The newest versions at the begin of a shutdown during which the power was cut. The shutdown may have been
    /// completed.
    closing: Option<Vec<Option<u64>>>,
    /// The last steps, for the message of a failure.
    trace: Vec<String>,
    pub tally: Tally,
}

fn key(number: u64) -> Vec<u8> {
    // Keys have several lengths, so that records begin at any offset.
    format!("key-{number:0width$}", width = 3 + (number % 7) as usize).into_bytes()
}

/// A value that names its key and version. Every byte depends on both.
fn value(key: u64, version: u64, bytes: u64) -> Vec<u8> {
    let mut out = format!("{key}:{version}:").into_bytes();
    let mut dice = Dice(key << 32 | version);
    while (out.len() as u64) < bytes {
        out.extend_from_slice(&dice.next_u64().to_le_bytes());
    }
    out.truncate((bytes as usize).max(16));
    out
}

fn parse(value: &[u8]) -> Option<(u64, u64)> {
    let mut parts = value.split(|byte| *byte == b':');
    let mut number = || std::str::from_utf8(parts.next()?).ok()?.parse().ok();
    Some((number()?, number()?))
}

impl History {
    /// Opens the tier on the device that `device` opens.
    pub fn open(
        device: impl Fn() -> Result<Arc<dyn Device>, String> + 'static,
        is_gone: Arc<dyn Fn() -> bool>,
        setup: Setup,
    ) -> Result<History, String> {
        let clock = Arc::new(AtomicU32::new(BEGIN_UNIX_S));
        let device: Opens = Box::new(device);
        let tier = Self::open_tier(&device, &setup, &clock)?;
        let hasher = KeyHasher::with_seed(tier.0.seed());
        Ok(History {
            setup,
            device,
            tier: Some(tier),
            hasher,
            clock,
            keys: (0..KEYS).map(|_| Known::default()).collect(),
            next_version: 1,
            token: 0,
            is_gone,
            closing: None,
            trace: Vec::new(),
            tally: Tally::default(),
        })
    }

    fn open_tier(
        device: &Opens,
        setup: &Setup,
        clock: &Arc<AtomicU32>,
    ) -> Result<(Arc<Flash>, Fetcher), String> {
        let flash =
            Flash::open(device()?, setup.options(clock.clone())).map_err(|error| error.to_string())?;
        let fetcher = flash.fetcher().map_err(|error| error.to_string())?;
        Ok((flash, fetcher))
    }

    /// The tier.
    pub fn flash(&self) -> &Flash {
        &self.tier.as_ref().expect("it is open").0
    }

    fn hash(&self, number: u64) -> KeyHash {
        self.hasher.hash(&key(number))
    }

    fn note(&mut self, step: String) {
        self.trace.push(step);
        if self.trace.len() > 4000 {
            self.trace.drain(..2000);
        }
    }

    /// The last steps with a key, for the message of a failure.
    fn story(&self, number: u64) -> String {
        let mine = format!("{number} ");
        let all = |line: &&String| {
            line.starts_with(&mine) || !line.starts_with(char::is_numeric) && !line.starts_with("tend")
        };
        let lines: Vec<&str> = self.trace.iter().filter(all).map(String::as_str).collect();
        lines[lines.len().saturating_sub(60)..].join("; ")
    }

    /// One random step.
    pub fn step(&mut self, dice: &mut Dice) -> Result<(), String> {
        let number = dice.below(KEYS);
        match dice.below(100) {
            0..45 => self.put(number, dice),
            45..60 => self.invalidate(number),
            60..80 => self.look(number)?,
            80..97 => self.tend(),
            97..98 if dice.chance(50) => self.flush(),
            97..98 => self.delete_prefix(number, dice),
            98..99 => {
                let now = self.clock.fetch_add(1 + dice.below(30) as u32, Ordering::Relaxed);
                self.note(format!("clock was {now}"));
            }
            _ => self.commit_all(),
        }
        if self.setup.works_at_once && dice.chance(50) {
            self.tend();
        }
        self.take_commits();
        Ok(())
    }

    fn put(&mut self, number: u64, dice: &mut Dice) {
        let version = self.next_version;
        self.next_version += 1;
        // One value in four is an extent, if the values are large enough.
        let bytes = if dice.chance(25) { dice.below(self.setup.value_max) } else { dice.below(300) };
        let bytes = bytes.min(self.flash().part_bytes_max() as u64);
        let now = self.clock.load(Ordering::Relaxed);
        let expires_unix_s = if dice.chance(15) { now + 1 + dice.below(60) as u32 } else { 0 };
        let (key, value) = (key(number), value(number, version, bytes));
        let item = FlashItem {
            key: &key,
            value: &value,
            value_bytes: value.len() as u64,
            flags: version as u32,
            expires_unix_s,
            cas: version,
            state: larder_flash::FlashState::PLAIN,
        };
        let put = self.flash().put(self.hash(number), &item);
        self.note(format!("{number} put {version} of {} expires {expires_unix_s}: {put:?}", value.len()));
        let known = &mut self.keys[number as usize];
        // A version that was shed counts as a version all the same, although it cannot be found.
        known.put.push(Version { number: version, bytes, expires_unix_s });
        match put {
            Put::Stored => {
                self.tally.stored += 1;
                (known.newest, known.any) = (Some(version), false);
            }
            Put::Shed => {
                self.tally.shed += 1;
                // The cache invalidates the key of a version that flash did not take.
                self.invalidate(number);
            }
        }
    }

    fn invalidate(&mut self, number: u64) {
        let floor = self.next_version;
        let commit = self.flash().invalidate(self.hash(number), &key(number));
        self.note(format!("{number} invalidate {commit:?}, floor {floor}"));
        let known = &mut self.keys[number as usize];
        (known.newest, known.any) = (None, false);
        match commit {
            Some(commit) => known.pending.push((commit, floor)),
            // Without a commit the client is answered at once: the device has nothing of the key, or the mode
            // promises nothing.
            None if self.setup.recover == Recover::Journal && !(self.is_gone)() => known.floor = floor,
            None => {}
        }
    }

    fn take_commits(&mut self) {
        let committed = self.flash().committed();
        for known in &mut self.keys {
            let (floor, tally) = (&mut known.floor, &mut self.tally);
            known.pending.retain(|(commit, makes)| {
                let done = *commit <= committed;
                if done {
                    *floor = (*floor).max(*makes);
                    tally.commits += 1;
                }
                !done
            });
        }
    }

    fn tend(&mut self) {
        self.flash().tend();
        let committed = self.flash().committed();
        self.note(format!("tend, committed {committed:?}"));
    }

    fn commit_all(&mut self) {
        for _ in 0..4 {
            self.tend();
            self.take_commits();
        }
    }

    fn flush(&mut self) {
        self.flash().begin_flush();
        self.flash().end_flush();
        let answered = !(self.is_gone)();
        self.note(format!("flush, answered {answered}"));
        let floor = self.next_version;
        for known in &mut self.keys {
            known.newest = None;
            known.any = false;
            if answered {
                known.floor = floor;
            }
        }
    }

    /// Deletes the keys that begin as this one does.
    fn delete_prefix(&mut self, number: u64, dice: &mut Dice) {
        let name = key(number);
        let prefix = &name[..5 + dice.below(name.len() as u64 - 4) as usize];
        if !self.flash().takes_prefix(prefix) {
            return;
        }
        self.flash().begin_prefix_flush(prefix);
        self.flash().drop_prefix(prefix).expect("there is room for it");
        self.flash().end_prefix_flush();
        self.flash().write_prefixes();
        let answered = !(self.is_gone)();
        self.note(format!("delete {}, answered {answered}", prefix.escape_ascii()));
        let floor = self.next_version;
        for (number, known) in self.keys.iter_mut().enumerate() {
            if key(number as u64).starts_with(prefix) {
                (known.newest, known.any) = (None, false);
                if answered {
                    known.floor = floor;
                }
            }
        }
    }

    /// Looks a key up.
    fn find(&mut self, number: u64) -> Option<Found> {
        self.token += 1;
        let token = self.token;
        let hash = self.hash(number);
        let (_, fetcher) = self.tier.as_mut().expect("it is open");
        match fetcher.begin(token, hash, &key(number)) {
            Begun::Absent | Begun::Busy => None,
            Begun::Here(found) => Some(found),
            Begun::Started => {
                fetcher.kick();
                let mut answer = None;
                for _ in 0..10_000 {
                    fetcher.poll(&mut |of, found| {
                        assert_eq!(of, token, "one is begun at a time");
                        answer = Some(found);
                    });
                    if let Some(found) = answer.take() {
                        return found;
                    }
                    fetcher.kick();
                    std::thread::yield_now();
                }
                panic!("a fetch never ended");
            }
        }
    }

    /// Looks a key up, and compares the answer with the model.
    pub fn look(&mut self, number: u64) -> Result<(), String> {
        let found = self.find(number);
        let Some(found) = found else {
            self.tally.misses += 1;
            return Ok(());
        };
        self.tally.hits += 1;
        let wrong = |what: &str, history: &History| {
            Err(format!(
                "key {number}: {what}: {:?}\n{:?}\n{}",
                parse(&found.value),
                history.keys[number as usize],
                history.story(number)
            ))
        };
        let Some((of, version)) = parse(&found.value) else {
            return wrong("bytes that were never put", self);
        };
        let known = &self.keys[number as usize];
        let Some(put) = known.put.iter().find(|put| put.number == version).copied() else {
            return wrong("a version that was never put", self);
        };
        if of != number || found.value != value(number, version, put.bytes) {
            return wrong("another key's value, or a torn one", self);
        }
        if (found.cas, found.flags, found.expires_unix_s) != (version, version as u32, put.expires_unix_s)
            || found.value_bytes != found.value.len() as u64
        {
            return wrong("its numbers are not its own", self);
        }
        if put.expires_unix_s != 0 && put.expires_unix_s <= self.clock.load(Ordering::Relaxed) {
            return wrong("it has expired", self);
        }
        match known.any {
            true if version < known.floor => return wrong("older than what was acknowledged", self),
            true if version < known.seen => return wrong("older than what was found before", self),
            false if known.newest != Some(version) => {
                return wrong("not the newest version", self);
            }
            _ => {}
        }
        if known.any {
            self.tally.hits_after_crash += 1;
            self.keys[number as usize].seen = version;
        }
        Ok(())
    }

    pub fn look_at_all(&mut self) -> Result<(), String> {
        (0..KEYS).try_for_each(|number| self.look(number))
    }

    /// Ends the process without a shutdown. `power_on` restores the power. Then the tier is opened again.
    pub fn crash(&mut self, dice: &mut Dice, power_on: impl Fn(&mut Dice)) -> Result<(), String> {
        self.take_commits();
        self.note("crash".into());
        self.tally.crashes += 1;
        let closing = self.closing.take();
        for (number, known) in self.keys.iter_mut().enumerate() {
            // An operation that waited for its commit was never acknowledged.
            known.pending.clear();
            known.any = self.setup.recover != Recover::Clean;
            known.newest =
                closing.as_ref().and_then(|newest| newest[number]).filter(|newest| *newest >= known.floor);
            known.seen = 0;
        }
        self.tier = None;
        power_on(dice);
        self.open_again(dice, power_on)
    }

    fn open_again(&mut self, dice: &mut Dice, power_on: impl Fn(&mut Dice)) -> Result<(), String> {
        let tier = loop {
            match Self::open_tier(&self.device, &self.setup, &self.clock) {
                Err(_) if (self.is_gone)() => power_on(dice),
                opened => break opened?,
            }
        };
        self.hasher = KeyHasher::with_seed(tier.0.seed());
        self.tier = Some(tier);
        // Lookups during the recovery.
        for _ in 0..dice.below(6) {
            self.look(dice.below(KEYS))?;
            if dice.chance(50) {
                self.flash().tend();
            }
        }
        Ok(())
    }

    /// A clean shutdown and a start. If the power is cut meanwhile, the tier is not started.
    pub fn reopen(&mut self, dice: &mut Dice, power_on: impl Fn(&mut Dice)) -> Result<(), String> {
        let mut there = Vec::new();
        for number in 0..KEYS {
            let hits = self.tally.hits;
            self.look(number)?;
            if self.tally.hits > hits {
                there.push(number);
            }
        }
        let closed = self.flash().close();
        self.note(format!("close: {closed:?}"));
        if closed.is_err() || (self.is_gone)() {
            self.closing = Some(self.keys.iter().map(|known| known.newest).collect());
            return Ok(());
        }
        self.take_commits();
        self.tally.closes += 1;
        self.tier = None;
        // An operation that waited for its commit was acknowledged before the process ended, or never.
        self.keys.iter_mut().for_each(|known| known.pending.clear());
        // Nothing was written between the shutdown and a cut of the power meanwhile.
        self.open_again(dice, power_on)?;
        for _ in 0..200 {
            if !self.flash().stats().is_recovering {
                break;
            }
            self.flash().tend();
        }
        let (mut found, count) = (0, there.len() as u64);
        for number in there {
            let hits = self.tally.hits;
            self.look(number)?;
            found += self.tally.hits - hits;
        }
        // If the power is cut meanwhile, lookups find nothing, and prove nothing.
        if !(self.is_gone)() {
            self.tally.before_close += count;
            self.tally.after_close += found;
        }
        Ok(())
    }
}
