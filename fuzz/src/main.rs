//! Fuzz targets.
fn main() {}
