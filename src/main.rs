//! `larder`: the command line.
fn main() {}
