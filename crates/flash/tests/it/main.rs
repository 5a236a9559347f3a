//! The integration tests of this crate, in one program: linking it is most of the time that a test costs.

mod contract;
mod crash;
mod devices;
mod failures;
mod several;
mod support;
