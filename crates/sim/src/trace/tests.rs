use std::collections::HashSet;
use std::io::Write as _;
use std::path::{Path, PathBuf};

use proptest::prelude::*;
use tempfile::TempDir;

use super::oracle_general::{RECORD_BYTES, Record};
use super::write::{Writer, format_by_name, lost};
use super::{Format, Options, Sampled, format_of, open};
use crate::{Fields, Op, Request, Source, SourceError};

/// Creates a folder with a file in it.
fn file(name: &str, octets: &[u8]) -> (TempDir, PathBuf) {
    let folder = TempDir::new().unwrap();
    let path = folder.path().join(name);
    std::fs::write(&path, octets).unwrap();
    (folder, path)
}

/// Everything that a source delivers, and the error that ended it, if any.
fn drain(source: &mut dyn Source, most: usize) -> (Vec<Request>, Option<SourceError>) {
    let mut all = Vec::new();
    loop {
        let before = all.len();
        match source.fill(&mut all, most) {
            Ok(0) => return (all, None),
            Ok(got) => assert_eq!(all.len() - before, got),
            Err(error) => {
                assert_eq!(all.len(), before, "an error comes alone");
                return (all, Some(error));
            }
        }
    }
}

struct Read {
    requests: Vec<Request>,
    error: Option<String>,
    notices: Vec<String>,
    fields: Fields,
}

fn read_with(name: &str, octets: &[u8], options: &Options) -> Read {
    let (_folder, path) = file(name, octets);
    let mut source = open(&path, options).unwrap();
    let (requests, error) = drain(source.as_mut(), 100);
    Read { requests, error: error.map(|e| e.0), notices: source.notices(), fields: source.fields() }
}

fn read(name: &str, octets: &[u8]) -> Read {
    read_with(name, octets, &Options::default())
}

fn failure(name: &str, octets: &[u8]) -> String {
    let (_folder, path) = file(name, octets);
    open(&path, &Options::default()).err().expect("it cannot be opened").0
}

fn keys(requests: &[Request]) -> Vec<u64> {
    requests.iter().map(|request| request.key).collect()
}

fn compress(octets: &[u8], how: &str) -> Vec<u8> {
    match how {
        "zst" => zstd::encode_all(octets, 3).unwrap(),
        "gz" => {
            let mut encoder = flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::fast());
            encoder.write_all(octets).unwrap();
            encoder.finish().unwrap()
        }
        _ => {
            let mut encoder = liblzma::write::XzEncoder::new(Vec::new(), 1);
            encoder.write_all(octets).unwrap();
            encoder.finish().unwrap()
        }
    }
}

const ALL: Fields = Fields { times: true, sizes: true, ops: true, ttls: true, penalties: true };

fn any_op() -> impl Strategy<Value = Op> {
    prop::sample::select(&Op::ALL[..])
}

prop_compose! {
    fn any_request()(
        key in prop_oneof![0..20u64, any::<u64>()],
        time_s in 0..1000u32,
        value_bytes in prop_oneof![0..2000u32, 0..4_000_000_000u32],
        ttl_s: u32,
        penalty_us: u32,
        client: u32,
        key_bytes: u16,
        op in any_op(),
    ) -> Request {
        Request { key, time_s, value_bytes, ttl_s, penalty_us, client, key_bytes, op }
    }
}

/// Requests whose times start at 0 and do not decrease, as any trace delivers them.
fn any_requests(most: usize) -> impl Strategy<Value = Vec<Request>> {
    prop::collection::vec(any_request(), 1..most).prop_map(|mut requests| {
        requests.sort_by_key(|request| request.time_s);
        let first_s = requests[0].time_s;
        requests.iter_mut().for_each(|request| request.time_s -= first_s);
        requests
    })
}

/// The part of a request that a format can store.
fn kept(request: &Request, format: Format, fields: Fields) -> Request {
    match format {
        Format::OracleGeneral => Request {
            key: request.key,
            time_s: request.time_s,
            value_bytes: if fields.sizes { request.item_bytes() as u32 } else { 1 },
            ..Request::default()
        },
        Format::Twitter => {
            Request { penalty_us: if fields.penalties { request.penalty_us } else { 0 }, ..*request }
        }
        Format::Csv => Request {
            key: request.key,
            client: request.client,
            time_s: if fields.times { request.time_s } else { 0 },
            value_bytes: if fields.sizes { request.value_bytes } else { 0 },
            key_bytes: if fields.sizes { request.key_bytes } else { 0 },
            op: if fields.ops { request.op } else { Op::Get },
            ttl_s: if fields.ttls { request.ttl_s } else { 0 },
            penalty_us: if fields.penalties { request.penalty_us } else { 0 },
        },
        _ => Request { key: request.key, ..Request::default() },
    }
}

fn write_all(path: &Path, format: Format, fields: Fields, requests: &[Request]) {
    let mut writer = Writer::create(path, format, fields, false).unwrap();
    requests.chunks(7).for_each(|chunk| writer.write(chunk).unwrap());
    let written = writer.finish(&mut |_| {}).unwrap();
    assert_eq!(written.requests, requests.len() as u64);
    assert_eq!(written.file_bytes, std::fs::metadata(path).unwrap().len());
}

const FORMATS: [(Format, &str); 4] = [
    (Format::OracleGeneral, "a.oracleGeneral"),
    (Format::Twitter, "a.twitter.csv"),
    (Format::Csv, "a.csv"),
    (Format::Keys, "a.txt"),
];

proptest! {
    #![proptest_config(ProptestConfig::with_cases(32))]

    #[test]
    fn what_is_written_is_read(
        requests in any_requests(60),
        fields in any::<[bool; 5]>(),
        suffix in prop::sample::select(vec!["", ".zst", ".gz", ".xz"]),
        most in 1..50usize,
    ) {
        let [times, sizes, ops, ttls, penalties] = fields;
        let fields = Fields { times, sizes, ops, ttls, penalties };
        let folder = TempDir::new().unwrap();
        for (format, name) in FORMATS {
            let path = folder.path().join(format!("{name}{suffix}"));
            write_all(&path, format, fields, &requests);
            prop_assert_eq!(format_by_name(&path), Some(format));
            prop_assert_eq!(format_of(&path, &Options::default()).unwrap(), format);
            let mut source = open(&path, &Options::default()).unwrap();
            let (found, error) = drain(source.as_mut(), most);
            prop_assert_eq!(error, None);
            let expected: Vec<Request> = requests.iter().map(|r| kept(r, format, fields)).collect();
            prop_assert_eq!(found, expected);
            prop_assert!(source.notices().is_empty());
            prop_assert!(source.done_ratio().unwrap() > 0.999);
        }
        // Only the four files remain.
        prop_assert_eq!(std::fs::read_dir(folder.path()).unwrap().count(), FORMATS.len());
    }

    #[test]
    fn next_accesses_are_those_of_a_search(requests in any_requests(80)) {
        let folder = TempDir::new().unwrap();
        let path = folder.path().join("a.oracleGeneral");
        write_all(&path, Format::OracleGeneral, ALL, &requests);
        let octets = std::fs::read(&path).unwrap();
        let (records, rest) = octets.as_chunks::<RECORD_BYTES>();
        prop_assert!(rest.is_empty());
        for (at, octets) in records.iter().enumerate() {
            let next = (at + 1..requests.len()).find(|&later| requests[later].key == requests[at].key);
            prop_assert_eq!(Record::read(octets).next_access, next.map_or(-1, |next| next as i64));
        }
    }

    #[test]
    fn any_octets_are_read_without_a_panic(
        octets in prop::collection::vec(any::<u8>(), 0..300),
        skip_bad: bool,
    ) {
        let formats = FORMATS.map(|(format, _)| Some(format)).into_iter().chain([None]);
        let (_folder, path) = file("a", &octets);
        for format in formats {
            if let Ok(mut source) = open(&path, &Options { format, skip_bad, ..Options::default() }) {
                drain(source.as_mut(), 3);
                source.notices();
            }
        }
    }

    #[test]
    fn lines_of_any_fields_are_read_without_a_panic(
        lines in prop::collection::vec("[0-9kg.,\"\r et-]{0,30}", 0..20),
        skip_bad: bool,
    ) {
        let text = format!("time,key,size,op\n{}", lines.join("\n"));
        let (_folder, path) = file("a", text.as_bytes());
        for format in [Format::Twitter, Format::Csv, Format::Keys] {
            let mut source = open(&path, &Options { format: Some(format), skip_bad, ..Options::default() }).unwrap();
            let (_, error) = drain(source.as_mut(), 3);
            prop_assert!(error.is_none() || !skip_bad);
        }
    }

    #[test]
    fn sampling_keeps_a_key_with_all_its_requests_or_not_at_all(
        requests in any_requests(300),
        rate in 0.05..1.0f64,
        seed: u64,
        most in 1..40usize,
    ) {
        let text: String = requests.iter().map(|r| format!("{}\n", r.key % 64)).collect();
        let (_folder, path) = file("a.txt", text.as_bytes());
        let mut sampled = Sampled::new(open(&path, &Options::default()).unwrap(), rate, seed).unwrap();
        let (found, _) = drain(&mut sampled, most);
        let in_sample: HashSet<u64> = found.iter().map(|request| request.key).collect();
        let expected: Vec<u64> =
            requests.iter().map(|r| r.key % 64).filter(|k| in_sample.contains(k)).collect();
        prop_assert_eq!(keys(&found), expected);
        prop_assert!(in_sample.iter().all(|&key| sampled.keeps(key)));
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(4))]

    #[test]
    fn a_cut_anywhere_keeps_every_whole_record(requests in any_requests(8)) {
        let folder = TempDir::new().unwrap();
        for (format, name) in FORMATS {
            let whole = folder.path().join(name);
            write_all(&whole, format, ALL, &requests);
            let octets = std::fs::read(&whole).unwrap();
            let expected: Vec<Request> = requests.iter().map(|r| kept(r, format, ALL)).collect();
            let cut = folder.path().join("cut");
            for length in 0..octets.len() {
                std::fs::write(&cut, &octets[..length]).unwrap();
                let options = Options { format: Some(format), ..Options::default() };
                let source = open(&cut, &options);
                let records = match format {
                    Format::OracleGeneral => length / RECORD_BYTES,
                    _ => octets[..length].iter().filter(|&&octet| octet == b'\n').count(),
                };
                let Ok(mut source) = source else {
                    prop_assert!(format == Format::Csv && records == 0, "only a header can be missing");
                    continue;
                };
                let (found, error) = drain(source.as_mut(), 5);
                prop_assert_eq!(error, None);
                let records = records - usize::from(format == Format::Csv && records > 0);
                prop_assert!(found.len() == records || found.len() == records + 1);
                prop_assert_eq!(&found[..records], &expected[..records]);
                let in_the_middle = length % RECORD_BYTES != 0 && format == Format::OracleGeneral;
                prop_assert_eq!(!source.notices().is_empty() && in_the_middle, in_the_middle);
            }
        }
    }

    #[test]
    fn a_compressed_file_cut_anywhere_delivers_a_beginning_and_says_so(
        requests in any_requests(20),
        how in prop::sample::select(vec!["zst", "gz", "xz"]),
    ) {
        let folder = TempDir::new().unwrap();
        for (format, name) in FORMATS {
            let path = folder.path().join(format!("{name}.{how}"));
            write_all(&path, format, ALL, &requests);
            let expected: Vec<Request> = requests.iter().map(|r| kept(r, format, ALL)).collect();
            let octets = std::fs::read(&path).unwrap();
            let cut = folder.path().join("cut");
            for length in 2..octets.len() {
                std::fs::write(&cut, &octets[..length]).unwrap();
                let options = Options { format: Some(format), ..Options::default() };
                let Ok(mut source) = open(&cut, &options) else {
                    prop_assert_eq!(format, Format::Csv, "only a header can be missing");
                    continue;
                };
                let (found, error) = drain(source.as_mut(), 5);
                prop_assert_eq!(error, None, "{} at {}", how, length);
                prop_assert!(expected.starts_with(&found), "{} at {}", how, length);
                prop_assert!(source.notices()[0].contains("breaks off"), "{} at {}", how, length);
            }
        }
    }
}

#[test]
fn a_sample_has_its_share_of_the_keys_and_depends_on_the_seed() {
    let text: String = (0..100_000).map(|key| format!("{key}\n")).collect();
    let (_folder, path) = file("a.txt", text.as_bytes());
    let sample = |seed| {
        let source = open(&path, &Options::default()).unwrap();
        keys(&drain(&mut Sampled::new(source, 0.1, seed).unwrap(), 1000).0)
    };
    let one = sample(1);
    // 10000 are expected, with a standard deviation of 95.
    assert!((9_600..10_400).contains(&one.len()), "{}", one.len());
    assert_eq!(one, sample(1));
    assert_ne!(one, sample(2));
    let all = Sampled::new(open(&path, &Options::default()).unwrap(), 1.0, 1);
    assert_eq!(drain(&mut all.unwrap(), 1000).0.len(), 100_000);
}

#[test]
fn a_rate_outside_of_0_to_1_is_refused() {
    let (_folder, path) = file("a.txt", b"1\n");
    for rate in [0.0, -0.1, 1.1, f64::NAN] {
        assert!(Sampled::new(open(&path, &Options::default()).unwrap(), rate, 1).is_err());
    }
}

#[test]
fn compressed_is_plain_whatever_the_name() {
    let text: String = (0..30_000).map(|n| format!("{}\n", n * n)).collect();
    let plain = read("a.txt", text.as_bytes());
    assert_eq!(plain.requests.len(), 30_000);
    for how in ["zst", "gz", "xz"] {
        let found = read("a.txt", &compress(text.as_bytes(), how));
        assert_eq!(found.requests, plain.requests, "{how}");
        assert_eq!(found.notices, Vec::<String>::new());
    }
}

#[test]
fn several_frames_are_one_trace() {
    for how in ["zst", "gz", "xz"] {
        let mut octets = compress(b"1\n2\n", how);
        octets.extend(compress(b"3\n4\n", how));
        assert_eq!(keys(&read("a", &octets).requests), [1, 2, 3, 4], "{how}");
    }
}

#[test]
fn a_text_in_utf_16_is_told_so() {
    let text = "time,key,op,size\n1,a,get,100\n2,b,get,100\n";
    let (little, big): (Vec<u8>, Vec<u8>) = (
        text.encode_utf16().flat_map(u16::to_le_bytes).collect(),
        text.encode_utf16().flat_map(u16::to_be_bytes).collect(),
    );
    for octets in
        [&little[..], &big, &[&[0xff, 0xfe], &little[..]].concat(), &[&[0xfe, 0xff], &big[..]].concat()]
    {
        let refused = super::detect::detect("a.csv", octets).unwrap_err();
        assert!(refused.contains("UTF-16"), "{refused}");
    }
}

#[test]
fn packets_are_told_from_a_trace() {
    for octets in [0xa1b2_c3d4u32.to_le_bytes(), 0xa1b2_3c4du32.to_be_bytes(), 0x0a0d_0d0au32.to_be_bytes()] {
        let refused = super::detect::detect("a.csv", &[&octets[..], &[0; 100]].concat()).unwrap_err();
        assert!(refused.contains("larder capture FILE"), "{refused}");
    }
}

#[test]
fn broken_compressed_data_is_an_error_that_names_the_file() {
    let text: String =
        (0..300_000u64).map(|n| format!("{}\n", n.wrapping_mul(0x9e37_79b9_7f4a_7c15))).collect();
    for how in ["zst", "gz", "xz"] {
        let mut octets = compress(text.as_bytes(), how);
        let middle = octets.len() / 2;
        octets[middle..middle + 64].fill(0xff);
        let found = read("a.txt", &octets);
        let error = found.error.expect(how);
        assert!(error.contains("a.txt: broken") && !found.requests.is_empty(), "{error}");
    }
}

#[test]
fn twitter_lines_have_their_fields() {
    let found = read("cluster", b"100,abc,3,10,7,get,0\n102,5,4,20,8,set,60\n");
    assert_eq!(found.fields, Fields { penalties: false, ..ALL });
    let [a, b] = found.requests[..] else { panic!("two requests") };
    assert_eq!((a.time_s, a.key_bytes, a.value_bytes, a.client, a.op, a.ttl_s), (0, 3, 10, 7, Op::Get, 0));
    let expected = Request {
        key: 5,
        time_s: 2,
        key_bytes: 4,
        value_bytes: 20,
        client: 8,
        op: Op::Set,
        ttl_s: 60,
        penalty_us: 0,
    };
    assert_eq!(b, expected);
}

#[test]
fn an_eighth_twitter_column_is_the_penalty_and_a_key_may_hold_commas() {
    let found = read("cluster", b"0,1,3,10,7,get,0,900\n0,x,y,3,10,7,get,0,901\n");
    assert_eq!(found.error, None);
    assert_eq!(found.fields, ALL);
    assert_eq!(found.requests.iter().map(|r| r.penalty_us).collect::<Vec<_>>(), [900, 901]);
    let alone = read("a.txt", b"a\nx,y\n");
    assert_eq!(found.requests[1].key, alone.requests[1].key);
}

#[test]
fn csv_columns_stand_in_any_order_under_any_usual_name() {
    let text =
        b"COST, Operation ,mystery,obj_id,Size,time\n5,SET,?,9,100,1000\n6.9,get,?,\"9\",\"200\",1001.5\n";
    let found = read("a.csv", text);
    assert_eq!(found.error, None);
    assert_eq!(found.fields, Fields { ttls: false, ..ALL });
    let first =
        Request { key: 9, penalty_us: 5, op: Op::Set, value_bytes: 100, time_s: 0, ..Request::default() };
    let second =
        Request { key: 9, penalty_us: 6, op: Op::Get, value_bytes: 200, time_s: 1, ..Request::default() };
    assert_eq!(found.requests, [first, second]);
}

#[test]
fn units_in_a_header_are_obeyed() {
    let found = read("a.csv", b"timestamp_ms;key;penalty_ms\n5000;1;1.5\n7500;2;\n");
    assert_eq!(found.requests[0].penalty_us, 1_500);
    assert_eq!((found.requests[1].time_s, found.requests[1].penalty_us), (2, 0));
}

#[test]
fn quotes_hold_delimiters_and_quotes() {
    let found = read("a.csv", b"key,size\n\"a,b\",1\n\"say \"\"x\"\"\",2\n\"a,b\",3\n");
    assert_eq!(found.error, None);
    assert_eq!(found.requests.iter().map(|r| r.value_bytes).collect::<Vec<_>>(), [1, 2, 3]);
    let [a, b, c] = keys(&found.requests)[..] else { panic!("three requests") };
    assert!(a == c && a != b);
    let open = read("a.csv", b"key,size\n\"ab,1\n");
    assert!(open.error.unwrap().contains("line 2: columns: a quote is not closed"));
}

#[test]
fn line_ends_marks_empty_lines_and_spaces_do_not_matter() {
    let found = read("a.csv", b"\xef\xbb\xbfkey,size\r\n\r\n 1 , 10 \r\n\n2,20\r\n\r\n");
    assert_eq!(found.error, None);
    assert_eq!(keys(&found.requests), [1, 2]);
    assert_eq!(found.requests[1].value_bytes, 20);
    assert_eq!(keys(&read("a", b"\xef\xbb\xbf1\r\n\r\n  2 \n3").requests), [1, 2, 3]);
}

#[test]
fn empty_fields_between_and_after_tabs_are_fields() {
    let plain = read("a.csv", b"key\tsize\tttl\tcolour\n1\t10\t5\t\r\n\t20\t6\tred\n \t \r\n");
    assert!(plain.error.unwrap().contains("line 3"), "an empty key");
    assert_eq!(keys(&plain.requests), [1]);
    let found = read("a.csv", b"key\tcolour\tsize\tform\n\"1\"\t\t10\t\r\n2\t\t20\t\n");
    assert_eq!((keys(&found.requests), found.error), (vec![1, 2], None));
    assert_eq!(found.requests.iter().map(|r| r.value_bytes).collect::<Vec<_>>(), [10, 20]);
}

#[test]
fn a_key_is_its_number_or_a_hash_of_its_text() {
    let found = read("a", b"7\n07\n18446744073709551615\n18446744073709551616\nuser:1\n07\n");
    let found = keys(&found.requests);
    assert_eq!((found[0], found[2]), (7, u64::MAX));
    assert_eq!(found[1], found[5]);
    assert_eq!(found.iter().collect::<HashSet<_>>().len(), 5);
    // The hash must never change, because figures of different runs are compared by key.
    let text = super::key::KeyReader::new();
    assert_eq!(text.read(b"user:1"), found[4]);
}

#[test]
fn a_broken_line_is_named_after_the_requests_before_it() {
    let cases: [(&[u8], &str); 7] = [
        (b"time,key,size,op\n0,1,5,get\n1,2,x,get\n", "line 3: value size: 'x' is no number"),
        (b"time,key,size,op\n0,1,5,get\n\n1,2,-4,get\n", "line 4: value size: '-4' is below zero"),
        (
            b"time,key,size,op\n0,1,5,get\n1,2,5000000000,get\n",
            "line 3: value size: '5000000000' is more than",
        ),
        (b"time,key,size,op\n0,1,5,get\n1,2,6,fetch\n", "line 3: op: 'fetch' is no operation known"),
        (b"time,key,size,op\n0,1,5,get\n1,,6,get\n", "line 3: key: is empty"),
        (b"time,key,size,op\n0,1,5,get\n1,2\n", "line 3: columns: there are 2 where 4 are needed"),
        (
            b"time,key,size,op\n0,1,5,get\n9999999999,2,6,get\n",
            "line 3: timestamp: 9999999999 lies more than",
        ),
    ];
    for (text, expected) in cases {
        let found = read("bad.csv", text);
        assert_eq!(keys(&found.requests), [1]);
        let error = found.error.expect(expected);
        assert!(error.contains("bad.csv: ") && error.contains(expected), "{error}");
    }
    let found = read("t", b"0,1,3,10,7,get,0\n1,1,3,10,7,get\n");
    assert!(found.error.unwrap().contains("line 2: "));
}

#[test]
fn bad_lines_are_skipped_and_counted_where_asked() {
    let text = b"key,size\n1,1\n2,x\n3,3\n4\n5,5\n";
    let found = read_with("a.csv", text, &Options { skip_bad: true, ..Options::default() });
    assert_eq!((keys(&found.requests), found.error), (vec![1, 3, 5], None));
    assert!(found.notices[0].contains("2 lines could not be read"), "{:?}", found.notices);
    assert!(found.notices[0].contains("line 3: value size: 'x' is no number"), "{:?}", found.notices);
}

#[test]
fn a_line_too_long_is_skipped_up_to_its_end_where_asked() {
    let long = vec![b'x'; 5 << 20];
    let skip_bad = Options { skip_bad: true, ..Options::default() };
    let text = [b"key,size\n1,1\n", &long[..], b",9\n2,2\n", &long[..]].concat();
    let found = read_with("a.csv", &text, &skip_bad);
    assert_eq!((keys(&found.requests), found.error), (vec![1, 2], None));
    assert!(found.notices[0].contains("2 lines could not be read"), "{:?}", found.notices);
    assert!(found.notices[0].contains("line 3: length: is longer than"), "{:?}", found.notices);
}

#[test]
fn half_a_last_line_is_left_out_and_noticed() {
    let found = read("a.csv", b"key,size,op\n1,1,get\n2,2");
    assert_eq!((keys(&found.requests), found.error), (vec![1], None));
    assert!(found.notices[0].contains("in the middle of line 3"), "{:?}", found.notices);
}

#[test]
fn half_a_record_is_left_out_and_noticed() {
    let record = Record { time_s: 5, id: 77, size_bytes: 9, next_access: -1 }.octets();
    let found = read("a.oracleGeneral", &[&record[..], &record[..10]].concat());
    assert_eq!(found.requests, [Request { key: 77, value_bytes: 9, ..Request::default() }]);
    assert!(found.notices[0].contains("within record 2: 10 of its 24"), "{:?}", found.notices);
}

#[test]
fn time_begins_at_zero_and_never_falls() {
    let found =
        read("a.csv", b"key,time\n1,1600000000\n2,1600000010\n3,1600000004\n4,1599999999\n5,1600000011\n");
    assert_eq!(found.requests.iter().map(|r| r.time_s).collect::<Vec<_>>(), [0, 10, 10, 10, 11]);
    assert!(found.notices[0].contains("2 requests bear a time before"), "{:?}", found.notices);
}

#[test]
fn oracle_general_is_known_by_its_records() {
    let records: Vec<u8> = (0..50u32)
        .flat_map(|n| {
            Record { time_s: n, id: 1 << 40, size_bytes: 9, next_access: i64::from(n) + 1 }.octets()
        })
        .collect();
    let (_folder, path) = file("nameless", &records);
    let source = open(&path, &Options::default()).unwrap();
    assert_eq!(source.requests_hint(), Some(50));
    assert_eq!(source.fields(), Fields { times: true, sizes: true, ..Fields::default() });
    assert!(failure("nameless", &[0, 1, 2, 3]).contains("cannot be told"));
    let prose = b"notes\n\nThis is a text and not a trace.\n";
    assert!(
        failure("notes.txt", prose).contains("'This is a text and not a trace.' is no key; --format keys")
    );
}

#[test]
fn a_name_alone_does_not_make_oracle_general() {
    let text = b"1600000000,key1,4,10,0,get,0\n".repeat(4);
    let error = failure("a.oracleGeneral.csv", &text);
    assert!(error.contains("its first records are none; --format oracle-general"), "{error}");
    let options = Options { format: Some(Format::OracleGeneral), ..Options::default() };
    let (_folder, path) = file("a.oracleGeneral", &text);
    assert!(open(&path, &options).is_ok());
    let (_folder, path) = file("b.oracleGeneral", b"");
    assert!(open(&path, &Options::default()).is_ok());
}

#[test]
fn what_cannot_be_told_is_an_error_that_names_the_flag() {
    for text in [&b""[..], b"\n\n", b"a,b,c\n1,2,3\n", b"\x00\x01\x02 binary"] {
        let error = failure("a", text);
        assert!(error.contains("a: ") && error.contains("--format"), "{error}");
    }
    let (_folder, path) = file("a", b"a,b,c\n");
    let options = Options { format: Some(Format::Csv), ..Options::default() };
    assert!(open(&path, &options).err().unwrap().0.contains("line 1: the header 'a,b,c' names no key"));
    assert!(failure("a.csv", b"key,size,value_size\n").contains("two columns of one meaning"));
    assert!(open(Path::new("/nowhere/at/all"), &Options::default()).is_err());
}

#[test]
fn an_endless_line_is_an_error() {
    let found =
        read_with("a", &[b'x'; 3 << 20], &Options { format: Some(Format::Keys), ..Options::default() });
    assert!(found.error.unwrap().contains("line 1: is longer than"));
}

#[test]
fn a_file_is_not_overwritten_unasked_and_nothing_half_written_stays() {
    let (folder, path) = file("a.txt", b"old");
    assert!(Writer::create(&path, Format::Keys, ALL, false).is_err());
    let mut writer = Writer::create(&path, Format::OracleGeneral, ALL, true).unwrap();
    writer.write(&[Request::default()]).unwrap();
    drop(writer);
    assert_eq!(std::fs::read(&path).unwrap(), b"old");
    assert_eq!(std::fs::read_dir(folder.path()).unwrap().count(), 1);
    Writer::create(&path, Format::Keys, ALL, true).unwrap().finish(&mut |_| {}).unwrap();
    assert_eq!(std::fs::read(&path).unwrap(), b"");
}

#[cfg(unix)]
#[test]
fn a_link_stays_and_the_file_behind_it_is_overwritten() {
    let (folder, path) = file("a.txt", b"old");
    let link = folder.path().join("link.txt");
    std::os::unix::fs::symlink(&path, &link).unwrap();
    Writer::create(&link, Format::Keys, ALL, true).unwrap().finish(&mut |_| {}).unwrap();
    assert!(std::fs::symlink_metadata(&link).unwrap().is_symlink());
    assert_eq!(std::fs::read(&path).unwrap(), b"");
    for other in [folder.path(), Path::new("/dev/null")] {
        let error = Writer::create(other, Format::Keys, ALL, true).err().unwrap().0;
        assert!(error.contains("is no regular file"), "{error}");
    }
}

#[test]
fn an_item_beyond_32_bits_is_refused_by_oracle_general() {
    let folder = TempDir::new().unwrap();
    let mut writer = Writer::create(&folder.path().join("a"), Format::OracleGeneral, ALL, false).unwrap();
    let large = Request { value_bytes: u32::MAX, key_bytes: 1, ..Request::default() };
    assert!(writer.write(&[large]).unwrap_err().0.contains("request 1: an item of 4294967296 bytes"));
}

#[test]
fn a_format_says_what_it_has_no_room_for() {
    assert!(lost(ALL, Format::Csv).is_empty());
    assert_eq!(lost(ALL, Format::OracleGeneral), ["operations", "TTLs", "penalties"]);
    assert_eq!(lost(Fields { sizes: true, ..Fields::default() }, Format::Keys), ["sizes"]);
}

#[test]
fn a_source_that_fails_delivers_its_sample_first() {
    let (_folder, path) = file("a.csv", b"key,size\n1,1\n2,2\n3,x\n");
    let source = open(&path, &Options::default()).unwrap();
    let (found, error) = drain(&mut Sampled::new(source, 1.0, 0).unwrap(), 100);
    assert_eq!((keys(&found), error.is_some()), (vec![1, 2], true));
}

#[test]
fn a_key_may_be_called_key() {
    let found = read("cluster", b"100,key,3,10,7,get,0\n102,5,4,20,8,set,60\n");
    assert_eq!((found.error, found.requests.len()), (None, 2));
    let header = read("a", b"timestamp,key,key_size,value_size,client,op,ttl\n100,5,3,10,7,get,0\n");
    assert_eq!((header.error, header.requests.len()), (None, 1));
}

#[test]
fn what_a_server_tells_is_a_trace_and_a_miss_has_the_size_of_the_store() {
    let text = b"ts=100.5 gid=1 type=item_get key=1 status=not_found clsid=0 cfd=30 size=0\n\
        ts=101.7 gid=2 type=item_get key=1 status=not_found clsid=0 cfd=30 size=0\r\n\
        ts=101.8 gid=3 type=item_store key=1 status=stored cmd=set ttl=9 clsid=1 cfd=30 size=40\n\
        ts=102.0 gid=4 type=item_get key=2 status=not_found clsid=0 cfd=30 size=0\n\
        ts=102.1 gid=4 type=item_get key=1 status=found clsid=0 cfd=30 size=40\n";
    let found = read("watched", text);
    assert_eq!((found.error, found.fields), (None, ALL));
    let told: Vec<_> = found.requests.iter().map(|r| (r.time_s, r.key, r.op, r.value_bytes)).collect();
    let expected = [(0, 1, Op::Get, 40), (1, 1, Op::Set, 40), (2, 2, Op::Get, 40), (2, 1, Op::Get, 40)];
    assert_eq!(told, expected, "key 2 has the mean size");
    let monitor =
        read("monitored", b"1.000002 [0 127.0.0.1:1] \"set\" \"1\" \"abc\"\n1.5 [0 x] \"get\" \"1\"\n");
    assert_eq!(monitor.requests.iter().map(|r| r.value_bytes).collect::<Vec<_>>(), [3, 3]);
    for format in [Format::Watch, Format::Monitor] {
        let refused = Writer::create(Path::new("/no/such"), format, ALL, false).err();
        assert!(refused.is_some_and(|error| error.0.contains("only servers do")));
    }
}

#[test]
fn records_without_sizes_count_as_equal() {
    let folder = TempDir::new().unwrap();
    let path = folder.path().join("a.bin");
    write_all(&path, Format::OracleGeneral, Fields::default(), &[Request { key: 1, ..Request::default() }]);
    let octets = std::fs::read(path).unwrap();
    assert_eq!(Record::read(octets[..RECORD_BYTES].try_into().unwrap()).size_bytes, 1);
}

/// A request as the tests below write it: time, key, bytes of the value, operation.
fn short(requests: &[Request]) -> Vec<(u32, u64, u32, Op)> {
    requests.iter().map(|one| (one.time_s, one.key, one.value_bytes, one.op)).collect()
}

#[test]
fn columns_without_a_header_are_those_that_the_reader_names() {
    let with = |text: &str| Options { columns: Some(text.parse().unwrap()), ..Options::default() };
    let both = vec![(0, 7, 100, Op::Get), (2, 9, 300, Op::Set)];
    // Between blanks, tabs, commas and semicolons; with further columns; in any order.
    let plain = with("time=1,key=2,size=3,op=4");
    for text in [
        "5 7 100 get\n7 9   300 set x\n",
        "5\t7\t100\tget\n7\t9\t300\tset\n",
        "5,7,100,\n7,\"9\",300,write,1\n",
    ] {
        let found = read_with("a", text.as_bytes(), &plain);
        assert_eq!((short(&found.requests), found.error), (both.clone(), None), "{text:?}");
    }
    let found = read_with("a", b"x;9000;7;100\nx;11999;9;300\n", &with("size=4,key=3,time_ms=2"));
    assert_eq!(short(&found.requests), [(0, 7, 100, Op::Get), (2, 9, 300, Op::Get)]);
    // A header, where none was expected, is passed over. A later line that is wrong is wrong.
    let found = read_with("a", b"when what long how\n5 7 100 get\n7 9 300 set\n", &plain);
    assert_eq!(short(&found.requests), both);
    assert!(found.notices[0].contains("'when what long how', was taken for a header"), "{:?}", found.notices);
    let found = read_with("a", b"5 7 100 get\n7 9 much set\n", &plain);
    assert!(found.error.unwrap().contains("line 2: value size: 'much' is no number"));
    for (text, why) in [
        ("time=1", "no key"),
        ("key=1,id=2", "two columns of one meaning"),
        ("key=1,size=1", "column 1 has two names"),
        ("key=0", "'0' is no place"),
        ("key=1,length=2", "'length' is no column"),
        ("key", "'key' is not NAME=PLACE"),
    ] {
        let error = text.parse::<super::Named>().unwrap_err();
        assert!(error.contains(why), "{error}");
    }
}

#[test]
fn block_traces_name_reads_and_writes_by_digits_or_letters_and_volumes_apart() {
    let with = |text: &str| Options { columns: Some(text.parse().unwrap()), ..Options::default() };
    // Tencent: time, offset and size in sectors, 0 for a read and 1 for a write, volume.
    let tencent = b"1538323200,80,8,0,1063\n1538323201,80,128,1,1064\n1538323203,80,8,1,1063\n";
    let found = read_with("a", tencent, &with("time=1,key=2,sectors=3,op=4,volume=5"));
    let [first, second, third] = found.requests.as_slice() else { panic!("{:?}", found.error) };
    let of = |one: &Request| (one.time_s, one.value_bytes, one.op);
    assert_eq!(
        [first, second, third].map(of),
        [(0, 4096, Op::Get), (1, 65_536, Op::Set), (3, 4096, Op::Set)]
    );
    assert!(first.key == third.key && first.key != second.key, "an offset is a key of its volume");
    // Alibaba: volume, R or W, offset, length, time in microseconds.
    let found = read_with(
        "a",
        b"419,W,80,512,1577808000000046\n419,R,80,512,1577808001000046\n",
        &with("volume=1,op=2,key=3,size=4,time_us=5"),
    );
    assert_eq!(found.requests.iter().map(of).collect::<Vec<_>>(), [(0, 512, Op::Set), (1, 512, Op::Get)]);
    let found = read_with("a", b"1,80,8,2,7\n", &with("time=1,key=2,sectors=3,op=4,volume=5"));
    assert!(found.error.unwrap().contains("op: '2' is no operation known"));
}

#[test]
fn traces_of_microsoft_research_and_wikimedia_are_known() {
    let msr = "128166372003061629,hm,1,Read,383496192,32768,413\n128166372016382155,hm,1,Write,310983680,32768,1153\n";
    let found = read("hm_1.csv", msr.as_bytes());
    assert_eq!(
        short(&found.requests),
        [(0, 383_496_192, 32_768, Op::Get), (1, 310_983_680, 32_768, Op::Set)]
    );
    assert_eq!(found.error, None);
    let wiki = "relative_unix\thashed_path_query\timage_type\tresponse_size\ttime_firstbyte\n\
                0\t833946053\tjpeg\t24217\t0.000128\n9\t-1679404160\tpng\t7\t1.5\n";
    let found = read("cache-u-00", wiki.as_bytes());
    assert_eq!(short(&found.requests)[0], (0, 833_946_053, 24_217, Op::Get));
    assert_eq!(found.requests.iter().map(|one| one.penalty_us).collect::<Vec<_>>(), [128, 1_500_000]);
}

#[test]
fn records_of_lcs_and_vscsi_are_read() {
    let mut lcs = vec![0; 8192];
    for at in [0, 8184] {
        lcs[at..at + 8].copy_from_slice(&0x1234_5678_9abc_def0_u64.to_le_bytes());
    }
    let record = |version: u64, time: u32, op: u32| {
        let mut octets = [time.to_le_bytes().to_vec(), 9_u64.to_le_bytes().to_vec()].concat();
        match version {
            1 | 2 => octets.extend(300_u32.to_le_bytes()),
            _ => octets.extend(300_u64.to_le_bytes()),
        }
        if version > 1 {
            octets.extend((op | 77 << 8).to_le_bytes());
        }
        if version > 2 {
            octets.extend(60_u32.to_le_bytes());
        }
        octets.extend((-1_i64).to_le_bytes());
        let words = [0, 0, 0, 1, 2, 4, 8, 16][version as usize - 1];
        octets.resize(octets.len() + 4 * words, 1);
        octets
    };
    for version in 1..=8_u64 {
        lcs[8..16].copy_from_slice(&version.to_le_bytes());
        let octets = [lcs.clone(), record(version, 50, 1), record(version, 53, 3)].concat();
        let found = read("a", &octets);
        let op = if version > 1 { Op::Set } else { Op::Get };
        assert_eq!(
            (short(&found.requests), found.error),
            (vec![(0, 9, 300, Op::Get), (3, 9, 300, op)], None)
        );
        assert_eq!(found.requests[0].client, if version > 1 { 77 } else { 0 });
        assert_eq!(found.requests[0].ttl_s, if version > 2 { 60 } else { 0 });
    }
    lcs[8..16].copy_from_slice(&9_u64.to_le_bytes());
    assert!(failure("a", &lcs).contains("version 9 of lcs"));
    assert!(failure("a", &lcs[..100]).contains("no whole header"));

    let number = |value: u64, bytes: usize| value.to_le_bytes()[..bytes].to_vec();
    let first = |ts: u64, command: u64| {
        [
            number(1, 4),
            number(4096, 4),
            number(1, 4),
            number(command, 2),
            number(0x100, 2),
            number(55, 8),
            number(ts, 8),
        ]
        .concat()
    };
    let second = |ts: u64, command: u64| {
        let head =
            [number(command, 2), number(0x200, 2), number(1, 4), number(4096, 4), number(1, 4)].concat();
        [head, number(55, 8), number(ts, 8), number(9, 8)].concat()
    };
    for records in [
        [first(1_000_000_000, 0x28), first(1_002_500_000, 0x2a)].concat(),
        [second(1_000_000_000, 0x28), second(1_002_500_000, 0x2a)].concat(),
    ] {
        let found = read("a", &records);
        assert_eq!(
            (short(&found.requests), found.error),
            (vec![(0, 55, 4096, Op::Get), (2, 55, 4096, Op::Set)], None)
        );
    }
}
