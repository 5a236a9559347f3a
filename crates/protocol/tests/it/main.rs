//! The integration tests of this crate, in one program: linking it is most of the time that a test costs.

mod binary;
mod properties;
mod resp;
mod shown;
mod transcripts;
