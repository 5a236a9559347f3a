//! server

pub mod admin;
pub mod io;
pub mod latency;
pub mod settings;
