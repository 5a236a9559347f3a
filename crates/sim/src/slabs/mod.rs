//! Slab allocation: memcached's size classes and the schemes that PAMA compares.
