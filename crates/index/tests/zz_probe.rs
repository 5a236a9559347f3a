use larder_index::*;
use larder_item::*;
struct O(KeyHasher);
impl HoldsKey for O {
    fn holds(&self, at: Location, key: &[u8]) -> bool { (at.offset() / 64).to_le_bytes() == key }
    fn hash_of(&self, at: Location) -> KeyHash { self.0.hash(&(at.offset() / 64).to_le_bytes()) }
    fn prefetch(&self, _: Location) {}
}
#[test]
fn probe() {
    for seed in [5, 1, 9] {
        for start in [0, 10] {
    let o = O(KeyHasher::with_seed(seed));
    let index = Index::new(IndexOptions { buckets_log2: start, buckets_log2_max: 22, ..Default::default() }).unwrap();
    let mut fulls = 0;
    for k in 0..1u64 << 20 {
        let h = o.0.hash(&k.to_le_bytes());
        let mut g = index.lock(h);
        if let Err(f) = g.insert(Location::from_offset(64 * k), 0) {
            fulls += 1;
            if fulls < 3 {
            let mut dirs = [0; 4];
            for e in g.entries() { dirs[(o.hash_of(e.entry.location).tag() & 3) as usize] += 1; }
            println!("seed {seed} start {start} full at {k}: buckets {} len {} tag&3 {} count {} dirs {dirs:?} {f:?} hash {:x}", index.buckets(), index.len(), h.tag() & 3, g.entries().count(), h.0);
            }
            g.remove(&f.victim); let _ = g.insert(Location::from_offset(64 * k), 0);
        }
        drop(g);
        if index.needs_growth() { index.grow(&o, 2); }
    }
    println!("seed {seed} start {start} fulls {fulls}");
    }}
}
