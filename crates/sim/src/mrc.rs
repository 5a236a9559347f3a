//! Miss-ratio curves of LRU in one pass: exact (a tree of stack distances) and sampled (SHARDS).
