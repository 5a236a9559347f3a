//! The file of a kept memory, which outlives the process: the head, the bookkeeping of the columns, and the columns.
//!
//! ```text
//!  0      8 KiB          2 MiB                        a multiple of 2 MiB
//! +------+--------------+----------------------------+--------+--------+--------+--- ...
//! | head | dictionaries | bookkeeping of all columns | slab 0 | slab 1 | slab 2 |
//! +------+--------------+----------------------------+--------+--------+--------+--- ...
//! ```
//!
//! Each dictionary that records are compressed with has a place: a word with its checksum, which is written last, its
//! length, a word of its owner, and its bytes.
//!
//! The file is on a file system that is memory: a tmpfs, or a hugetlbfs. When the process is killed the kernel keeps
//! what it wrote, in the order of its instructions: nothing that was written before is lost, and nothing later is
//! there. When the machine goes down the file is gone, so no disk can bring back a part of it.
//!
//! Memory of the file is taken from the file system before it is mapped: an access to a page that the file system has
//! no room for would kill the process. One process at a time has the file, which holds a lock on it.

use crate::column::{Column, SlabId};
use crate::machine;
use crate::memory_options::{
    DICTIONARIES_MAX, DICTIONARY_BYTES_MAX, KeepOptions, Left, MemoryError, SLAB_BYTES,
};
use head::{Layout, Unusable};
use larder_item::checksum;
use rustix::fs::{FallocateFlags, fallocate, fstatfs};
use rustix::mm::{MapFlags, ProtFlags, mmap, munmap};
use std::fs::{File, OpenOptions, TryLockError};
use std::io;
use std::os::unix::fs::{FileExt, MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::ptr::null_mut;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

pub(crate) mod head;

use head::Head;

/// Bytes before the bookkeeping of the columns: a huge page, so that the file may be on a hugetlbfs.
const HEAD_BYTES: u64 = SLAB_BYTES as u64;
/// Where the places of dictionaries begin, and the words of 64 bits of each.
const DICTIONARIES_AT: u64 = 8 << 10;
const PLACE_WORDS: usize = 3 + DICTIONARY_BYTES_MAX / 8;
const _: () = assert!(
    size_of::<Head>() as u64 <= DICTIONARIES_AT
        && DICTIONARIES_AT + (DICTIONARIES_MAX as u64 - 1) * PLACE_WORDS as u64 * 8 <= HEAD_BYTES
);
/// What `statfs` calls the two file systems.
const TMPFS: u64 = 0x0102_1994;
const HUGETLBFS: u64 = 0x9584_58f6;
/// A process that was killed holds its lock until the kernel has taken its memory apart.
const LOCK_WAIT_MAX: Duration = Duration::from_secs(5);
const LOCK_PAUSE: Duration = Duration::from_millis(20);
/// Room on the file system for what lies beside the columns of the limit.
const ROOM_BESIDE_BYTES: u64 = 8 << 20;

/// What the memory should be like.
pub(crate) struct Wanted {
    pub(crate) limit_bytes: u64,
    /// What the limit may be raised to.
    pub(crate) reserve_bytes: u64,
    pub(crate) column_bytes: u32,
    /// The columns must have this size.
    pub(crate) is_column_bytes_fixed: bool,
}

impl Wanted {
    fn layout(&self, seed: u64) -> Layout {
        Layout {
            slab_bytes: SLAB_BYTES as u64,
            column_bytes: self.column_bytes.into(),
            entry_bytes: size_of::<Column>() as u64,
            slabs: self.reserve_bytes.div_ceil(SLAB_BYTES as u64),
            seed,
            boot: boot_id(),
        }
    }

    /// Why the columns of a file with `found` are of no use, if they are not.
    fn misfit(&self, found: &Layout) -> Option<String> {
        let here = self.layout(found.seed);
        let (column_bytes, slabs_min) = (found.column_bytes, self.limit_bytes.div_ceil(SLAB_BYTES as u64));
        if found.boot != here.boot {
            return Some("the machine was started anew since it was written".to_owned());
        }
        if (found.slab_bytes, found.entry_bytes) != (here.slab_bytes, here.entry_bytes) {
            return Some("its format is another one".to_owned());
        }
        if self.is_column_bytes_fixed && column_bytes != here.column_bytes {
            return Some(format!(
                "its columns have {column_bytes} bytes, and {} are wanted (--column-bytes)",
                here.column_bytes
            ));
        }
        // A much lower limit is to have enough columns all the same.
        if column_bytes > here.column_bytes && self.limit_bytes / column_bytes < COLUMNS_MIN {
            return Some(format!("its columns of {column_bytes} bytes are too large for this limit (-m)"));
        }
        (found.slabs < slabs_min).then(|| {
            format!(
                "it has room for {} MiB, and the limit is {} MiB (-m)",
                (found.slabs * SLAB_BYTES as u64) >> 20,
                self.limit_bytes >> 20
            )
        })
    }
}

/// The columns that a limit must have for the columns of an earlier, larger one to be kept.
const COLUMNS_MIN: u64 = 256;

/// The file, locked, with its head mapped.
pub(crate) struct KeptFile {
    file: File,
    path: PathBuf,
    /// The mapping of the head and the dictionaries.
    head: *const Head,
    layout: Layout,
    left: Left,
    is_huge: bool,
}

// SAFETY: the mapping of the head belongs to this value, and a head consists of atomics.
unsafe impl Send for KeptFile {}
// SAFETY: as above.
unsafe impl Sync for KeptFile {}

impl KeptFile {
    /// Opens or makes the file. What an earlier process left in it is kept if it fits to what is wanted; otherwise the
    /// file is begun anew. A file that is none of ours is left as it is.
    pub(crate) fn open(options: &KeepOptions, wanted: &Wanted) -> Result<KeptFile, MemoryError> {
        let path = &options.path;
        let refused = |what: String| MemoryError::Keep { path: path.clone(), what };
        let (file, is_huge) = open_on_memory(path).map_err(refused)?;
        lock(&file).map_err(refused)?;
        let head_bytes = if is_huge { SLAB_BYTES } else { size_of::<Head>().next_multiple_of(4096) };
        let judged = judge(&file, head_bytes, wanted);
        if judged == Err(Unusable::Foreign) {
            let what = "the file holds something else than items of Larder: remove it, or name another file";
            return Err(refused(what.to_owned()));
        }
        // Before anything is lost.
        let room = check_room(&file, is_huge, wanted.limit_bytes);
        let (layout, left) = match judged {
            Ok(found) => {
                if let Err(what) = room {
                    tracing::warn!("memory is kept in {} (--keep), but {what}", path.display());
                }
                found
            }
            Err(unusable) => {
                if let Err(what) = room {
                    if file.metadata().is_ok_and(|of_file| of_file.len() == 0) {
                        // This process has made it, and leaves nothing behind.
                        let _ = std::fs::remove_file(path);
                    }
                    return Err(refused(what));
                }
                let layout = wanted.layout(options.seed);
                begin_anew(&file, &layout).map_err(|error| refused(cannot("be written", &error)))?;
                let left = match unusable {
                    Unusable::Ours(why) => Left::Unusable(why),
                    _ => Left::Nothing,
                };
                (layout, left)
            }
        };
        let take_head =
            fallocate(&file, FallocateFlags::empty(), 0, head_bytes as u64).map_err(io::Error::from);
        let head = take_head.and_then(|()| map_head(&file));
        let head = head.map_err(|error| refused(cannot("be mapped", &error)))?;
        let kept = KeptFile { file, path: path.clone(), head, layout, left, is_huge };
        if !matches!(kept.left, Left::Stopped | Left::Killed) {
            kept.head().write(&layout);
        }
        let process = rustix::process::getpid().as_raw_nonzero().get();
        kept.head().process.store(process as u64, Ordering::Relaxed);
        kept.head().is_stopped.store(0, Ordering::Release);
        Ok(kept)
    }

    /// The head.
    #[inline]
    pub(crate) fn head(&self) -> &Head {
        // SAFETY: the mapping has room for a head, is aligned to a page and lives as long as the value. A head consists
        // of atomic integers, for which all bits are values.
        unsafe { &*self.head }
    }

    /// The words of the place of dictionary `number`, 1 to [`DICTIONARIES_MAX`] - 1.
    fn place_of(&self, number: u8) -> &[AtomicU64] {
        assert!((1..DICTIONARIES_MAX).contains(&number), "there is no dictionary {number}");
        let words = DICTIONARIES_AT as usize / 8 + usize::from(number - 1) * PLACE_WORDS;
        // SAFETY: the mapping has HEAD_BYTES, which all places lie in, as the assertion above says; it is aligned to a
        // page, and lives as long as the value. Of a place nothing but these atomics is ever made.
        unsafe { std::slice::from_raw_parts(self.head.cast::<AtomicU64>().add(words), PLACE_WORDS) }
    }

    /// Writes dictionary `number`, in the place of another one that no record needs. It is there for a later process
    /// when this returns.
    pub(crate) fn keep_dictionary(&self, number: u8, owned: u64, bytes: &[u8]) -> io::Result<()> {
        assert!(bytes.len() <= DICTIONARY_BYTES_MAX, "a dictionary of {} bytes", bytes.len());
        let offset = DICTIONARIES_AT + u64::from(number - 1) * PLACE_WORDS as u64 * 8;
        fallocate(&self.file, FallocateFlags::empty(), offset, PLACE_WORDS as u64 * 8)?;
        let [check, length, owner, words @ ..] = self.place_of(number) else {
            unreachable!("a place has more words")
        };
        check.store(0, Ordering::Release);
        length.store(bytes.len() as u64, Ordering::Release);
        owner.store(owned, Ordering::Release);
        for (word, bytes) in words.iter().zip(bytes.chunks(8)) {
            let mut whole = [0; 8];
            whole[..bytes.len()].copy_from_slice(bytes);
            word.store(u64::from_ne_bytes(whole), Ordering::Release);
        }
        check.store(dictionary_check(number, owned, bytes), Ordering::Release);
        self.head().dictionaries.fetch_or(1 << number, Ordering::Release);
        Ok(())
    }

    /// Reads dictionary `number`; `None` = there is none, or it is damaged.
    pub(crate) fn dictionary(&self, number: u8) -> Option<(u64, Vec<u8>)> {
        // A page that the file does not have must not be read: the kernel might have none to give.
        if self.head().dictionaries.load(Ordering::Acquire) >> number & 1 == 0 {
            return None;
        }
        let [check, length, owner, words @ ..] = self.place_of(number) else {
            unreachable!("a place has more words")
        };
        let (found, length) = (check.load(Ordering::Acquire), length.load(Ordering::Relaxed));
        if found == 0 || length > DICTIONARY_BYTES_MAX as u64 {
            return None;
        }
        let bytes = words.iter().flat_map(|word| word.load(Ordering::Relaxed).to_ne_bytes());
        let bytes: Vec<u8> = bytes.take(length as usize).collect();
        let owned = owner.load(Ordering::Relaxed);
        (dictionary_check(number, owned, &bytes) == found).then_some((owned, bytes))
    }

    /// What an earlier process left.
    pub(crate) fn left(&self) -> &Left {
        &self.left
    }

    /// The seed of the hash of the keys.
    pub(crate) fn seed(&self) -> u64 {
        self.layout.seed
    }

    pub(crate) fn column_bytes(&self) -> u32 {
        self.layout.column_bytes as u32
    }

    /// Bytes of all slabs that there is room for.
    pub(crate) fn reserve_bytes(&self) -> u64 {
        self.layout.slabs * SLAB_BYTES as u64
    }

    /// Whether the pages are huge ones that the administrator has reserved.
    pub(crate) fn is_huge(&self) -> bool {
        self.is_huge
    }

    /// A few words about the pages.
    pub(crate) fn description(&self) -> String {
        let kind = if self.is_huge { "huge pages of 2 MiB" } else { "shared memory" };
        format!("{kind} of the file {}", self.path.display())
    }

    /// Takes memory for a slab and the bookkeeping of its columns, where the file has none yet.
    pub(crate) fn take_slab(&self, slab: SlabId) -> io::Result<()> {
        let entries = self.entries_bytes_of_slab();
        let take = |offset, bytes| fallocate(&self.file, FallocateFlags::empty(), offset, bytes);
        take(HEAD_BYTES + u64::from(slab.0) * entries, entries)?;
        take(self.slab_offset(slab), SLAB_BYTES as u64)?;
        self.head().slabs_mapped.fetch_max(u64::from(slab.0) + 1, Ordering::Relaxed);
        Ok(())
    }

    /// Gives the memory of a slab back.
    pub(crate) fn give_slab_back(&self, slab: SlabId) -> io::Result<()> {
        let flags = FallocateFlags::PUNCH_HOLE | FallocateFlags::KEEP_SIZE;
        Ok(fallocate(&self.file, flags, self.slab_offset(slab), SLAB_BYTES as u64)?)
    }

    /// Maps a slab, readable and writable, at `to`.
    ///
    /// # Safety
    /// `to` is a slab of the caller's own mapping, aligned to 2 MiB, and nothing in it is in use.
    pub(crate) unsafe fn map_slab(&self, slab: SlabId, to: *mut u8) -> io::Result<()> {
        let flags = MapFlags::SHARED | MapFlags::FIXED | MapFlags::NORESERVE;
        // SAFETY: the range is the caller's own by the caller's promise. The file has the slab: its length does not
        // change while it is locked.
        unsafe { mmap(to.cast(), SLAB_BYTES, both(), flags, &self.file, self.slab_offset(slab)) }?;
        Ok(())
    }

    /// Maps the bookkeeping of all columns. The memory of an entry is there once its slab was taken.
    pub(crate) fn map_entries(&self) -> io::Result<(*mut Column, usize)> {
        let bytes = (self.data_offset() - HEAD_BYTES) as usize;
        let flags = MapFlags::SHARED | MapFlags::NORESERVE;
        // SAFETY: a new mapping at an address of the kernel's choice touches no other memory.
        let mapping = unsafe { mmap(null_mut(), bytes, both(), flags, &self.file, HEAD_BYTES) }?;
        Ok((mapping.cast(), bytes))
    }

    fn entries_bytes_of_slab(&self) -> u64 {
        self.layout.slab_bytes / self.layout.column_bytes * self.layout.entry_bytes
    }

    fn data_offset(&self) -> u64 {
        data_offset(&self.layout)
    }

    fn slab_offset(&self, slab: SlabId) -> u64 {
        self.data_offset() + u64::from(slab.0) * SLAB_BYTES as u64
    }
}

impl Drop for KeptFile {
    fn drop(&mut self) {
        // SAFETY: the mapping is this value's own, and nobody borrows the head any more.
        let _ = unsafe { munmap(self.head.cast_mut().cast(), HEAD_BYTES as usize) };
    }
}

fn both() -> ProtFlags {
    ProtFlags::READ | ProtFlags::WRITE
}

/// Where the slabs begin in the file.
fn data_offset(layout: &Layout) -> u64 {
    let entries = layout.slabs * (layout.slab_bytes / layout.column_bytes) * layout.entry_bytes;
    HEAD_BYTES + entries.next_multiple_of(SLAB_BYTES as u64)
}

/// Length of the file.
fn file_bytes(layout: &Layout) -> u64 {
    data_offset(layout) + layout.slabs * layout.slab_bytes
}

fn cannot(what: &str, error: &io::Error) -> String {
    format!("the file cannot {what} ({error})")
}

/// What is said of a path at which something else is than a file.
const NO_FILE: &str = "this is no ordinary file: name another one";

/// Looks whether a file can be used as [`crate::KeepOptions`] says, without making it.
///
/// # Errors
/// One line that says what to do.
pub fn check_keep_path(path: &Path) -> Result<(), MemoryError> {
    let refused = |what: String| MemoryError::Keep { path: path.to_owned(), what };
    let folder = match std::path::absolute(path).ok().and_then(|path| path.parent().map(Path::to_owned)) {
        Some(folder) if folder.is_dir() => folder,
        _ => return Err(refused("there is no such folder: make it, or name another file".to_owned())),
    };
    if path.exists() && !path.is_file() {
        return Err(refused(NO_FILE.to_owned()));
    }
    let existing = if path.exists() { path } else { &folder };
    let opened = File::open(existing).map_err(|error| refused(cannot("be read", &error)))?;
    is_on_hugetlbfs(&opened).map(drop).map_err(refused)
}

/// Opens or makes a file, and says whether it is on a hugetlbfs. Other file systems than memory are refused.
fn open_on_memory(path: &Path) -> Result<(File, bool), String> {
    let mut options = OpenOptions::new();
    options.read(true).write(true).mode(0o600);
    let existing = options.open(path);
    let is_new = existing.as_ref().is_err_and(|error| error.kind() == io::ErrorKind::NotFound);
    if is_new {
        // Before the file is made: a wrong path leaves no file behind.
        check_keep_path(path).map_err(|error| match error {
            MemoryError::Keep { what, .. } => what,
            other => other.to_string(),
        })?;
    }
    let opened = if is_new { options.create(true).truncate(false).open(path) } else { existing };
    let file = opened.map_err(|error| cannot("be opened", &error))?;
    let is_file = file.metadata().map_err(|error| cannot("be read", &error))?.is_file();
    if !is_file {
        return Err(NO_FILE.to_owned());
    }
    let is_huge = is_on_hugetlbfs(&file)?;
    Ok((file, is_huge))
}

/// Whether a file or folder is on a hugetlbfs and not on a tmpfs.
fn is_on_hugetlbfs(file: &File) -> Result<bool, String> {
    let found = fstatfs(file).map_err(|error| cannot("be read", &error.into()))?;
    match found.f_type as u64 {
        TMPFS => Ok(false),
        HUGETLBFS if found.f_bsize as u64 <= SLAB_BYTES as u64 => Ok(true),
        HUGETLBFS => {
            Err("pages of more than 2 MiB are not used: mount a hugetlbfs with pagesize=2M".to_owned())
        }
        _ => Err("the file system is not memory: name a file on a tmpfs, as /dev/shm, or on a hugetlbfs"
            .to_owned()),
    }
}

/// Locks the file for this process. A process that is ending may have it for a moment longer.
fn lock(file: &File) -> Result<(), String> {
    let started = Instant::now();
    loop {
        match file.try_lock() {
            Ok(()) => return Ok(()),
            Err(TryLockError::WouldBlock) if started.elapsed() < LOCK_WAIT_MAX => {
                std::thread::sleep(LOCK_PAUSE);
            }
            Err(TryLockError::WouldBlock) => {
                return Err("another process uses the file: stop it, or name another file".to_owned());
            }
            Err(TryLockError::Error(error)) => return Err(cannot("be locked", &error)),
        }
    }
}

/// What the file holds that can be used.
fn judge(file: &File, head_bytes: usize, wanted: &Wanted) -> Result<(Layout, Left), Unusable> {
    let unreadable = |error: io::Error| Unusable::Ours(cannot("be read", &error));
    let length = file.metadata().map_err(unreadable)?.len();
    if length == 0 {
        return Err(Unusable::Blank);
    }
    if length < head_bytes as u64 {
        // Too short to be mapped.
        let mut first = [0; 8];
        let is_ours = file.read_at(&mut first, 0).is_ok() && first == head::MAGIC.to_ne_bytes();
        return Err(if is_ours { Unusable::Ours("it was cut off".to_owned()) } else { Unusable::Foreign });
    }
    let head = map_head(file).map_err(unreadable)?;
    // SAFETY: the mapping has room for a head. The borrow ends before it is unmapped.
    let found = unsafe { &*head };
    let read = found.read();
    let left = if found.is_stopped.load(Ordering::Acquire) == 1 { Left::Stopped } else { Left::Killed };
    // SAFETY: the mapping was made above, and nothing borrows it any more.
    let _ = unsafe { munmap(head.cast_mut().cast(), HEAD_BYTES as usize) };
    let layout = read?;
    if let Some(why) = wanted.misfit(&layout) {
        return Err(Unusable::Ours(why));
    }
    if length != file_bytes(&layout) {
        return Err(Unusable::Ours("it was cut off".to_owned()));
    }
    Ok((layout, left))
}

/// The checksum of a dictionary, never 0.
fn dictionary_check(number: u8, owned: u64, bytes: &[u8]) -> u64 {
    u64::from(checksum(owned ^ u64::from(number), [bytes, &[]])) | 1 << 32
}

/// Maps the head and the dictionaries of a file that is long enough.
fn map_head(file: &File) -> io::Result<*const Head> {
    let flags = MapFlags::SHARED | MapFlags::NORESERVE;
    // SAFETY: a new mapping at an address of the kernel's choice touches no other memory.
    let mapping = unsafe { mmap(null_mut(), HEAD_BYTES as usize, both(), flags, file, 0) }?;
    Ok(mapping.cast::<Head>().cast_const())
}

/// Gives all memory of the file back, and sets its length.
fn begin_anew(file: &File, layout: &Layout) -> io::Result<()> {
    file.set_len(0)?;
    file.set_len(file_bytes(layout))
}

/// Whether the file system has room for the limit, beside what the file has already.
fn check_room(file: &File, is_huge: bool, limit_bytes: u64) -> Result<(), String> {
    let error = |error: io::Error| cannot("be read", &error);
    let taken = file.metadata().map_err(error)?.blocks() * 512;
    let wanted = limit_bytes + ROOM_BESIDE_BYTES;
    let found = fstatfs(file).map_err(|errno| error(errno.into()))?;
    let of_system = match is_huge {
        true => machine::free_huge_pages() * SLAB_BYTES as u64,
        // A file system without blocks has no limit of its own.
        false if found.f_blocks == 0 => return Ok(()),
        false => found.f_bavail * found.f_bsize as u64,
    };
    if taken + of_system >= wanted {
        return Ok(());
    }
    let what =
        if is_huge { "reserve more huge pages (vm.nr_hugepages)" } else { "mount a larger tmpfs (-o size=)" };
    Err(format!(
        "its file system has room for {} MiB, and the limit is {} MiB: {what}, or lower -m",
        (taken + of_system).saturating_sub(ROOM_BESIDE_BYTES) >> 20,
        limit_bytes >> 20
    ))
}

/// Which start of the machine this is. Zeros where the kernel does not say.
fn boot_id() -> [u64; 2] {
    let text = std::fs::read_to_string("/proc/sys/kernel/random/boot_id").unwrap_or_default();
    let digits: String = text.chars().filter(char::is_ascii_hexdigit).collect();
    let half = |range: std::ops::Range<usize>| {
        digits.get(range).and_then(|digits| u64::from_str_radix(digits, 16).ok()).unwrap_or(0)
    };
    [half(0..16), half(16..32)]
}
