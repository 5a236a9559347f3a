//! Policies side by side over one trace, at a list of cache sizes, in parallel.
