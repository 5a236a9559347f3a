//! What is compressed at all.

use arc_swap::{ArcSwap, Guard};
use larder_item::VALUE_LENGTH_MAX;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};

/// Which values the keeper may compress (`--compress`).
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub enum Compress {
    /// Those that shrink.
    Auto,
    /// None. What is compressed stays so until it is hot, or replaced.
    #[default]
    Off,
    /// Those whose keys have one of these names before the first delimiter, if they shrink.
    Only(Vec<String>),
    /// For a simulation: each value shrinks to this number of thousandths of its length, and cannot be read.
    Modelled(u16),
}

impl Compress {
    /// Whether values may be compressed whose keys have this name before the first delimiter.
    pub(crate) fn admits(&self, name: Option<&[u8]>) -> bool {
        match self {
            Compress::Off => false,
            Compress::Auto | Compress::Modelled(_) => true,
            Compress::Only(names) => names.iter().any(|wanted| Some(wanted.as_bytes()) == name),
        }
    }
}

/// Looks whether names can be names of namespaces.
///
/// # Errors
/// One line that says which cannot, and why.
pub fn check_compress(names: &[String], delimiter: u8) -> Result<(), String> {
    for name in names {
        if name.is_empty() || name.len() >= larder_item::KEY_BYTES_MAX {
            return Err(format!("`{name}` is no name that keys begin with"));
        }
        if name.bytes().any(|byte| byte <= b' ' || byte == 0x7f) {
            return Err(format!("{name:?} has a space or a control character in it, which no key has"));
        }
        if name.bytes().any(|byte| byte == delimiter) {
            return Err(format!(
                "`{name}` has the delimiter `{}` in it (-D): name what stands before it",
                char::from(delimiter)
            ));
        }
    }
    Ok(())
}

/// The setting, which changes while the cache runs.
pub(crate) struct CompressSetting {
    wanted: ArcSwap<Compress>,
    /// Ends the prefix of a key.
    pub(crate) delimiter: u8,
    /// Whether values of different prefixes may train one dictionary: not where the prefixes are those of tenants.
    may_share: AtomicBool,
}

impl CompressSetting {
    pub(crate) fn new(wanted: Compress, delimiter: u8) -> CompressSetting {
        CompressSetting { wanted: ArcSwap::from_pointee(wanted), delimiter, may_share: AtomicBool::new(true) }
    }

    pub(crate) fn get(&self) -> Guard<Arc<Compress>> {
        self.wanted.load()
    }

    /// Whether anything may be compressed.
    pub(crate) fn is_on(&self) -> bool {
        **self.wanted.load() != Compress::Off
    }

    pub(crate) fn set(&self, wanted: Compress) {
        self.wanted.store(Arc::new(wanted));
    }

    pub(crate) fn may_share(&self) -> bool {
        self.may_share.load(Relaxed)
    }

    pub(crate) fn set_may_share(&self, may_share: bool) {
        self.may_share.store(may_share, Relaxed);
    }
}

const _: () = assert!(VALUE_LENGTH_MAX < 1 << 14, "the length of a plain value has 14 bits");
