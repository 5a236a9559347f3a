use super::*;
use crate::device::PAGE_BYTES;
use crate::test_devices::{MemoryDevice, pages};

fn memory(zones: u32) -> MemoryDevice {
    MemoryDevice::new(zones, 16)
}

fn devices(all: &[&MemoryDevice]) -> Vec<Arc<dyn Device>> {
    all.iter().map(|device| Arc::new((*device).clone()) as Arc<dyn Device>).collect()
}

fn opened(all: &[&MemoryDevice]) -> Arc<dyn Device> {
    together(devices(all), false).unwrap_or_else(|error| panic!("{error}"))
}

fn refusal(all: &[&MemoryDevice]) -> String {
    let error = together(devices(all), false).err().expect("it is refused").0;
    assert!(!error.contains('\n'));
    error
}

#[test]
fn zones_alternate_between_the_members_and_are_there_again() {
    let (one, other) = (memory(5), memory(5));
    let set = opened(&[&one, &other]);
    assert_eq!((set.geometry().zones, set.geometry().channels), (8, 2));
    for zone in 0..8 {
        set.append(ZoneId(zone), &pages(1, zone.into())).expect("an append");
    }
    let members = set.members();
    assert_eq!(members.iter().map(|member| member.zones).collect::<Vec<_>>(), [4, 4]);
    assert_eq!(members.iter().map(|member| member.counters.appends).collect::<Vec<_>>(), [5, 5]);
    let set = opened(&[&one, &other]);
    for zone in 0..8 {
        let mut found = PageBuffer::new(1);
        set.read(ZoneId(zone), 0, &mut found).expect("a read");
        assert_eq!(*found, *pages(1, zone.into()), "zone {zone}");
    }
}

#[test]
fn members_that_are_not_the_set_are_refused_and_lose_nothing() {
    let (one, two, three, four) = (memory(5), memory(5), memory(5), memory(5));
    opened(&[&one, &two]).append(ZoneId(3), &pages(1, 1)).expect("an append");
    opened(&[&three, &four]);
    let blank = memory(5);
    let foreign = memory(5);
    foreign.append(ZoneId(3), &pages(1, 9)).expect("an append");
    assert!(
        refusal(&[&two, &one])
            .starts_with("memory is device 2 of a set of 2, and is given as device 1 of 2: ")
    );
    assert!(refusal(&[&one]).starts_with("memory is device 1 of a set of 2, and is given alone: "));
    assert!(refusal(&[&one, &two, &blank]).contains("device 1 of a set of 2, and is given as device 1 of 3"));
    assert!(refusal(&[&one, &blank]).contains("is blank, and memory is part of a set"));
    assert!(refusal(&[&blank, &one]).contains("is blank, and memory is part of a set"));
    assert!(refusal(&[&one, &foreign]).contains("does not belong to the set"));
    assert!(refusal(&[&one, &three]).contains("belongs to another set"));
    assert!(refusal(&[&blank, &foreign]).contains("it is not blank, and is no part of a set"));
    let mut found = PageBuffer::new(1);
    opened(&[&one, &two]).read(ZoneId(3), 0, &mut found).expect("a read");
    assert_eq!(*found, *pages(1, 1), "nothing is lost");
    assert_eq!(
        blank.report(ZoneId(0)).map(|report| report.state),
        Ok(ZoneState::Empty),
        "nothing is written"
    );
    foreign.read(ZoneId(3), 0, &mut found).expect("a read");
    assert_eq!(*found, *pages(1, 9));
}

#[test]
fn formatting_makes_a_new_set_of_anything() {
    let (one, two, three) = (memory(5), memory(5), memory(5));
    opened(&[&one, &two]);
    together(devices(&[&two, &three]), true).expect("a new set");
    opened(&[&two, &three]);
    assert!(refusal(&[&one, &two]).contains("another set"));
    // One of them alone is used as any other device.
    together(devices(&[&one]), true).expect("a device");
}

#[test]
fn zones_of_unequal_length_are_refused_and_unequal_members_are_not() {
    let (short, long) = (MemoryDevice::new(5, 16), MemoryDevice::new(5, 32));
    assert!(refusal(&[&short, &long]).contains("need zones of one length"));
    let (small, large) = (memory(5), memory(9));
    let set = opened(&[&small, &large]);
    assert_eq!((set.geometry().zones, set.geometry().channels), (12, 3));
    let grown = memory(7);
    grown.append(ZoneId(0), &label_of(&large)).expect("a copy of the label");
    assert!(refusal(&[&small, &grown]).contains("was formatted with"));
}

fn label_of(device: &MemoryDevice) -> PageBuffer {
    let mut page = PageBuffer::new(1);
    device.read(ZoneId(0), 0, &mut page).expect("a label");
    assert_eq!(page.len(), PAGE_BYTES);
    page
}
