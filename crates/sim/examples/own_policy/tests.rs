//! The policy gives known answers, and `simulate` shows it beside the others.

use larder_sim::progress::Progress;
use larder_sim::simulate::{Rules, Size, run_with};
use larder_sim::{CHUNK_REQUESTS, policy, workload};

use super::{Access, Framed, Mine, Policy, build};

const WORKLOAD: &str = "zipfian:keys=2k,requests=40k,sizes=etc,seed=3";

/// The accesses of [`WORKLOAD`]. The size of an item changes now and then.
fn accesses() -> Vec<Access> {
    let mut requests = Vec::new();
    let mut source = workload::parse(WORKLOAD).unwrap();
    while source.fill(&mut requests, CHUNK_REQUESTS).unwrap() > 0 {}
    let access = |(ordinal, request): (usize, &larder_sim::Request)| Access {
        id: request.key as u32,
        size: request.value_bytes % 1000 + (ordinal % 7) as u32,
        time_s: 0,
        penalty_us: 0,
        next: u64::MAX,
    };
    requests.iter().enumerate().map(access).collect()
}

#[test]
fn with_one_read_it_is_clock_request_by_request() {
    for capacity in [0, 500, 5_000, 50_000] {
        let mut mine = Framed::new(capacity, 1, Mine { reads_max: 1 });
        let mut clock = policy::build("clock", capacity, 1).unwrap();
        let mut hits = 0;
        for (ordinal, access) in accesses().iter().enumerate() {
            let hit = mine.access(access);
            assert_eq!(hit, clock.access(access), "capacity {capacity}, request {ordinal}");
            if ordinal % 11 == 0 {
                mine.remove(access.id);
                clock.remove(access.id);
            }
            assert_eq!((mine.used(), mine.items()), (clock.used(), clock.items()), "request {ordinal}");
            hits += u64::from(hit);
        }
        assert_eq!(hits > 0, capacity > 0, "capacity {capacity}");
    }
}

#[test]
fn an_item_stays_one_round_for_each_read() {
    let mut mine = build("mine", 2, 1).unwrap();
    let mut stays = |id| {
        mine.access(&Access { id, size: 1, time_s: 0, penalty_us: 0, next: u64::MAX });
        mine.contains(0)
    };
    // Key 0 is stored and read twice. Key 1 finds room; each key after it takes key 0 to the end of the queue.
    assert_eq!([0, 0, 0].map(&mut stays), [true; 3]);
    assert_eq!([1, 2, 3, 4].map(&mut stays), [true, true, true, false]);
}

#[test]
fn simulate_shows_it_beside_the_others() {
    let policies = ["mine", "clock", "lru"].map(str::to_owned).to_vec();
    let rules = Rules { policies, sizes: vec![Size::Plain(100)], ..Rules::default() };
    let open = || workload::parse(WORKLOAD);
    let outcome = run_with(&open, &rules, &build, &mut Progress::new("", true)).unwrap();
    let mut mine = build("mine", 100, rules.seed).unwrap();
    let hits = accesses().iter().filter(|access| mine.access(&Access { size: 1, ..**access })).count();
    let shown: Vec<_> = outcome
        .cells
        .iter()
        .map(|cell| (cell.policy.as_str(), cell.run.as_ref().unwrap().counts.hits))
        .collect();
    assert_eq!(shown[0], ("mine", hits as u64));
    assert!(shown[0].1 != shown[1].1 && shown[0].1 != shown[2].1, "{shown:?}");
}
