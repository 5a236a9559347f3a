use crate::device::ZoneId;

/// The most channels of a set of devices. At least as many as members.
const CHANNELS_MAX: u32 = 64;
/// Zones at the beginning of each member that hold no zone of the set: its label.
pub(super) const LABEL_ZONES: u32 = 1;

/// Where the zones of a set are on its members.
///
/// A member with twice as many zones as another one counts as two channels, so each member is filled in proportion to
/// its length. All channels have the same number of zones, `rows`; what a member has beyond whole channels is not used.
/// The first channels belong to different members, so zones 0 and 1, which hold the log of the tier, do as well.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(super) struct Layout {
    /// For each channel, its member and which one of that member's channels it is.
    channels: Vec<(u32, u32)>,
    rows: u32,
}

impl Layout {
    /// The layout that uses the most zones; of several, the one with the fewest channels. `zones` has the zones of each
    /// member, its label included. `None` if a member has no zone beside its label.
    pub(super) fn new(zones: &[u32]) -> Option<Layout> {
        let usable: Vec<u32> = zones.iter().map(|zones| zones.saturating_sub(LABEL_ZONES)).collect();
        let least = usable.iter().copied().min().filter(|least| *least > 0)?;
        // A device that is more than `most` times as long as the shortest one is not used whole.
        let most = CHANNELS_MAX / usable.len() as u32;
        let channels_of = |zones: u32, rows: u32| (zones / rows).min(most);
        let used = |rows: u32| {
            usable.iter().map(|zones| channels_of(*zones, rows) as u64).sum::<u64>() * rows as u64
        };
        let rows = (1..=least).max_by_key(|rows| (used(*rows), *rows))?;
        let round = |sub| {
            let has =
                move |(member, zones): (usize, &u32)| (zones / rows > sub).then_some((member as u32, sub));
            usable.iter().enumerate().filter_map(has)
        };
        let channels = (0..most).flat_map(round).collect();
        Some(Layout { channels, rows })
    }

    /// Number of channels. Zone `z` is on channel `z % channels`.
    pub(super) fn channels(&self) -> u32 {
        self.channels.len() as u32
    }

    /// Number of zones.
    pub(super) fn zones(&self) -> u32 {
        self.channels() * self.rows
    }

    /// The member of a zone, and the zone's number there.
    pub(super) fn place(&self, zone: ZoneId) -> Option<(usize, ZoneId)> {
        let (channel, row) = (zone.0 % self.channels(), zone.0 / self.channels());
        let (member, sub) = self.channels[channel as usize];
        (row < self.rows).then_some((member as usize, ZoneId(LABEL_ZONES + sub * self.rows + row)))
    }

    /// The zones of the set that are on a member.
    pub(super) fn zones_of(&self, member: usize) -> u32 {
        self.channels.iter().filter(|(of, _)| *of as usize == member).count() as u32 * self.rows
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;
    use std::collections::HashSet;

    fn layout(zones: &[u32]) -> Layout {
        Layout::new(zones).expect("a layout")
    }

    #[test]
    fn equal_members_are_a_channel_each() {
        let two = layout(&[9, 9]);
        assert_eq!((two.channels(), two.zones()), (2, 16));
        assert_eq!(two.place(ZoneId(0)), Some((0, ZoneId(1))));
        assert_eq!(two.place(ZoneId(1)), Some((1, ZoneId(1))));
        assert_eq!(two.place(ZoneId(15)), Some((1, ZoneId(8))));
        assert_eq!(two.place(ZoneId(16)), None);
        assert_eq!((two.zones_of(0), two.zones_of(1)), (8, 8));
    }

    #[test]
    fn a_longer_member_is_several_channels() {
        let unequal = layout(&[101, 151]);
        assert_eq!((unequal.channels(), unequal.zones()), (5, 250));
        assert_eq!((unequal.zones_of(0), unequal.zones_of(1)), (100, 150));
        // The log of the tier is on both.
        assert_eq!(unequal.place(ZoneId(0)).map(|(member, _)| member), Some(0));
        assert_eq!(unequal.place(ZoneId(1)).map(|(member, _)| member), Some(1));
    }

    #[test]
    fn every_zone_has_a_place_of_its_own_and_little_is_left_over() {
        for zones in [&[5, 5][..], &[257, 257, 257], &[65, 129], &[300, 400, 500], &[4097, 70], &[3, 1000]] {
            let layout = layout(zones);
            let mut seen = HashSet::new();
            for zone in 0..layout.zones() {
                let (member, local) = layout.place(ZoneId(zone)).expect("a place");
                assert!((LABEL_ZONES..zones[member]).contains(&local.0), "{zones:?}: {local:?} of {member}");
                assert!(seen.insert((member, local)), "{zones:?}: {local:?} of {member} twice");
            }
            let usable: u32 = zones.iter().map(|zones| zones - 1).sum();
            assert!(layout.channels() <= CHANNELS_MAX);
            assert!(layout.zones() * 10 >= usable * 9 || layout.channels() > CHANNELS_MAX / 2, "{zones:?}");
        }
        assert_eq!(Layout::new(&[5, 1]), None, "no zone beside the label");
        assert_eq!(Layout::new(&[]), None);
    }
}
