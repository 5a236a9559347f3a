//! Every rule of NAND, broken on purpose.

use crate::*;

const A: BlockId = BlockId { lun: 1, block: 2 };

fn profile() -> Profile {
    Profile { factory_bad_per_mille: 0, ..Profile::test_tiny() }
}

fn line(fill: u8) -> Vec<u8> {
    vec![fill; profile().word_line_bytes()]
}

#[test]
fn erase_before_program() {
    let mut nand = Nand::new(profile(), 1);
    nand.program(0, A, 0, &line(1)).unwrap();
    assert_eq!(nand.program(0, A, 0, &line(2)), Err(NandError::NotErased(A)));
    nand.erase(0, A).unwrap();
    nand.program(0, A, 0, &line(2)).unwrap();
    let mut byte = [0];
    nand.read(0, A, 5, &mut byte).unwrap();
    assert_eq!(byte, [2]);
}

#[test]
fn whole_word_lines_in_order() {
    let mut nand = Nand::new(profile(), 1);
    assert_eq!(nand.program(0, A, 4, &line(1)), Err(NandError::OutOfOrder(A)));
    assert_eq!(nand.program(0, A, 0, &line(1)[4096..]), Err(NandError::NotAWordLine(A)));
    assert_eq!(nand.program(0, A, 1, &line(1)), Err(NandError::NotAWordLine(A)));
    assert_eq!(nand.program(0, A, 64, &line(1)), Err(NandError::Range(A)));
    for page in (0..64).step_by(4) {
        nand.program(0, A, page, &line(page as u8)).unwrap();
    }
    assert_eq!(nand.program(0, A, 60, &line(1)), Err(NandError::NotErased(A)));
    let beyond = BlockId { lun: 8, block: 0 };
    assert_eq!(nand.program(0, beyond, 0, &line(1)), Err(NandError::Range(beyond)));
    assert_eq!(
        nand.erase(0, BlockId { lun: 0, block: 64 }).unwrap_err(),
        NandError::Range(BlockId { lun: 0, block: 64 })
    );
}

#[test]
fn nothing_is_read_that_was_not_programmed() {
    let mut nand = Nand::new(profile(), 1);
    nand.program(0, A, 0, &line(1)).unwrap();
    let mut into = vec![0; 4096];
    nand.read(0, A, 3 * 4096, &mut into).unwrap();
    assert_eq!(nand.read(0, A, 4 * 4096, &mut into), Err(NandError::Unprogrammed(A)));
    assert_eq!(nand.read(0, A, 3 * 4096 + 1, &mut into), Err(NandError::Unprogrammed(A)));
    assert_eq!(nand.read(0, A, 64 * 4096 - 1, &mut into), Err(NandError::Range(A)));
    nand.erase(0, A).unwrap();
    assert_eq!(nand.read(0, A, 0, &mut into), Err(NandError::Unprogrammed(A)));
}

#[test]
fn blocks_are_bad_from_the_factory_and_by_wear() {
    let profile = Profile { factory_bad_per_mille: 100, erases_max: 20, ..profile() };
    let mut nand = Nand::new(profile.clone(), 3);
    let all = || (0..8).flat_map(|lun| (0..64).map(move |block| BlockId { lun, block }));
    let bad = all().filter(|id| nand.is_bad(*id)).count();
    assert!((20..90).contains(&bad), "{bad} of 512 at a tenth");
    assert_eq!(nand.wear().bad_blocks as usize, bad);
    let first = all().find(|id| nand.is_bad(*id)).unwrap();
    assert_eq!(nand.program(0, first, 0, &line(1)), Err(NandError::Bad(first)));
    assert_eq!(nand.erase(0, first), Err(NandError::Bad(first)));
    let good = all().find(|id| !nand.is_bad(*id)).unwrap();
    let lasted = (0..1000).position(|_| nand.erase(0, good) == Err(NandError::EraseFailed(good))).unwrap();
    assert!(lasted >= 20, "not before its limit: {lasted}");
    assert_eq!(nand.erase(0, good), Err(NandError::Bad(good)));
    assert_eq!(nand.counters().failures, 1);
    // The same seed, the same blocks.
    let again = Nand::new(profile, 3);
    assert_eq!(all().filter(|id| again.is_bad(*id)).count(), bad);
}

#[test]
fn faults_come_when_they_are_asked_for() {
    let mut nand = Nand::new(profile(), 1);
    let mut into = [0; 16];
    nand.program(0, A, 0, &line(7)).unwrap();
    [Fault::Program, Fault::Erase, Fault::Read].into_iter().for_each(|fault| nand.inject(fault));
    assert_eq!(nand.read(0, A, 0, &mut into), Err(NandError::Uncorrectable(A)));
    nand.read(0, A, 0, &mut into).unwrap();
    assert_eq!(nand.program(0, A, 4, &line(7)), Err(NandError::ProgramFailed(A)));
    assert_eq!(nand.program(0, A, 4, &line(7)), Err(NandError::Bad(A)));
    nand.read(0, A, 0, &mut into).expect("earlier pages of a block gone bad");
    let other = BlockId { lun: 0, block: 0 };
    assert_eq!(nand.erase(0, other), Err(NandError::EraseFailed(other)));
}

/// A die does one thing at a time; dies of one channel share its bus; channels share nothing.
#[test]
fn time_is_spent_where_it_is_spent() {
    let profile = profile();
    let mut nand = Nand::new(profile.clone(), 1);
    let transfer = profile.transfer_ns(profile.word_line_bytes() as u64);
    let id = |lun| BlockId { lun, block: 0 };
    let one = nand.program(0, id(0), 0, &line(1)).unwrap();
    assert_eq!((one.start, one.accepted, one.end), (0, transfer, transfer + profile.times.program_ns));
    let other_channel = nand.program(0, id(1), 0, &line(1)).unwrap();
    assert_eq!(other_channel.end, one.end);
    let same_bus = nand.program(0, id(4), 0, &line(1)).unwrap();
    assert_eq!((same_bus.start, same_bus.end), (transfer, one.end + transfer));
    let same_die = nand.erase(0, BlockId { lun: 0, block: 1 }).unwrap();
    assert_eq!((same_die.start, same_die.end), (one.end, one.end + profile.times.erase_ns));
    let mut page = vec![0; 4096];
    let read = nand.read(1, id(1), 0, &mut page).unwrap();
    assert_eq!(read.end, one.end + profile.times.read_ns + profile.transfer_ns(4096));
    assert_eq!(nand.bus_busy_ns(0), 2 * transfer);
    assert_eq!(nand.latencies().map(Histogram::count), [1, 3, 1]);
}

#[test]
fn a_read_waits_for_what_is_under_way_only() {
    for reads_first in [true, false] {
        let profile = Profile { reads_first, ..profile() };
        let mut nand = Nand::new(profile.clone(), 1);
        let id = BlockId { lun: 0, block: 0 };
        let ends: Vec<_> = (0..4).map(|i| nand.program(0, id, i * 4, &line(1)).unwrap().end).collect();
        let mut page = vec![0; 4096];
        let long = profile.times.read_ns + profile.transfer_ns(4096);
        // In the midst of the second program, two reads.
        let at = (ends[0] + ends[1]) / 2;
        let before = if reads_first { ends[1] } else { ends[3] };
        assert_eq!(nand.read(at, id, 0, &mut page).unwrap().end, before + long);
        assert_eq!(nand.read(at, id, 0, &mut page).unwrap().end, before + 2 * long, "reads in order");
        let next = nand.erase(at, BlockId { lun: 0, block: 1 }).unwrap();
        assert_eq!(next.start, ends[3] + 2 * long, "what waited was put off");
    }
}

/// The bandwidth of programming that the profile's sources give for a whole drive.
#[test]
fn a_drive_of_2024_programs_three_gigabytes_a_second() {
    let profile = Profile { keeps_contents: false, factory_bad_per_mille: 0, ..Profile::tlc_2024() };
    let mut nand = Nand::new(profile.clone(), 1);
    let bytes = vec![0; profile.word_line_bytes()];
    for page in (0..profile.pages).step_by(3) {
        for lun in 0..profile.luns() {
            nand.program(0, BlockId { lun, block: 0 }, page, &bytes).unwrap();
        }
    }
    let per_s = nand.counters().program_bytes as f64 / (nand.idle_at_ns() as f64 / 1e9);
    assert!((2.5e9..3.1e9).contains(&per_s), "{per_s}");
}

#[test]
fn power_cut_in_a_program_tears_it_and_in_an_erase_leaves_nothing_defined() {
    let mut seen = [0; 2];
    for seed in 0..50 {
        let mut nand = Nand::new(profile(), seed);
        nand.program(0, A, 0, &line(1)).unwrap();
        nand.cut_power_after(Some(1));
        nand.program(0, A, 4, &line(2)).unwrap();
        assert_eq!(nand.program(0, A, 8, &line(3)), Err(NandError::PowerLost));
        assert_eq!(nand.program(0, A, 8, &line(3)), Err(NandError::PowerLost));
        assert_eq!(nand.erase(0, A), Err(NandError::PowerLost));
        let mut into = line(0);
        assert_eq!(nand.read(0, A, 0, &mut into), Err(NandError::PowerLost));
        nand.set_power(true);
        nand.read(0, A, 4 * 4096, &mut into).unwrap();
        assert_eq!(into, line(2));
        match nand.read(0, A, 8 * 4096, &mut into) {
            Ok(_) => {
                assert_ne!(into, line(3));
                seen[0] += 1;
            }
            Err(error) => {
                assert_eq!(error, NandError::Uncorrectable(A));
                seen[1] += 1;
            }
        }
        assert_eq!(nand.program(0, A, 8, &line(3)), Err(NandError::NotErased(A)), "torn is programmed");
        nand.cut_power_after(Some(0));
        assert_eq!(nand.erase(0, A), Err(NandError::PowerLost));
        nand.set_power(true);
        assert_eq!(nand.program(0, A, 0, &line(3)), Err(NandError::NotErased(A)));
        nand.erase(0, A).unwrap();
        nand.program(0, A, 0, &line(3)).unwrap();
    }
    assert!(seen.iter().all(|seen| *seen > 5), "{seen:?}");
}

#[test]
fn each_channel_counts_its_own() {
    let mut nand = Nand::new(Profile { factory_bad_per_mille: 0, ..Profile::test_tiny() }, 1);
    let line = vec![1; nand.profile().word_line_bytes()];
    // Dies 1 and 5 are both on channel 1, die 2 is on channel 2.
    for (lun, block) in [(1, 0), (5, 0), (2, 0)] {
        nand.program(0, BlockId { lun, block }, 0, &line).expect("a program");
    }
    nand.erase(0, BlockId { lun: 5, block: 0 }).expect("an erase");
    nand.erase(0, BlockId { lun: 5, block: 0 }).expect("an erase");
    let of = |channel: usize| {
        let counters = nand.channels()[channel];
        (counters.media_bytes / line.len() as u64, counters.erases.least, counters.erases.most)
    };
    assert_eq!((of(0), of(1), of(2), of(3)), ((0, 0, 0), (2, 0, 2), (1, 0, 0), (0, 0, 0)));
    assert_eq!(nand.channels().len(), 4);
}
