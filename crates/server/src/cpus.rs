//! Which CPUs each worker runs on, and from which NUMA node it takes columns (`--pin-cpus`, `--numa`).

use crate::settings::{PinCpus, Settings};
use larder_cache::{NodeId, NumaNodes};
use rustix::thread::{CpuSet, sched_getaffinity, sched_setaffinity};

/// The nodes that workers and columns are divided among. Without `--numa on` all count as one.
pub(crate) fn nodes(settings: &Settings) -> NumaNodes {
    if !settings.numa {
        return NumaNodes::default();
    }
    let nodes = NumaNodes::of_machine();
    if nodes.count() == 1 {
        tracing::info!(target: "larder::start", "--numa on changes nothing: this process may use one NUMA node");
        return NumaNodes::default();
    }
    tracing::info!(target: "larder::start", "workers and columns are divided among {} NUMA nodes", nodes.count());
    nodes
}

/// Pins the calling worker thread to its CPU, or to the CPUs of its node, if the settings ask for that. Returns the
/// node that the worker takes columns from.
pub(crate) fn pin(settings: &Settings, nodes: &NumaNodes, worker: usize) -> NodeId {
    let cpu = cpu_of(settings, worker);
    let node = cpu.and_then(|cpu| nodes.of_cpu(cpu)).unwrap_or_else(|| nodes.of_worker(worker));
    match cpu {
        Some(cpu) => stay_on(worker, &[cpu]),
        None if nodes.count() > 1 => stay_on(worker, nodes.cpus(node)),
        None => {}
    }
    node
}

/// The one CPU that a worker stays on. `None`: there is no such CPU.
fn cpu_of(settings: &Settings, worker: usize) -> Option<usize> {
    match &settings.pin_cpus {
        PinCpus::Off => None,
        PinCpus::Auto => {
            let allowed = sched_getaffinity(None).unwrap_or_else(|_| CpuSet::new());
            let cpus: Vec<usize> = (0..CpuSet::MAX_CPU).filter(|&cpu| allowed.is_set(cpu)).collect();
            (!cpus.is_empty()).then(|| cpus[worker % cpus.len()])
        }
        PinCpus::List(cpus) => Some(cpus[worker % cpus.len()] as usize),
    }
}

fn stay_on(worker: usize, cpus: &[usize]) {
    let mut set = CpuSet::new();
    cpus.iter().filter(|cpu| **cpu < CpuSet::MAX_CPU).for_each(|cpu| set.set(*cpu));
    if set.count() == 0 {
        tracing::warn!("worker {worker} runs on any CPU: {cpus:?} is more than can be named");
        return;
    }
    if let Err(error) = sched_setaffinity(None, &set) {
        tracing::warn!("worker {worker} runs on any CPU: cannot pin it to {cpus:?}: {error}");
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The node of each of four workers, and the CPU that it may run on last.
    fn pinned(settings: &Settings, nodes: &NumaNodes) -> [(u32, Option<usize>); 4] {
        let pin_one = |worker| {
            let node = pin(settings, nodes, worker);
            let set = sched_getaffinity(None).unwrap();
            (node.0, (0..CpuSet::MAX_CPU).rev().find(|cpu| set.is_set(*cpu)))
        };
        // A thread for each: what a thread may run on is its own.
        [0, 1, 2, 3].map(|worker| {
            std::thread::scope(|scope| scope.spawn(|| pin_one(worker)).join().expect("it does not panic"))
        })
    }

    #[test]
    fn workers_go_to_the_nodes_in_turn_unless_their_cpus_say_where() {
        let allowed = sched_getaffinity(None).unwrap();
        let cpus: Vec<usize> = (0..CpuSet::MAX_CPU).filter(|cpu| allowed.is_set(*cpu)).collect();
        let (first, last) = (cpus[0], *cpus.last().unwrap());
        let off = Settings { numa: true, ..Settings::default() };
        let nodes = NumaNodes::with_cpus([(0, vec![first]), (1, vec![last])]);
        let in_turn = [(0, Some(first)), (1, Some(last)), (0, Some(first)), (1, Some(last))];
        assert_eq!(pinned(&off, &nodes), in_turn);

        let list = Settings { pin_cpus: PinCpus::List(vec![last as u32; 4]), ..off.clone() };
        let node = nodes.of_cpu(last).unwrap().0;
        assert_eq!(pinned(&list, &nodes), [(node, Some(last)); 4]);

        let one = NumaNodes::default();
        assert_eq!(pinned(&off, &one), [(0, Some(last)); 4], "nobody is pinned");
        assert_eq!(super::nodes(&Settings::default()), one);
    }
}
