//! The NUMA nodes of the machine, and which slabs belong to which of them.
//!
//! A thread reads memory of its own node faster than that of another. So each node has stripes of the arena, and a
//! thread takes its columns from those of its node while there are some:
//!
//! ```text
//!  slabs   | stripe 0: node 0 | stripe 1: node 1 | stripe 2: node 0 | stripe 3: node 1 | ...
//! ```
//!
//! The node of a column follows from its number. A stripe is a single slab in a small arena. In a large one it is
//! longer: the kernel keeps a mapping for each stripe, and gives a process a limited number of them.

use crate::column::SlabId;
use std::path::Path;

/// The folder in which Linux describes the nodes.
const NODES: &str = "/sys/devices/system/node";
/// The file in which Linux says which CPUs and nodes the process may use.
const STATUS: &str = "/proc/self/status";
/// Numbers of CPUs and nodes are below this.
const NUMBERS_MAX: usize = 1 << 16;
/// The arena has about 8,192 stripes at most.
const STRIPES_MAX: u32 = 8192;

/// The number of a node, counted from 0 without gaps. The kernel's own numbers may have gaps.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug, Default)]
pub struct NodeId(pub u32);

/// The nodes that threads and columns are divided among: those that have memory and CPUs that the process may use.
/// There is at least one.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct NumaNodes(Vec<Node>);

#[derive(Clone, PartialEq, Eq, Debug)]
struct Node {
    /// The kernel's number.
    number: usize,
    cpus: Vec<usize>,
}

impl Default for NumaNodes {
    /// All memory and all CPUs count as one node.
    fn default() -> NumaNodes {
        NumaNodes(vec![Node { number: 0, cpus: Vec::new() }])
    }
}

impl NumaNodes {
    /// The nodes of this machine, as far as this process may use them.
    pub fn of_machine() -> NumaNodes {
        NumaNodes::read(Path::new(NODES), Path::new(STATUS))
    }

    /// Nodes with these numbers of the kernel and these CPUs, whether the machine has them or not. Without any, all
    /// memory and all CPUs count as one node.
    pub fn with_cpus(nodes: impl IntoIterator<Item = (usize, Vec<usize>)>) -> NumaNodes {
        let nodes: Vec<Node> = nodes.into_iter().map(|(number, cpus)| Node { number, cpus }).collect();
        if nodes.is_empty() { NumaNodes::default() } else { NumaNodes(nodes) }
    }

    /// The nodes that the folder `nodes` describes as Linux does in `/sys/devices/system/node`, where the file `status`
    /// says as `/proc/self/status` does what the process may use. What is not said there is allowed. The CPUs of a node
    /// without memory belong to the nearest node that has some. A node without CPUs is left out: its memory is used
    /// where the others are full. Where no node is left, all count as one.
    pub fn read(nodes: &Path, status: &Path) -> NumaNodes {
        let read = |name: &str| std::fs::read_to_string(nodes.join(name)).ok();
        let status = std::fs::read_to_string(status).unwrap_or_default();
        let online = read("online").map_or_else(Vec::new, |text| numbers(&text));
        let with_memory = read("has_memory").or_else(|| read("has_normal_memory"));
        let with_memory = with_memory.map_or_else(|| online.clone(), |text| numbers(&text));
        let mut found: Vec<(usize, Vec<usize>)> = online
            .iter()
            .filter(|number| {
                with_memory.contains(number) && is_allowed(&status, "Mems_allowed_list:", **number)
            })
            .map(|number| (*number, Vec::new()))
            .collect();
        for number in &online {
            let cpus = read(&format!("node{number}/cpulist")).map_or_else(Vec::new, |text| numbers(&text));
            let cpus = cpus.into_iter().filter(|cpu| is_allowed(&status, "Cpus_allowed_list:", *cpu));
            // One distance for each node that is online. A node is nearest to itself.
            let distances = read(&format!("node{number}/distance")).unwrap_or_default();
            let distances: Vec<u32> =
                distances.split_whitespace().map_while(|text| text.parse().ok()).collect();
            let distance = |other: usize| {
                let place = online.iter().position(|online| *online == other);
                let far = place.and_then(|place| distances.get(place)).copied().unwrap_or(u32::MAX);
                (other != *number, far)
            };
            if let Some((_, of_home)) = found.iter_mut().min_by_key(|(other, _)| distance(*other)) {
                of_home.extend(cpus);
            }
        }
        found.retain(|(_, cpus)| !cpus.is_empty());
        NumaNodes::with_cpus(found)
    }

    /// How many nodes there are.
    #[inline]
    pub fn count(&self) -> u32 {
        self.0.len() as u32
    }

    /// The node of the worker with this number, where workers are given to the nodes in turn.
    pub fn of_worker(&self, worker: usize) -> NodeId {
        NodeId((worker % self.0.len()) as u32)
    }

    /// The node of a CPU. `None`: the CPU belongs to none of the nodes.
    pub fn of_cpu(&self, cpu: usize) -> Option<NodeId> {
        self.0.iter().position(|node| node.cpus.contains(&cpu)).map(|place| NodeId(place as u32))
    }

    /// The CPUs of a node.
    ///
    /// # Panics
    /// If there is no such node.
    pub fn cpus(&self, node: NodeId) -> &[usize] {
        &self.0[node.0 as usize].cpus
    }

    /// The kernel's number of a node.
    pub(crate) fn number(&self, node: NodeId) -> usize {
        self.0[node.0 as usize].number
    }
}

/// The numbers of a list as Linux writes it: `0-3,8`.
fn numbers(list: &str) -> Vec<usize> {
    let range = |part: &str| {
        let (first, last) = part.split_once('-').unwrap_or((part, part));
        let (first, last) = (first.parse().ok()?, last.parse().ok()?);
        (last < NUMBERS_MAX).then_some(first..=last)
    };
    list.trim().split(',').filter_map(range).flatten().collect()
}

/// Whether the line of `status` that begins with `name` has the number, or there is no such line.
fn is_allowed(status: &str, name: &str, number: usize) -> bool {
    let list = status.lines().find_map(|line| line.strip_prefix(name));
    list.is_none_or(|list| numbers(list).contains(&number))
}

/// Which slabs belong to which node.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Stripes {
    nodes: u32,
    /// Log2 of the number of slabs of a stripe.
    slabs_log2: u32,
}

impl Stripes {
    /// Divides `slabs` slabs among `nodes` nodes.
    pub(crate) fn new(nodes: u32, slabs: u32) -> Stripes {
        Stripes { nodes, slabs_log2: slabs.div_ceil(STRIPES_MAX).next_power_of_two().ilog2() }
    }

    pub(crate) fn nodes(self) -> u32 {
        self.nodes
    }

    #[inline]
    pub(crate) fn node_of(self, slab: SlabId) -> NodeId {
        if self.nodes == 1 { NodeId(0) } else { NodeId((slab.0 >> self.slabs_log2) % self.nodes) }
    }

    /// The first slab of a node. An arena may be too small to have it.
    pub(crate) fn first(self, node: NodeId) -> SlabId {
        SlabId(node.0 << self.slabs_log2)
    }

    /// The slab of the same node that comes after this one.
    pub(crate) fn after(self, slab: SlabId) -> SlabId {
        let next = slab.0 + 1;
        let is_in_stripe = next & ((1 << self.slabs_log2) - 1) != 0;
        SlabId(if is_in_stripe { next } else { next + ((self.nodes - 1) << self.slabs_log2) })
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;

    #[cfg(not(miri))]
    mod machines {
        use super::*;
        use std::path::PathBuf;

        /// The files that describe a machine, which are gone when the value is dropped.
        struct Machine(PathBuf);

        impl Drop for Machine {
            fn drop(&mut self) {
                let _ = std::fs::remove_dir_all(&self.0);
            }
        }

        impl Machine {
            /// `files`: their names and what is in them.
            fn new(name: &str, files: &[(&str, &str)]) -> Machine {
                let at = std::env::temp_dir().join(format!("larder-nodes-{}-{name}", std::process::id()));
                for (file, text) in files {
                    let path = at.join(file);
                    std::fs::create_dir_all(path.parent().unwrap()).unwrap();
                    std::fs::write(path, format!("{text}\n")).unwrap();
                }
                Machine(at)
            }

            /// The kernel's number and the CPUs of each node.
            fn nodes(&self) -> Vec<(usize, Vec<usize>)> {
                let nodes = NumaNodes::read(&self.0, &self.0.join("status"));
                nodes.0.into_iter().map(|node| (node.number, node.cpus)).collect()
            }
        }

        const TWO: [(&str, &str); 6] = [
            ("online", "0-1"),
            ("has_memory", "0-1"),
            ("node0/cpulist", "0-1,4-5"),
            ("node0/distance", "10 21"),
            ("node1/cpulist", "2-3,6-7"),
            ("node1/distance", "21 10"),
        ];

        #[test]
        fn one_node_and_no_description_are_one_node() {
            let one = Machine::new("one", &[("online", "0"), ("has_memory", "0"), ("node0/cpulist", "0-3")]);
            assert_eq!(one.nodes(), [(0, vec![0, 1, 2, 3])]);
            assert_eq!(NumaNodes::read(Path::new("/nowhere"), Path::new("/nowhere")), NumaNodes::default());
            assert_eq!(Machine::new("odd", &[("online", "0-x,-,7-3,99999999")]).nodes(), [(0, vec![])]);
        }

        #[test]
        fn two_nodes_have_their_cpus() {
            let machine = Machine::new("two", &TWO);
            assert_eq!(machine.nodes(), [(0, vec![0, 1, 4, 5]), (1, vec![2, 3, 6, 7])]);
            let nodes = NumaNodes::read(&machine.0, Path::new("/nowhere"));
            assert_eq!((nodes.count(), nodes.of_cpu(6), nodes.of_cpu(8)), (2, Some(NodeId(1)), None));
            assert_eq!([0, 1, 2].map(|worker| nodes.of_worker(worker).0), [0, 1, 0]);
        }

        #[test]
        fn what_the_process_may_not_use_is_left_out() {
            let with_status =
                |name, status| Machine::new(name, &[&TWO[..], &[("status", status)]].concat()).nodes();
            let some = with_status("some", "Cpus_allowed_list:\t1-2\nMems_allowed_list:\t0-1");
            assert_eq!(some, [(0, vec![1]), (1, vec![2])]);
            assert_eq!(with_status("cpus", "Cpus_allowed_list:\t2-3"), [(1, vec![2, 3])]);
            let without_memory = with_status("mems", "Mems_allowed_list:\t1");
            assert_eq!(without_memory, [(1, vec![0, 1, 4, 5, 2, 3, 6, 7])]);
            assert_eq!(with_status("none", "Mems_allowed_list:\t5"), [(0, vec![])]);
        }

        #[test]
        fn numbers_have_gaps_and_nodes_without_memory_or_cpus() {
            let files = [
                ("possible", "0-9"),
                ("online", "0,3,7-8"),
                // Node 3 has no memory, and node 8 no CPUs. Node 5 is offline, though its folder is there.
                ("has_memory", "0,7-8"),
                ("node0/cpulist", "0-1"),
                ("node0/distance", "10 20 30 40"),
                ("node3/cpulist", "2-3"),
                ("node3/distance", "40 10 20 15"),
                ("node5/cpulist", "8-9"),
                ("node7/cpulist", "4-5"),
                ("node7/distance", "30 20 10 40"),
                ("node8/cpulist", ""),
                ("node8/distance", "40 15 40 10"),
            ];
            // The nearest node of CPUs 2 and 3 is 8: with them it is a node like the others.
            assert_eq!(
                Machine::new("gaps", &files).nodes(),
                [(0, vec![0, 1]), (7, vec![4, 5]), (8, vec![2, 3])]
            );
        }

        #[test]
        fn this_machine_has_a_node_for_each_cpu_of_this_process() {
            let nodes = NumaNodes::of_machine();
            assert!(nodes.count() >= 1);
            let cpus: usize = (0..nodes.count()).map(|node| nodes.cpus(NodeId(node)).len()).sum();
            assert!(!Path::new(NODES).join("online").exists() || cpus > 0);
        }
    }

    #[test]
    #[cfg_attr(miri, ignore = "thousands of slabs, each interpreted; arithmetic only")]
    fn stripes_go_round_the_nodes() {
        let nodes =
            |stripes: Stripes, slabs: u32| (0..slabs).map(|slab| stripes.node_of(SlabId(slab)).0).collect();
        let small: Vec<u32> = nodes(Stripes::new(3, 100), 7);
        assert_eq!(small, [0, 1, 2, 0, 1, 2, 0]);
        let large: Vec<u32> = nodes(Stripes::new(2, 2 * STRIPES_MAX), 6);
        assert_eq!(large, [0, 0, 1, 1, 0, 0]);
        for (count, slabs) in [(1, 10), (2, 10), (3, 3 * STRIPES_MAX)] {
            let stripes = Stripes::new(count, slabs);
            for node in (0..count).map(NodeId) {
                let mut of_node = Vec::new();
                let mut slab = stripes.first(node);
                while slab.0 < slabs {
                    of_node.push(slab);
                    slab = stripes.after(slab);
                }
                let expected: Vec<SlabId> =
                    (0..slabs).map(SlabId).filter(|slab| stripes.node_of(*slab) == node).collect();
                assert_eq!(of_node, expected);
            }
        }
    }
}
