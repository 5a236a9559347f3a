//! Several devices that work as one: their zones are taken in turn, so the load is spread over them, and one that fails
//! takes only its own zones with it.
//!
//! * `layout.rs`: which zone is on which member. Zones 0 and 1, the log of the tier, are on different members.
//! * `label.rs`: the first zone of each member says which set the member belongs to, and its place there. Members that
//!   are missing, foreign or in another order are refused before anything is written.
//! * `member.rs`: when a member has failed, and what is durable on it.
//! * `reads.rs`: the reads of one thread on all members.
//!
//! **A member that fails** is not used any more until the set is opened again. Its zones are [`ZoneState::Offline`],
//! and every operation on them is refused ([`DeviceError::State`]). The set itself is gone ([`DeviceError::Gone`]) only
//! when all members have failed.

mod label;
mod layout;
mod member;
mod reads;
#[cfg(all(test, not(loom)))]
mod tests;

use super::path::human_size;
use super::{
    Device, DeviceCounters, DeviceError, EraseSpread, Geometry, MemberStatus, OpenError, PageBuffer,
    ReadQueue, ZONES_MIN, ZoneId, ZoneReport, ZoneState,
};
use label::{Content, Label};
use layout::Layout;
use member::{HAS_FAILED, Member};
use reads::StripedReads;
use std::sync::Arc;

/// Members of a set at most.
const MEMBERS_MAX: usize = 32;

/// Makes one device of several, in this order. One device alone is returned as it is. With `format`, whatever the
/// devices hold is given up.
///
/// # Errors
/// The devices do not fit together; or they hold something else, or another set, or are not all of a set, or not in
/// their order. Nothing is written then.
pub fn together(devices: Vec<Arc<dyn Device>>, format: bool) -> Result<Arc<dyn Device>, OpenError> {
    if let [alone] = &devices[..] {
        let found = label::read(&**alone);
        if let (Ok(Content::Label(label)), false) = (found, format) {
            return Err(OpenError(format!("{}, and is given alone: {ALL_OF_THEM}", place(&**alone, &label))));
        }
        return Ok(alone.clone());
    }
    Ok(Arc::new(Striped::open(devices, format)?))
}

/// What to do if the devices of a set are not all there.
const ALL_OF_THEM: &str = "give all devices of the set in their order, or format";

/// The beginning of an error about a device with this label.
fn place(device: &dyn Device, label: &Label) -> String {
    format!("{} is device {} of a set of {}", device.describe(), label.number + 1, label.zones.len())
}

/// The members of a set, shared with the queues of reads.
struct Set {
    members: Vec<Member>,
    layout: Layout,
}

impl Set {
    fn members(&self) -> &[Member] {
        &self.members
    }

    /// The number of the member that has a zone, and the zone's number there.
    fn place(&self, zone: ZoneId) -> Result<(usize, ZoneId), DeviceError> {
        self.layout.place(zone).ok_or(DeviceError::State { zone, what: "there is no such zone" })
    }

    /// The member that has a zone, if the member works, and the zone's number there.
    fn working(&self, zone: ZoneId) -> Result<(&Member, ZoneId), DeviceError> {
        let (number, local) = self.place(zone)?;
        let member = &self.members[number];
        if member.has_failed() {
            return Err(self.refusal(zone));
        }
        Ok((member, local))
    }

    /// Why nothing can be done with a zone of a member that has failed.
    fn refusal(&self, zone: ZoneId) -> DeviceError {
        match self.members.iter().all(Member::has_failed) {
            true => DeviceError::Gone,
            false => DeviceError::State { zone, what: HAS_FAILED },
        }
    }

    /// The error of a member as an error of the set.
    fn error(&self, error: DeviceError, zone: ZoneId) -> DeviceError {
        if error == DeviceError::Gone { self.refusal(zone) } else { Member::error(error, zone) }
    }
}

/// Several devices as one.
struct Striped {
    set: Arc<Set>,
    geometry: Geometry,
}

impl Striped {
    fn open(devices: Vec<Arc<dyn Device>>, format: bool) -> Result<Striped, OpenError> {
        let geometries: Vec<Geometry> = devices.iter().map(|device| device.geometry()).collect();
        let zones: Vec<u32> = geometries.iter().map(|geometry| geometry.zones).collect();
        let zone_bytes = check_zone_bytes(&devices, &geometries)?;
        if devices.len() > MEMBERS_MAX {
            return Err(OpenError(format!("{} devices are too many: {MEMBERS_MAX} at most", devices.len())));
        }
        let layout = Layout::new(&zones).filter(|layout| layout.zones() >= ZONES_MIN);
        let layout = layout.ok_or_else(|| {
            OpenError(format!("the devices are too small: {ZONES_MIN} zones beside one of each are needed"))
        })?;
        recognise(&devices, zone_bytes, &zones, format)?;
        let geometry = Geometry {
            zones: layout.zones(),
            zone_bytes,
            channels: layout.channels(),
            // All zones that are open may be on one member.
            open_zones_max: geometries
                .iter()
                .filter(|geometry| geometry.open_zones_max < geometry.zones)
                .map(|geometry| geometry.open_zones_max)
                .min()
                .unwrap_or(layout.zones()),
        };
        let members = devices.into_iter().map(Member::new).collect();
        Ok(Striped { set: Arc::new(Set { members, layout }), geometry })
    }
}

/// The length of a zone, which all devices share.
fn check_zone_bytes(devices: &[Arc<dyn Device>], geometries: &[Geometry]) -> Result<u64, OpenError> {
    let [first, rest @ ..] = geometries else { return Err(OpenError("there is no device".into())) };
    match rest.iter().position(|geometry| geometry.zone_bytes != first.zone_bytes) {
        None => Ok(first.zone_bytes),
        Some(other) => Err(OpenError(format!(
            "zones of {} have {}, and zones of {} have {}: devices that are used together need zones of one length",
            devices[0].describe(),
            human_size(first.zone_bytes),
            devices[other + 1].describe(),
            human_size(rest[other].zone_bytes)
        ))),
    }
}

/// Looks at the labels of all devices, and labels blank devices as a new set.
fn recognise(
    devices: &[Arc<dyn Device>],
    zone_bytes: u64,
    zones: &[u32],
    format: bool,
) -> Result<(), OpenError> {
    let failed = |device: &Arc<dyn Device>, error: DeviceError| {
        OpenError(format!("{}: its label: {error}", device.describe()))
    };
    if !format {
        let read = |device: &Arc<dyn Device>| label::read(&**device).map_err(|error| failed(device, error));
        let found = devices.iter().map(read).collect::<Result<Vec<Content>, OpenError>>()?;
        if !found.iter().all(|content| *content == Content::Blank) {
            return check_labels(devices, zone_bytes, zones, &found);
        }
    }
    let mut uuid = [0; 16];
    rustix::rand::getrandom(&mut uuid, rustix::rand::GetRandomFlags::empty())
        .map_err(|error| OpenError(format!("no random numbers: {error}")))?;
    // After a crash in between the devices are no set: neither the one before nor the new one.
    for device in devices {
        label::erase(&**device).map_err(|error| failed(device, error))?;
    }
    for (number, device) in devices.iter().enumerate() {
        let label = Label { uuid, number: number as u16, zone_bytes, zones: zones.to_vec() };
        label.write(&**device).map_err(|error| failed(device, error))?;
    }
    Ok(())
}

/// Whether the devices are one set, whole and in its order.
fn check_labels(
    devices: &[Arc<dyn Device>],
    zone_bytes: u64,
    zones: &[u32],
    found: &[Content],
) -> Result<(), OpenError> {
    let mut first: Option<(&Arc<dyn Device>, &Label)> = None;
    let labelled = devices.iter().zip(found);
    for (device, content) in labelled.clone() {
        if let (Content::Label(label), None) = (content, first) {
            first = Some((device, label));
        }
    }
    for (number, (device, content)) in labelled.enumerate() {
        let name = device.describe();
        let Some((known, of)) = first else {
            return Err(OpenError(format!("{name}: it is not blank, and is no part of a set: format")));
        };
        let known = known.describe();
        let label = match content {
            Content::Label(label) if label.uuid == of.uuid => label,
            Content::Label(_) => {
                return Err(OpenError(format!("{name} belongs to another set than {known}: {ALL_OF_THEM}")));
            }
            Content::Blank => {
                return Err(OpenError(format!(
                    "{name} is blank, and {known} is part of a set: {ALL_OF_THEM}"
                )));
            }
            Content::Other => {
                return Err(OpenError(format!(
                    "{name} does not belong to the set of {known}: {ALL_OF_THEM}"
                )));
            }
        };
        let is_given = format!("and is given as device {} of {}", number + 1, devices.len());
        if label.zones.len() != devices.len() || usize::from(label.number) != number {
            return Err(OpenError(format!("{}, {is_given}: {ALL_OF_THEM}", place(&**device, label))));
        }
        if (label.zone_bytes, &label.zones[..]) != (zone_bytes, zones) {
            return Err(OpenError(format!(
                "{name} was formatted with {} zones of {} bytes, and has {} of {zone_bytes} now: give it its old \
                 size, or format",
                label.zones[number], label.zone_bytes, zones[number]
            )));
        }
    }
    Ok(())
}

impl Device for Striped {
    fn geometry(&self) -> Geometry {
        self.geometry
    }

    fn describe(&self) -> String {
        let names: Vec<String> = self.set.members.iter().map(|member| member.device().describe()).collect();
        format!("{} devices ({})", names.len(), names.join("; "))
    }

    fn report(&self, zone: ZoneId) -> Result<ZoneReport, DeviceError> {
        let (number, local) = self.set.place(zone)?;
        let member = &self.set.members[number];
        let works = if member.has_failed() { Err(DeviceError::Gone) } else { Ok(member.device()) };
        match works.and_then(|device| member.did(device.report(local))) {
            Err(DeviceError::Gone) => match self.set.refusal(zone) {
                DeviceError::Gone => Err(DeviceError::Gone),
                _ => Ok(ZoneReport { state: ZoneState::Offline, resets: 0 }),
            },
            report => report.map_err(|error| Member::error(error, zone)),
        }
    }

    fn append(&self, zone: ZoneId, pages: &[u8]) -> Result<u64, DeviceError> {
        let (member, local) = self.set.working(zone)?;
        member.appended(member.device().append(local, pages)).map_err(|error| self.set.error(error, zone))
    }

    fn read(&self, zone: ZoneId, offset: u64, into: &mut PageBuffer) -> Result<(), DeviceError> {
        let (member, local) = self.set.working(zone)?;
        member.did(member.device().read(local, offset, into)).map_err(|error| self.set.error(error, zone))
    }

    fn finish(&self, zone: ZoneId) -> Result<(), DeviceError> {
        let (member, local) = self.set.working(zone)?;
        member.did(member.device().finish(local)).map_err(|error| self.set.error(error, zone))
    }

    fn reset(&self, zone: ZoneId) -> Result<(), DeviceError> {
        let (member, local) = self.set.working(zone)?;
        member.wrote(member.device().reset(local)).map_err(|error| self.set.error(error, zone))
    }

    /// # Errors
    /// A member fails now, and what was appended to it since its last sync is lost; or all members have failed. A
    /// member that had failed before has nothing to lose.
    fn sync(&self) -> Result<(), DeviceError> {
        let mut result = Ok(());
        for member in &self.set.members {
            result = result.and(member.sync());
        }
        match result {
            _ if self.set.members.iter().all(Member::has_failed) => Err(DeviceError::Gone),
            Err(DeviceError::Gone) => {
                Err(DeviceError::Io { errno: None, what: "a device has failed".into() })
            }
            result => result,
        }
    }

    fn counters(&self) -> DeviceCounters {
        let mut all = DeviceCounters { media_bytes: Some(0), ..DeviceCounters::default() };
        for one in self.set.members.iter().map(Member::counters) {
            all = DeviceCounters {
                reads: all.reads + one.reads,
                read_bytes: all.read_bytes + one.read_bytes,
                appends: all.appends + one.appends,
                append_bytes: all.append_bytes + one.append_bytes,
                resets: all.resets + one.resets,
                errors: all.errors + one.errors,
                media_bytes: all.media_bytes.zip(one.media_bytes).map(|(all, one)| all + one),
                erases: EraseSpread::over(all.erases, one.erases),
            };
        }
        all
    }

    fn reads(&self, depth: u32) -> Result<Box<dyn ReadQueue>, DeviceError> {
        Ok(Box::new(StripedReads::new(self.set.clone(), depth)?))
    }

    fn members(&self) -> Vec<MemberStatus> {
        let members = self.set.members.iter().enumerate();
        members.map(|(number, member)| member.status(self.set.layout.zones_of(number))).collect()
    }
}
