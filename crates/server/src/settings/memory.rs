//! Where items lie, and whose they are.

use super::names::Names;
use larder_cache::Namespace;

/// Which pages of the operating system hold the items.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Pages {
    /// The best pages that the machine gives: huge, else transparent, else small.
    Auto,
    /// Reserved 2-MiB pages. Without them the server does not start.
    Huge,
    /// 2-MiB pages as far as the kernel has them.
    Transparent,
    /// 4-KiB pages.
    Small,
    /// 4-KiB pages sorted by the colour of their physical frame.
    Coloured,
}

/// The names of the kinds of pages.
pub(super) const PAGES: Names<Pages> = Names(&[
    ("auto", Pages::Auto),
    ("huge", Pages::Huge),
    ("transparent", Pages::Transparent),
    ("small", Pages::Small),
    ("coloured", Pages::Coloured),
]);

/// Whose keys are in a namespace.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct UserNamespace {
    /// The name of a user, as in the file of users.
    pub user: String,
    /// The name of the namespace: 1 to [`NAMESPACE_BYTES_MAX`](larder_cache::NAMESPACE_BYTES_MAX) printable bytes of
    /// ASCII, none of them the delimiter.
    pub namespace: String,
}

/// Whether values of different prefixes may train one dictionary: not where prefixes are those of tenants.
pub(crate) fn may_share_dictionaries(namespaces: &[Namespace], users: &[UserNamespace]) -> bool {
    namespaces.is_empty() && users.is_empty()
}
