//! The binary protocol, played to a dispatcher in this process.

use crate::dispatch_support::binary_twin::Packet;
use crate::dispatch_support::{Client, Talk, dispatcher, on_a_connection};
use larder_server::dispatch::Dispatcher;
use larder_server::io::Service;
use larder_server::settings::{Protocol, Settings};
use std::path::PathBuf;

fn settings() -> Settings {
    Settings { memory_bytes: 64 << 20, threads: 1, ..Settings::default() }
}

/// Sends packets, and returns the replies without their opaques and CAS numbers, and whether the connection is closed.
fn ask(
    dispatcher: &mut Dispatcher,
    client: &Client<'_>,
    packets: &[Packet],
    cut: usize,
) -> (Vec<Packet>, bool) {
    let mut talk = Talk::open(dispatcher, client.peer);
    let all: Vec<u8> = packets.iter().flat_map(Packet::bytes).collect();
    for piece in all.chunks(cut.min(all.len())) {
        talk.send(dispatcher, piece);
    }
    let is_closed = talk.is_closed();
    let said = std::mem::take(&mut talk.answered);
    let (replies, rest) = Packet::replies(&said);
    assert!(rest.is_empty(), "{}", rest.escape_ascii());
    talk.close(dispatcher);
    let plain = |packet: Packet| Packet { opaque: 0, cas: 0, ..packet };
    (replies.into_iter().map(plain).collect(), is_closed)
}

fn error(opcode: u8, status: u16, text: &str) -> Packet {
    Packet { opcode, status, value: text.as_bytes().to_vec(), ..Packet::default() }
}

fn ok(opcode: u8) -> Packet {
    error(opcode, 0, "")
}

#[test]
fn packets_of_a_wrong_shape_end_the_connection_and_unknown_ones_do_not() {
    let noop = || Packet::new(0x0a, b"");
    let wrong_shape = [
        Packet::new(0x00, b""),
        Packet::new(0x00, &[b'k'; 251]),
        Packet::new(0x00, b"k").extras(&[0; 4]),
        Packet::new(0x01, b"k").value(b"v"),
        Packet::store(0x01, b"", 0, 0, b"v"),
        Packet::new(0x04, b"k").value(b"v"),
        Packet::new(0x05, b"k").extras(&[0; 8]),
        Packet::new(0x07, b"k"),
        Packet::new(0x18, b"k"),
        Packet::new(0x0b, b"k"),
        Packet::new(0x1c, b"k"),
        Packet::new(0x1d, b"k").extras(&[0; 4]).value(b"v"),
        Packet::new(0x21, b"").value(b"v"),
    ];
    on_a_connection(move |client| {
        let (mut dispatcher, _) = dispatcher(settings(), None, Some(client));
        for request in wrong_shape {
            for cut in [usize::MAX, 1] {
                let answer = ask(&mut dispatcher, client, &[request.clone(), noop()], cut);
                let expected = vec![error(request.opcode, 4, "Invalid arguments")];
                assert_eq!(answer, (expected, true), "{request:?}");
            }
        }
        // An opcode that is not known takes its body with it, and nothing else.
        for request in [
            Packet::new(0x1b, b"").extras(&[0; 4]),
            Packet::new(0x30, b"key").value(b"value"),
            Packet::new(0x21, b"PLAIN").value(b"\0user\0password"),
            Packet::new(0x20, b""),
        ] {
            let answer = ask(&mut dispatcher, client, &[request.clone(), noop()], 5);
            assert_eq!(answer, (vec![error(request.opcode, 0x81, "Unknown command"), ok(0x0a)], false));
        }
        // A body that is shorter than its parts, and one beyond every limit.
        for (bytes, status, text) in [
            ([0, 5, 0, 0, 0, 0, 0, 0, 0, 4], 0x81, "Unknown command"),
            ([0, 1, 8, 0, 0, 0, 0x40, 0, 0, 1], 4, "Invalid arguments"),
        ] {
            let mut talk = Talk::open(&mut dispatcher, client.peer);
            talk.send(&mut dispatcher, &[&[0x80, 0x01], &bytes[..], &[0; 40]].concat());
            assert!(talk.is_closed());
            let (replies, _) = Packet::replies(&talk.answered);
            assert_eq!((replies[0].status, &replies[0].value[..]), (status, text.as_bytes()));
        }
        // Another first byte within the conversation ends it without a word.
        let mut talk = Talk::open(&mut dispatcher, client.peer);
        talk.send(&mut dispatcher, &[&noop().bytes()[..], b"get k\r\n"].concat());
        assert!(talk.is_closed());
        assert_eq!(talk.answered.len(), 24);
    });
}

#[test]
fn values_that_are_too_large_are_swallowed_and_end_what_a_set_meant_to_replace() {
    on_a_connection(|client| {
        let (mut dispatcher, _) = dispatcher(settings(), None, Some(client));
        let large = vec![b'v'; 1 << 20];
        let too_large = |opcode| error(opcode, 3, "Too large.");
        let get = || Packet::new(0x00, b"k");
        let requests = [
            Packet::store(0x01, b"k", 0, 0, b"old"),
            Packet::store(0x02, b"k", 0, 0, &large),
            Packet::store(0x13, b"k", 0, 0, &large),
            Packet::new(0x0e, b"k").value(&large),
            get(),
            Packet::store(0x11, b"k", 0, 0, &large),
            get(),
        ];
        let old = Packet { extras: vec![0; 4], value: b"old".to_vec(), ..ok(0) };
        let expected = vec![
            ok(1),
            too_large(2),
            too_large(0x13),
            too_large(0x0e),
            old,
            too_large(0x11),
            error(0, 1, "Not found"),
        ];
        assert_eq!(ask(&mut dispatcher, client, &requests, 1 << 14), (expected, false));
        // What is added to may not grow beyond the largest item either, and stays as it is.
        let half = vec![b'h'; 700_000];
        let requests = [Packet::store(0x01, b"k", 0, 0, &half), Packet::new(0x0e, b"k").value(&half), get()];
        let (replies, _) = ask(&mut dispatcher, client, &requests, 1 << 14);
        assert_eq!(replies[1], error(0x0e, 5, "Not stored."));
        assert_eq!(replies[2].value, half);
    });
}

#[test]
fn what_one_protocol_stores_the_other_reads() {
    on_a_connection(|client| {
        let (mut dispatcher, _) = dispatcher(settings(), None, Some(client));
        let (mut text, mut binary) =
            (Talk::open(&mut dispatcher, client.peer), Talk::open(&mut dispatcher, client.peer));
        binary.send(&mut dispatcher, &Packet::store(1, b"k", 77, 1000, b"from binary").bytes());
        let (replies, _) = Packet::replies(&binary.answered);
        let cas = replies[0].cas;
        text.send(&mut dispatcher, b"gets k\r\nmg k t\r\n");
        let expected = format!("VALUE k 77 11 {cas}\r\nfrom binary\r\nEND\r\nHD t1000\r\n");
        assert_eq!(String::from_utf8_lossy(&text.answered), expected);
        text.answered.clear();
        binary.answered.clear();
        // The CAS number that one was told, the other may name.
        text.send(&mut dispatcher, format!("cas k 5 0 4 {cas}\r\ntext\r\n").as_bytes());
        assert_eq!(text.answered, b"STORED\r\n");
        let requests = [
            Packet::store(0x03, b"k", 0, 0, b"late").cas(cas),
            Packet::new(0x0c, b"k"),
            Packet::new(0x04, b"k"),
        ];
        requests.iter().for_each(|request| binary.send(&mut dispatcher, &request.bytes()));
        let (replies, _) = Packet::replies(&binary.answered);
        assert_eq!(replies[0].status, 2);
        assert_eq!((&replies[1].extras[..], &replies[1].value[..]), (&[0, 0, 0, 5][..], &b"text"[..]));
        assert_eq!(replies[2].status, 0);
    });
}

#[test]
fn statistics_are_packets_and_one_without_a_key_ends_them() {
    on_a_connection(|client| {
        let (mut dispatcher, _) = dispatcher(settings(), None, Some(client));
        for (group, wanted) in [(&b""[..], "cmd_get"), (b"settings", "maxbytes"), (b"conns", "")] {
            let (replies, closed) = ask(&mut dispatcher, client, &[Packet::new(0x10, group)], usize::MAX);
            assert!(!closed && replies.iter().all(|reply| reply.status == 0 && reply.opcode == 0x10));
            assert!(wanted.is_empty() || replies.iter().any(|reply| reply.key == wanted.as_bytes()));
            let (last, rest) = replies.split_last().expect("an end");
            assert!(last.key.is_empty() && last.value.is_empty());
            assert!(rest.iter().all(|reply| !reply.key.is_empty()));
        }
        let detail = [
            Packet::new(0x10, b"detail on"),
            Packet::store(0x11, b"user:1", 0, 0, b"v"),
            Packet::new(0x10, b"detail dump"),
            Packet::new(0x10, b"nonsense"),
            Packet::new(0x10, b"detail"),
            Packet::new(0x10, b"reset"),
        ];
        let dump = Packet {
            key: b"detailed".to_vec(),
            value: b"PREFIX user get 0 hit 0 set 1 del 0\r\nEND\r\n".to_vec(),
            ..ok(0x10)
        };
        let unknown = error(0x10, 1, "Not found");
        let expected = vec![ok(0x10), dump, ok(0x10), unknown.clone(), unknown, ok(0x10)];
        assert_eq!(ask(&mut dispatcher, client, &detail, usize::MAX), (expected, false));
    });
}

#[test]
fn commands_that_the_settings_forbid_are_refused() {
    on_a_connection(|client| {
        let settings = Settings { flush_enabled: false, dump_enabled: false, ..settings() };
        let (mut dispatcher, _) = dispatcher(settings, None, Some(client));
        let requests = [Packet::new(0x08, b""), Packet::new(0x18, b""), Packet::new(0x10, b"detail on")];
        let expected = vec![
            error(0x08, 0x20, "Auth failure."),
            error(0x18, 0x20, "Auth failure."),
            error(0x10, 1, "Not found"),
        ];
        assert_eq!(ask(&mut dispatcher, client, &requests, usize::MAX), (expected, false));
    });
}

#[test]
fn a_connection_of_one_protocol_does_not_understand_the_other() {
    on_a_connection(|client| {
        let settings_of = |protocol| Settings { protocol, ..settings() };
        let (mut binary, _) = dispatcher(settings_of(Protocol::Binary), None, Some(client));
        let mut talk = Talk::open(&mut binary, client.peer);
        talk.send(&mut binary, b"version\r\n");
        assert!(talk.is_closed() && talk.answered.is_empty());
        let (mut text, _) = dispatcher(settings_of(Protocol::Ascii), None, Some(client));
        let mut talk = Talk::open(&mut text, client.peer);
        talk.send(&mut text, &[&Packet::new(0x0b, b"").bytes()[..], b"\r\n"].concat());
        assert_eq!(talk.answered, b"ERROR\r\n");
    });
}

// ---- logins ----

/// A file of users that is removed at the end.
struct UsersFile(PathBuf);

impl UsersFile {
    fn new(name: &str) -> UsersFile {
        let path = std::env::temp_dir().join(format!("larder-{name}-{}", std::process::id()));
        std::fs::write(&path, "app:secret\nreadonly eye:see\n").expect("a file can be written");
        UsersFile(path)
    }

    fn settings(&self) -> Settings {
        Settings { auth_file: Some(self.0.clone()), ..settings() }
    }
}

impl Drop for UsersFile {
    fn drop(&mut self) {
        let _ = std::fs::remove_file(&self.0);
    }
}

/// Lets seconds pass until nobody waits any more. Returns how many have passed.
fn wait(dispatcher: &mut Dispatcher, talk: &mut Talk) -> u32 {
    let mut seconds = 0;
    while talk.waits() {
        seconds += 1;
        dispatcher.tick(seconds);
        let mut woken = Vec::new();
        dispatcher.woken(&mut woken);
        if !woken.is_empty() {
            talk.send(dispatcher, b"");
        }
        assert!(seconds < 10, "nobody is woken");
    }
    seconds
}

fn plain(user: &str, password: &str) -> Packet {
    Packet::new(0x21, b"PLAIN").value(format!("\0{user}\0{password}").as_bytes())
}

#[test]
fn a_login_by_sasl_opens_the_connection_and_one_that_fails_is_delayed() {
    on_a_connection(|client| {
        let users = UsersFile::new("sasl");
        let (mut dispatcher, cache) = dispatcher(users.settings(), None, Some(client));
        let get = || Packet::new(0x00, b"k");

        // Nothing but the login and the version is served before it.
        for request in [get(), Packet::new(0x50, b""), Packet::store(0x11, b"k", 0, 0, &[0; 100_000])] {
            let answer = ask(&mut dispatcher, client, &[request.clone(), get()], usize::MAX);
            assert_eq!(answer, (vec![error(request.opcode, 0x20, "Auth failure.")], true));
        }

        let mut talk = Talk::open(&mut dispatcher, client.peer);
        let say = |talk: &mut Talk, dispatcher: &mut Dispatcher, requests: &[Packet]| {
            let all: Vec<u8> = requests.iter().flat_map(Packet::bytes).collect();
            talk.send(dispatcher, &all);
            let seconds = wait(dispatcher, talk);
            let said = std::mem::take(&mut talk.answered);
            let (replies, _) = Packet::replies(&said);
            let words = replies
                .into_iter()
                .map(|reply| (reply.status, String::from_utf8_lossy(&reply.value).into_owned()));
            (seconds, words.collect::<Vec<_>>())
        };
        let word = |status: u16, text: &str| (status, text.to_owned());
        let step = |message: &[u8]| Packet::new(0x22, b"PLAIN").value(message);
        let failure = word(0x20, "Auth failure.");

        let long = Packet::new(0x21, &[b'X'; 40]).value(b"\0app\0secret");
        assert_eq!(say(&mut talk, &mut dispatcher, &[long]), (0, vec![word(4, "Invalid arguments")]));
        let list = [Packet::new(0x20, b""), Packet::new(0x0b, b"")];
        let (seconds, words) = say(&mut talk, &mut dispatcher, &list);
        assert_eq!((seconds, &words[0], words.len()), (0, &word(0, "PLAIN"), 2));
        // A wrong password costs two ticks, and what is pipelined behind it waits too.
        let wrong = [plain("app", "wrong"), plain("app", "secret"), get()];
        let expected = vec![failure.clone(), word(0, "Authenticated"), word(1, "Not found")];
        assert_eq!(say(&mut talk, &mut dispatcher, &wrong), (2, expected));
        // Whoever tries again and fails is logged out. A step that nothing began fails, and so do other mechanisms.
        for bad in [
            plain("app", "wrong"),
            step(b"\0app\0secret"),
            Packet::new(0x21, b"CRAM-MD5"),
            plain("root\0app", "secret"),
        ] {
            assert_eq!(say(&mut talk, &mut dispatcher, &[bad]), (2, vec![failure.clone()]));
        }
        // The name and the password may come in a step.
        let begin = [Packet::new(0x21, b"plain"), step(b"\0app\0secret"), get()];
        let expected = vec![word(0x21, ""), word(0, "Authenticated"), word(1, "Not found")];
        assert_eq!(say(&mut talk, &mut dispatcher, &begin), (0, expected));
        let totals = cache.totals();
        assert_eq!((totals.auth_cmds, totals.auth_errors), (7, 5));
    });
}

#[test]
fn a_login_by_text_that_fails_is_delayed_too() {
    on_a_connection(|client| {
        let users = UsersFile::new("text");
        let (mut dispatcher, _) = dispatcher(users.settings(), None, Some(client));
        let mut talk = Talk::open(&mut dispatcher, client.peer);
        talk.send(&mut dispatcher, b"set x 0 0 9\r\napp wrong\r\nset x 0 0 10\r\napp secret\r\nget k\r\n");
        assert!(talk.waits() && talk.answered.is_empty());
        assert_eq!(wait(&mut dispatcher, &mut talk), 2);
        assert_eq!(
            String::from_utf8_lossy(&talk.answered),
            "CLIENT_ERROR authentication failure\r\nSTORED\r\nEND\r\n"
        );
    });
}

#[test]
fn a_user_who_may_only_read_changes_nothing() {
    on_a_connection(|client| {
        let users = UsersFile::new("reader");
        let (mut dispatcher, _) = dispatcher(users.settings(), None, Some(client));
        let mut writer = Talk::open(&mut dispatcher, client.peer);
        writer.send(
            &mut dispatcher,
            b"set x 0 0 10\r\napp secret\r\nset k 5 0 1\r\n1\r\nset s 0 0 1\r\ns\r\nmd s I\r\n",
        );
        let mut reader = Talk::open(&mut dispatcher, client.peer);
        reader.send(&mut dispatcher, b"set x 0 0 7\r\neye see\r\n");
        assert_eq!(reader.answered, b"STORED\r\n");
        let refused = "CLIENT_ERROR not allowed: this user may only read\r\n";
        let large = format!("set k 0 0 100000\r\n{}\r\n", "v".repeat(100_000));
        for request in [
            "set k 0 0 1\r\n2\r\n",
            &large,
            "add n 0 0 1\r\n2\r\n",
            "append k 0 0 1\r\n2\r\n",
            "cas k 0 0 1 1\r\n2\r\n",
            "delete k\r\n",
            "incr k 1\r\n",
            "touch k 9\r\n",
            "gat 9 k\r\n",
            "ms k 1\r\n2\r\n",
            "md k\r\n",
            "ma k\r\n",
            "mg k T9\r\n",
            "mg n N9\r\n",
            "flush_all\r\n",
            "verbosity 1\r\n",
            "cache_memlimit 100\r\n",
            "stats reset\r\n",
            "stats detail on\r\n",
            "worth mode hits\r\n",
            "refresh_certs\r\n",
            "shutdown\r\n",
        ] {
            reader.answered.clear();
            reader.send(&mut dispatcher, request.as_bytes());
            assert_eq!(String::from_utf8_lossy(&reader.answered), refused, "{request}");
        }
        for (request, answer) in [
            ("get k\r\n", "VALUE k 5 1\r\n1\r\nEND\r\n"),
            ("mg k v f\r\n", "VA 1 f5\r\n1\r\n"),
            // The token of a stale item stays for somebody who can store it anew.
            ("mg s v\r\n", "VA 1 X\r\ns\r\n"),
            ("mn\r\n", "MN\r\n"),
            ("set k 0 0 1 noreply\r\n2\r\nget k\r\n", "VALUE k 5 1\r\n1\r\nEND\r\n"),
            ("stats detail dump\r\n", "END\r\n"),
        ] {
            reader.answered.clear();
            reader.send(&mut dispatcher, request.as_bytes());
            assert_eq!(String::from_utf8_lossy(&reader.answered), answer, "{request}");
        }
        writer.answered.clear();
        writer.send(&mut dispatcher, b"mg s v\r\n");
        assert_eq!(writer.answered, b"VA 1 X W\r\ns\r\n");

        let mut reader = Talk::open(&mut dispatcher, client.peer);
        reader.send(&mut dispatcher, &plain("eye", "see").bytes());
        reader.answered.clear();
        for request in [
            Packet::store(0x01, b"k", 0, 0, b"2"),
            Packet::store(0x11, b"k", 0, 0, &[b'v'; 100_000]),
            Packet::new(0x04, b"k"),
            Packet::arith(0x05, b"k", 1, 1, 0),
            Packet::new(0x1c, b"k").extras(&[0, 0, 0, 9]),
            Packet::new(0x1e, b"k").extras(&[0, 0, 0, 9]),
            Packet::new(0x08, b""),
        ] {
            reader.send(&mut dispatcher, &request.bytes());
            let said = std::mem::take(&mut reader.answered);
            let (replies, _) = Packet::replies(&said);
            assert_eq!(
                (replies.len(), replies[0].status, reader.is_closed()),
                (1, 0x20, false),
                "{request:?}"
            );
        }
        reader.send(&mut dispatcher, &Packet::new(0x00, b"k").bytes());
        let (replies, _) = Packet::replies(&reader.answered);
        assert_eq!((replies[0].status, &replies[0].value[..]), (0, &b"1"[..]));
    });
}
