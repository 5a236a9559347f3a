//! The file of a kept memory where there is no kernel, for Miri and loom: there is none.

#[path = "kept/head.rs"]
#[allow(dead_code, reason = "only a file has a head that is written")]
pub(crate) mod head;

use head::Head;

/// A file that there is none of.
pub(crate) enum KeptFile {}

impl KeptFile {
    pub(crate) fn head(&self) -> &Head {
        match *self {}
    }

    pub(crate) fn left(&self) -> &crate::memory_options::Left {
        match *self {}
    }

    pub(crate) fn keep_dictionary(&self, _: u8, _: u64, _: &[u8]) -> std::io::Result<()> {
        match *self {}
    }

    pub(crate) fn dictionary(&self, _: u8) -> Option<(u64, Vec<u8>)> {
        match *self {}
    }

    pub(crate) fn seed(&self) -> u64 {
        match *self {}
    }
}
