//! Side-by-side benchmark of Larder and its peers.
fn main() {}
