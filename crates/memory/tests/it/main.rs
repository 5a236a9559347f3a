//! The integration tests of this crate, in one program: linking it is most of the time that a test costs.

mod columns;
#[path = "../common/mod.rs"]
mod common;
mod kept;
mod model;
mod nodes;
mod read_only;
mod threads;
