//! The integration tests of this crate, in one program: linking it is most of the time that a test costs.

mod behaviour;
mod burst;
mod compress;
mod edit;
mod expiry;
mod frame;
mod full;
mod keep;
mod levels;
mod levels_stress;
mod model;
mod model_ops;
mod namespaces;
mod nodes;
mod penalties;
mod placement;
mod prefixes;
mod room;
mod shared_lines;
mod sizing;
mod stress;
mod tier;
