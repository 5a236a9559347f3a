//! Drives a real server with a trace or a workload.
