//! The integration tests of this crate, in one program: linking it is most of the time that a test costs.

mod common;
mod ghost;
mod promise;
mod twins;
