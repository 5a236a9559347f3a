use super::*;
use proptest::prelude::*;

const NONE: Rates = Rates { taken_per_s: 0.0, reclaimed_per_s: f64::INFINITY };

fn facts(zone: u32, written_bytes: u64, live_bytes: u64, order: u64) -> ZoneSummary {
    ZoneSummary { zone: ZoneId(zone), written_bytes, live_bytes, order }
}

const BOUNDS: SpaceBounds = SpaceBounds { zones: 1000, fill_percent: 0, reserve: 0 };

#[test]
fn below_the_marks_any_garbage_between_much_above_nearly_all() {
    let mut marks = Watermarks::that_stay(25, BOUNDS);
    assert_eq!((marks.low(), marks.high()), (100, 250));
    use Work::*;
    assert_eq!(
        [0, 99, 100, 175, 249, 250].map(|free| marks.next(free, NONE)),
        [Greedy(6), Greedy(6), Greedy(6), Greedy(28), Greedy(49), Greedy(85)],
        "with more erased zones, more garbage makes a zone worth it"
    );
}

#[test]
fn marks_follow_the_rates() {
    let mut marks = Watermarks::that_follow_rates(BOUNDS);
    let mut low = |taken_per_s, reclaimed_per_s| {
        marks.next(500, Rates { taken_per_s, reclaimed_per_s });
        marks.low()
    };
    assert_eq!(low(0.0, 10.0), 10, "the least");
    assert_eq!(low(7.5, 10.0), 10, "the least, still: 3");
    assert_eq!(low(9.5, 10.0), 19);
    assert_eq!(low(9.75, 10.0), 39);
    assert_eq!(low(9.99, 10.0), 250, "clamped");
    assert_eq!(low(10.0, 10.0), 250, "equal rates");
    assert_eq!(low(11.0, 10.0), 250, "faster than it can be reclaimed");
    assert_eq!(low(1.0, f64::INFINITY), 10, "nothing reclaimed yet");
}

#[test]
fn a_meter_finds_a_steady_rate() {
    let mut meter = Meter::new(10.0);
    assert_eq!(meter.rates(), Rates { taken_per_s: 0.0, reclaimed_per_s: f64::INFINITY });
    for step in 0..=1000 {
        meter.took(0.5, step as f64 * 0.1);
    }
    (0..5).for_each(|_| meter.reclaimed(0.01));
    assert!((meter.rates().reclaimed_per_s - 100.0).abs() < 1e-6);
    (0..500).for_each(|_| meter.reclaimed(0.02));
    let rates = meter.rates();
    assert!((rates.taken_per_s - 5.0).abs() < 0.1, "{rates:?}");
    assert!((rates.reclaimed_per_s - 50.0).abs() < 1e-6, "{rates:?}");
    meter.took(0.0, 1000.0);
    assert!(meter.rates().taken_per_s < 1e-6, "silence is forgotten into");
}

#[test]
fn ties_go_to_the_older() {
    let zones = [facts(0, 100, 40, 9), facts(1, 100, 40, 3), facts(2, 100, 50, 1), facts(3, 30, 30, 0)];
    assert_eq!(greedy(zones, 0).map(|zone| zone.zone), Some(ZoneId(1)));
    assert_eq!(oldest(zones).map(|zone| zone.zone), Some(ZoneId(3)));
    assert_eq!(greedy(zones, 61), None, "nothing is worth it");
    assert_eq!(greedy([zones[3]], 0), None, "all alive");
    assert_eq!(oldest([]), None);
}

#[test]
fn the_least_loaded_channel_then_the_least_worn_zone() {
    let mut free = FreeZones::new(2);
    [(0, 5), (2, 1), (4, 1), (1, 9), (3, 7)]
        .into_iter()
        .for_each(|(zone, resets)| free.add(ZoneId(zone), resets));
    let mut load = ChannelLoad::new(2, 5);
    load.add(ZoneId(2), 10);
    assert_eq!(free.take(&load, |_| true), Some(ZoneId(3)), "channel 1 is idle");
    load.add(ZoneId(3), 20);
    assert_eq!(free.take(&load, |_| true), Some(ZoneId(2)));
    load.add(ZoneId(0), 10);
    assert_eq!((load.of(0), load.of(1)), (10, 10), "halved after four zones of both");
    assert_eq!(free.take(&load, |_| true), Some(ZoneId(4)));
    assert_eq!(free.take(&load, |_| true), Some(ZoneId(0)));
    assert_eq!(free.take(&load, |_| true), Some(ZoneId(1)), "the other channel has none left");
    assert_eq!((free.take(&load, |_| true), free.len(), free.is_empty()), (None, 0, true));
}

#[test]
fn the_marks_leave_live_items_their_space() {
    let mut marks = Watermarks::that_follow_rates(SpaceBounds { fill_percent: 85, reserve: 5, ..BOUNDS });
    assert_eq!((marks.low(), marks.high()), (10, 50));
    marks.next(0, Rates { taken_per_s: 2.0, reclaimed_per_s: 1.0 });
    assert_eq!((marks.low(), marks.high()), (75, 115));
    let marks = Watermarks::that_follow_rates(SpaceBounds { fill_percent: 100, reserve: 20, ..BOUNDS });
    assert_eq!((marks.low(), marks.high()), (20, 21), "what is kept for survivors");
}

/// Marks that follow the rates, or a percentage of the zones.
fn marks_of(percent: Option<u8>, bounds: SpaceBounds) -> Watermarks {
    percent.map_or(Watermarks::that_follow_rates(bounds), |percent| Watermarks::that_stay(percent, bounds))
}

proptest! {
    #[test]
    fn marks_stay_in_order_and_in_bounds(
        percent in prop::option::of(0..=200u8), zones in 2..5000u32, fill_percent in 0..=100u32,
        reserve_part in 16..99u32, seen in prop::collection::vec((0..5000u32, 0.0..100.0f64, 0.0..100.0f64), 0..50),
    ) {
        let mut marks = marks_of(percent, SpaceBounds { zones, fill_percent, reserve: zones / reserve_part });
        for (free, taken_per_s, reclaimed_per_s) in seen {
            marks.next(free.min(zones), Rates { taken_per_s, reclaimed_per_s });
            prop_assert!(1 <= marks.low() && marks.low() < marks.high() && marks.high() <= zones, "{marks:?}");
            if percent.is_none() {
                prop_assert!(marks.low() <= (zones * LOW_MAX_PERCENT).div_ceil(100), "{marks:?}");
            }
        }
    }

    #[test]
    fn less_room_never_means_less_haste(
        percent in prop::option::of(0..=200u8), zones in 2..5000u32, free in 0..5000u32,
    ) {
        let marks = marks_of(percent, SpaceBounds { zones, fill_percent: 85, reserve: 0 });
        prop_assert!(marks.garbage_percent(free) <= marks.garbage_percent(free + 1));
    }

    #[test]
    fn no_zone_is_better_than_the_victim(
        zones in prop::collection::vec((0..50u64, 0..50u64, 0..10u64), 0..40), gain in 0..60u64,
    ) {
        let zones: Vec<_> =
            zones.iter().enumerate().map(|(i, z)| facts(i as u32, z.0.max(z.1), z.1, z.2)).collect();
        let worth: Vec<_> = zones.iter().filter(|z| z.written_bytes - z.live_bytes >= gain.max(1)).collect();
        let victim = greedy(zones.iter().copied(), gain);
        prop_assert_eq!(victim.is_some(), !worth.is_empty());
        if let Some(victim) = victim {
            prop_assert!(worth.contains(&&victim));
            prop_assert!(worth.iter().all(|z| (victim.live_bytes, victim.order) <= (z.live_bytes, z.order)));
        }
        let first = oldest(zones.iter().copied());
        prop_assert_eq!(first.map(|z| z.order), zones.iter().map(|z| z.order).min());
    }

    #[test]
    fn free_zones_come_out_as_a_sorted_list_would_have_them(
        channels in 1..5u32, zones in prop::collection::btree_map(0..40u32, 0..6u64, 0..30),
        loads in prop::collection::vec(0..3u64, 5),
    ) {
        let mut load = ChannelLoad::new(channels, 1 << 20);
        (0..channels).for_each(|c| load.add(ZoneId(c), loads[c as usize]));
        let mut free = FreeZones::new(channels);
        zones.iter().for_each(|(zone, resets)| free.add(ZoneId(*zone), *resets));
        let mut twin: Vec<_> =
            zones.iter().map(|(zone, resets)| (loads[(zone % channels) as usize], *resets, ZoneId(*zone))).collect();
        twin.sort();
        for (_, _, zone) in twin {
            prop_assert_eq!(free.take(&load, |_| true), Some(zone));
        }
        prop_assert_eq!(free.take(&load, |_| true), None);
    }
}
