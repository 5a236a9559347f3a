//! Small requests allocate nothing.

mod dispatch_support;

use dispatch_support::{Talk, dispatcher, on_a_connection};
use larder_server::settings::Settings;

/// All kinds of small requests, in an order in which each finds the item that it needs.
const REQUESTS: [&str; 20] = [
    "set KEY 5 0 32\r\n................................\r\n",
    "get KEY\r\n",
    "gets KEY absent KEY\r\n",
    "mg KEY v t f c k s l h Oopaque\r\n",
    "mg a2V5 b\r\n",
    "ms KEY 32 T100 F3\r\n................................\r\n",
    "add KEY 0 0 1\r\n1\r\n",
    "replace KEY 0 0 20\r\n00000000000000000000\r\n",
    "incr KEY 1\r\n",
    "decr KEY 1\r\n",
    "ma KEY t v\r\n",
    "touch KEY 1000\r\n",
    "gat 1000 KEY\r\n",
    "mg KEY T900 v\r\n",
    "append KEY 0 0 3\r\nabc\r\n",
    "prepend KEY 0 0 3\r\nabc\r\n",
    "cas KEY 0 0 1 1\r\n1\r\n",
    "md KEY I T30\r\n",
    "delete KEY\r\n",
    "mn\r\n",
];
const KEYS: usize = 500;

#[test]
fn a_small_request_allocates_nothing() {
    on_a_connection(|client| {
        let settings = Settings { memory_bytes: 64 << 20, threads: 1, ..Settings::default() };
        let (mut dispatcher, _) = dispatcher(settings, Some(1), Some(client));
        let mut talk = Talk::open(&mut dispatcher, client.peer);
        let mut allocating = Vec::new();
        // In the first round buffers and the index grow to the size that they need.
        for is_measured in [false, true] {
            for request in REQUESTS {
                let all: String =
                    (0..KEYS).map(|key| request.replace("KEY", &format!("key-{key}"))).collect();
                let mut play = || {
                    // A piece has the size of a receive buffer.
                    for piece in all.as_bytes().chunks(16 << 10) {
                        talk.send(&mut dispatcher, piece);
                    }
                };
                let made = allocation_counter::measure(&mut play).count_total;
                let answers = talk.answered.split(|&byte| byte == b'\n').count();
                assert!(answers > KEYS, "{answers} lines answer {request:?}");
                assert!(!talk.answered.windows(5).any(|word| word == b"ERROR"), "{request:?}");
                talk.answered.clear();
                // A few allocations are allowed: a column is taken, a list of columns grows, a reply is longer than all
                // before.
                if is_measured && made > KEYS as u64 / 50 {
                    allocating.push((made, request));
                }
            }
        }
        assert!(allocating.is_empty(), "{allocating:#?} of {KEYS} each");
    });
}
