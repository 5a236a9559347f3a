//! What a server is told before it starts: [`Settings`], plain data with one field for each setting, and the [`table`]
//! that says how each of them is named, spelt, shown and changed.
//!
//! The defaults are memcached's, so a server that is started without flags behaves like memcached. [`check`] looks for
//! settings that contradict each other.

mod all;
mod contradictions;
mod defaults;
mod flash;
mod fleet;
mod memory;
mod names;
mod network;
mod process;
mod row;
mod short_file;
mod sockets;
pub mod table;
mod tls;
mod units;
mod values;

#[cfg(test)]
mod tests;

pub use all::Settings;
pub use contradictions::{check, problems};
pub use flash::{Admit, Direct, FlashDevice, FlashSettings, Promote, Recover};
pub(crate) use flash::{DIRECT, PROMOTE, RECOVER};
pub use fleet::{FleetNode, FleetSettings, slot_ranges};
pub use larder_cache::{
    Compress, Device, Namespace, Objective, Placement, TemperatureKind as Temperature, WorthMode,
    WorthOptions,
};
pub(crate) use memory::may_share_dictionaries;
pub use memory::{Pages, UserNamespace};
pub use network::{ADMIN_DEFAULT, Address, AdminAddress, Backend, Port, Protocol};
pub(crate) use network::{EVERYWHERE, THIS_MACHINE};
pub use process::{LogFormat, PinCpus, WithoutEffect};
pub use row::{Apply, Change, Effects, Host, Place, Row, Takes, Topic};
pub use short_file::{read_short_file, read_short_text};
pub use sockets::{serves_strangers, tcp_sockets, udp_sockets};
pub use tls::{KeyFormat, ListenerTls, TlsSettings, TlsVersion, VerifyMode};
pub use units::{MEMORY_BYTES_MIN, MIB};
