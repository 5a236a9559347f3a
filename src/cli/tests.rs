//! Tests of the command line from the outside: words in, settings or one line of error out.

use std::ffi::OsString;
use std::net::SocketAddr;
use std::path::PathBuf;

use larder_server::settings::{
    Address, AdminAddress, Admit, Backend, Compress, FlashDevice, ListenerTls, LogFormat, MIB, Objective,
    Pages, PinCpus, Placement, Port, Protocol, Recover, Row, Settings, Takes, Temperature, Topic,
    UserNamespace, WithoutEffect, WorthMode, table,
};

use super::{Action, COMMANDS, CliError, extended, file, parse};

fn run(words: &[&str]) -> Result<Action, CliError> {
    parse(words.iter().map(OsString::from))
}

/// The settings of `larder serve` with these flags.
fn settings(flags: &str) -> Result<Settings, String> {
    let mut words = vec!["larder", "serve"];
    words.extend(flags.split_whitespace());
    match run(&words) {
        Ok(Action::Serve(settings)) => Ok(*settings),
        Ok(other) => panic!("{flags}: {other:?}"),
        Err(error) => Err(error.to_string()),
    }
}

/// Applies the text of a settings file that has no mistake.
fn apply(text: &str, settings: &mut Settings) {
    assert_eq!(file::apply(text, settings, &mut |_, _, _| {}), [], "{text}");
}

fn printed(words: &[&str]) -> String {
    match run(words) {
        Ok(Action::Print(text)) => text,
        other => panic!("{words:?}: {other:?}"),
    }
}

/// The default settings, changed by `change`.
fn default_but(change: fn(&mut Settings)) -> Settings {
    let mut settings = Settings::default();
    change(&mut settings);
    settings
}

#[track_caller]
fn sets(flags: &str, change: fn(&mut Settings)) {
    assert_eq!(settings(flags), Ok(default_but(change)), "{flags}");
}

#[track_caller]
fn refuses(flags: &str, says: &str) {
    let error = settings(flags).expect_err(flags);
    assert!(error.contains(says), "{flags}: {error}");
    assert!(!error.contains('\n'), "{flags}: more than a line: {error}");
}

#[test]
fn without_flags_the_defaults_are_memcacheds() {
    sets("", |_| {});
}

#[test]
fn flags_of_the_network() {
    sets("-p 5", |s| s.tcp_port = Port::Fixed(5));
    sets("-p -1", |s| s.tcp_port = Port::Random);
    sets("--port=-1", |s| s.tcp_port = Port::Random);
    sets("-U 7", |s| (s.tcp_port, s.udp_port) = (Port::Fixed(7), Port::Fixed(7)));
    sets("-U -1", |s| (s.tcp_port, s.udp_port) = (Port::Random, Port::Random));
    sets("-U 0", |_| {});
    sets("-U 7 -p 11211", |s| s.udp_port = Port::Fixed(7));
    sets("-p 0", |s| s.tcp_port = Port::Off);
    sets("-p 0 -U 7", |s| (s.tcp_port, s.udp_port) = (Port::Off, Port::Fixed(7)));
    sets("-l ::1 -l 10.0.0.1:5,[::1]:6", |s| {
        let address = |host: &str, port| Address { host: host.to_owned(), port, tls: ListenerTls::Default };
        s.addresses = vec![address("::1", None), address("10.0.0.1", Some(5)), address("::1", Some(6))];
    });
    sets("-s /tmp/x -a 0777", |s| (s.unix_socket, s.unix_mask) = (Some("/tmp/x".into()), 0o777));
    sets("-b 9", |s| s.backlog = 9);
    sets("--backend ring", |s| s.backend = Backend::Ring);
    sets("--admin off", |s| s.admin = None);
    sets("--admin 127.0.0.1:11219", |s| {
        s.admin = Some(AdminAddress { at: SocketAddr::from(([127, 0, 0, 1], 11219)), required: true });
    });
}

#[test]
fn flags_of_memory_and_limits() {
    fn kind(name: &str) -> Temperature {
        Temperature::named(name).expect("a kind")
    }
    sets("-m 1024", |s| s.memory_bytes = 1024 * MIB);
    sets("-m 3", |s| (s.memory_bytes, s.memory_raised_from) = (8 * MIB, Some(3 * MIB)));
    sets("-m 0", |s| (s.memory_bytes, s.memory_raised_from) = (8 * MIB, Some(0)));
    sets("-m 3 -m 8", |s| s.memory_bytes = 8 * MIB);
    sets("-o read_buf_mem_limit=3", |s| s.buffers_bytes = Some(3 * MIB));
    sets("-m2g -I 5m", |s| (s.memory_bytes, s.item_bytes_max) = (2048 * MIB, 5 << 20));
    sets("-m 4gb --max-item-size 2MB", |s| (s.memory_bytes, s.item_bytes_max) = (4096 * MIB, 2 << 20));
    refuses("-m 4gib", "expected a size from 8m to 32t");
    sets("-I 2048", |s| s.item_bytes_max = 2048);
    sets("-M", |s| s.evict = false);
    sets("--pages huge", |s| s.pages = Pages::Huge);
    sets("--pages small -L", |s| s.pages = Pages::Auto);
    sets("-L --pages small", |s| s.pages = Pages::Small);
    sets("--temperature hitmap-published", |s| s.temperature = kind("hitmap-published"));
    sets("--temperature hitmap --device cuda", |s| {
        s.temperature = kind("hitmap");
        s.device.choose("cuda:0").expect("a device");
    });
    sets("--temperature hitmap --device cuda:3 --device-managed-memory", |s| {
        s.temperature = kind("hitmap");
        s.device.choose("cuda:3").expect("a device");
        s.device.set_managed_memory(true);
    });
    sets("--temperature hitmap --device cuda --device-batch 4096", |s| {
        s.temperature = kind("hitmap");
        s.device.choose("cuda:0").expect("a device");
        s.device.set_batch_references(4096).expect("a number in range");
    });
    sets("--worth static --objective requests", |s| {
        (s.worth.mode, s.worth.objective) = (WorthMode::Static, Objective::Requests);
    });
    sets("-k", |s| s.lock_memory = true);
    sets("--prefault", |s| s.prefault = true);
    sets("--keep /dev/shm/larder", |s| s.keep = Some("/dev/shm/larder".into()));
    sets("-e /dev/shm/larder", |s| s.keep = Some("/dev/shm/larder".into()));
    sets("--column-bytes 64k", |s| s.column_bytes = Some(65536));
    sets("--placement column", |s| s.placement = Placement::Column);
    sets("--hashpower 20", |s| s.hashpower = Some(20));
    sets("--compress off", |s| s.compress = Compress::Off);
    sets("--compress a --compress b,c", |s| {
        s.compress = Compress::Only(["a", "b", "c"].map(String::from).into())
    });
    refuses("--compress auto,a", "expected auto alone, off alone, or names with a comma between");
    for word in ["on", "true", "AUTO", "none", "Off"] {
        refuses(&format!("--compress {word}"), "expected auto alone, off alone, or names");
    }
    refuses("--compress a,", "names with a comma between");
    refuses("--compress a/b -D /", "--compress: `a/b` has the delimiter `/` in it");
    sets("-c 5 -t 2 -R 3", |s| (s.connections_max, s.threads, s.requests_per_event) = (5, 2, 3));
    sets("--maxconns-fast=false --idle-timeout 60", |s| (s.maxconns_fast, s.idle_timeout_s) = (false, 60));
    sets("--address-conn-limit 7", |s| s.connections_per_address_max = 7);
    sets("--numa on", |s| s.numa = true);
    sets("--pin-cpus 0,2-4", |s| s.pin_cpus = PinCpus::List(vec![0, 2, 3, 4]));
}

/// A device of flash with this path and size.
fn on(path: &str, size_bytes: Option<u64>) -> FlashDevice {
    FlashDevice::Path { path: path.into(), size_bytes }
}

#[test]
fn flags_of_flash() {
    sets("--flash /a:1g --flash /b", |s| s.flash.devices = vec![on("/a", Some(1 << 30)), on("/b", None)]);
    sets("--flash /dev/nvme0n1", |s| s.flash.devices = vec![on("/dev/nvme0n1", None)]);
    sets("--flash /tmp/f:10g --flash-memory 64 --flash-recover best-effort", |s| {
        s.flash.devices = vec![on("/tmp/f", Some(10 << 30))];
        (s.flash.memory_bytes, s.flash.recover) = (Some(64 << 20), Recover::BestEffort);
    });
    sets("--flash f --flash-write-budget 1t --flash-admit reject-first=60 --flash-admit read", |s| {
        s.flash.devices = vec![on("f", None)];
        s.flash.write_budget_bytes = Some(1 << 40);
        s.flash.admit = Admit { reject_first_s: 60, only_read: true };
    });
}

#[test]
fn the_flags_of_flash_are_few() {
    let names: Vec<&str> =
        table::flags().filter(|flag| flag.topic == Topic::Flash).map(|flag| flag.name).collect();
    assert_eq!(names, ["flash", "flash-memory", "flash-recover", "flash-admit", "flash-write-budget"]);
}

#[test]
fn a_flag_that_became_a_key_is_refused_with_the_key() {
    for key in table::tuning() {
        let says = format!(
            "--flash-{name} is no flag any more: write {name} = VALUE below [flash.tuning] in the settings file",
            name = key.key()
        );
        refuses(&format!("--flash /x --flash-{} {}", key.key(), key.example), &says);
        refuses(&format!("--flash /x --flash-{}={}", key.key(), key.example), &says);
    }
    refuses("--flash /x --flash-keep 50", "write fill = VALUE below [flash.tuning]");
    refuses("--flash /x --flash-reclaim quick", "the zone with the most garbage is freed");
    refuses("--inline-value-bytes 64", "values above 1 KiB stand apart from their keys: leave it out");
    refuses("--flash /x --flash-ops heuristic", "how many zones are held erased: leave it out");
    refuses("--flash /x --flash-format", "the command 'larder format-flash' erases a device");
}

#[test]
fn the_command_that_formats_takes_the_flags_of_a_server() {
    let words = ["larder", "format-flash", "--flash", "/tmp/f:64m", "-m", "32"];
    let Ok(Action::FormatFlash(found)) = run(&words) else { panic!("{words:?}") };
    assert_eq!(Ok(*found), settings("--flash /tmp/f:64m -m 32"));
    let error = run(&["larder", "format-flash"]).unwrap_err().to_string();
    assert!(error.contains("there is no flash to be erased"), "{error}");
    for words in [&["larder", "format-flash", "--help"][..], &["larder", "help", "format-flash"]] {
        assert!(printed(words).starts_with("usage: larder format-flash"));
    }
}

#[test]
fn every_key_of_the_tuning_is_documented() {
    let manual = include_str!("../../docs/flash.md");
    for key in table::tuning() {
        let (name, mut found) = (key.key(), Settings::default());
        apply(&format!("[flash.tuning]\n{name} = \"{}\"\n", key.example), &mut found);
        assert_eq!(key.text(&found), key.example, "{name}");
        let row = manual.lines().find(|line| line.starts_with(&format!("| `{name}` |")));
        let row = row.unwrap_or_else(|| panic!("docs/flash.md has no row of {name}"));
        assert!(row.contains(&format!("`{}`", key.figure)), "docs/flash.md, {name}: {}", key.figure);
    }
}

#[test]
fn each_line_of_the_sample_file_can_be_used() {
    let text = printed(&["larder", "check-config", "--sample"]);
    apply(&text, &mut Settings::default());
    let (mut section, mut found) = ("", 0);
    for line in text.lines() {
        match line.strip_prefix('#') {
            None if line.starts_with('[') => section = line,
            Some(setting) if setting.contains(" = ") && !setting.starts_with([' ', '#']) => {
                apply(&format!("{section}\n{setting}\n"), &mut Settings::default());
                found += 1;
            }
            _ => assert!(line.is_empty() || line.starts_with("# ") || line.starts_with("## "), "{line}"),
        }
    }
    let known =
        table::settings().filter(|row| row.topic != Topic::Compatibility && row.topic != Topic::Section);
    assert_eq!(found, known.filter(|row| row.topic != Topic::Refused).count());
}

#[test]
fn the_settings_file_has_a_section_for_flash() {
    let text = "[flash]\npath = \"/x:10g\"\nmemory = 64\nadmit = [\"read\", \"reject-first=9\"]\n\n\
                [flash.tuning]\nfill = 70\ngenerations = false\nzone = \"4MB\"\n";
    let mut found = Settings::default();
    apply(text, &mut found);
    let mut wanted = settings("--flash /x:10g --flash-memory 64 --flash-admit read,reject-first=9").unwrap();
    (wanted.flash.fill_percent, wanted.flash.generations) = (70, false);
    wanted.flash.zone_bytes = Some(4 << 20);
    assert_eq!(found, wanted);
    let mut dotted = Settings::default();
    apply("flash.tuning.depth = 8\nflash.path = \"/x\"\n", &mut dotted);
    assert_eq!((dotted.flash.depth, dotted.flash.devices), (8, vec![on("/x", None)]));
}

#[test]
fn flags_of_the_protocol() {
    sets("-B ascii", |s| s.protocol = Protocol::Ascii);
    sets("-B auto", |_| {});
    sets("-C -F -X -W -A", |s| {
        (s.cas_enabled, s.flush_enabled, s.dump_enabled, s.watch_enabled) = (false, false, false, false);
        s.shutdown_enabled = true;
    });
    sets("-Y /tmp/users", |s| s.auth_file = Some("/tmp/users".into()));
    sets("-Y /tmp/users --user-namespaces ada=shop,bob=shop", |s| {
        s.auth_file = Some("/tmp/users".into());
        let of = |user: &str| UserNamespace { user: user.to_owned(), namespace: "shop".to_owned() };
        s.user_namespaces = vec![of("ada"), of("bob")];
    });
    refuses("-Y /tmp/users --user-namespaces ada", "expected USER=NAME");
    refuses("-Y /tmp/users -D - --user-namespaces ada=my-shop", "without '-'");
    refuses("-Y /tmp/users --user-namespaces ada=a,ada=b", "two namespaces");
    sets("-D -", |s| (s.prefix_delimiter, s.detail_enabled) = (b'-', true));
}

#[test]
fn flags_of_the_process() {
    sets("-d -P /tmp/p -u nobody -r", |s| {
        (s.daemonize, s.core_dumps) = (true, true);
        (s.pidfile, s.user) = (Some("/tmp/p".into()), Some("nobody".to_owned()));
    });
    sets("-v", |s| s.verbosity = 1);
    sets("-vvC", |s| (s.verbosity, s.cas_enabled) = (2, false));
    sets("-v -v --verbose -vv", |s| s.verbosity = 3);
    sets("--verbose=1", |s| s.verbosity = 1);
    sets("--log-format json", |s| s.log_format = LogFormat::Json);
}

#[test]
fn the_last_of_two_wins_and_long_names_may_be_cut() {
    sets("-t 2 --threads=3", |s| s.threads = 3);
    sets("-C --disable-cas=false", |_| {});
    sets("--conn 5 --memory-l 100", |s| (s.connections_max, s.memory_bytes) = (5, 100 * MIB));
}

#[test]
fn extended_options_are_flags_or_change_nothing() {
    sets("-o hashpower=20,idle_timeout=5 -o no_maxconns_fast,track_sizes", |s| {
        (s.hashpower, s.idle_timeout_s, s.maxconns_fast, s.track_sizes) = (Some(20), 5, false, true);
    });
    sets("-o slab_automove=1,modern,ext_threads=2 -f 1.1 -n 96", |s| {
        let option = |name: &str, value: Option<&str>| WithoutEffect {
            name: name.to_owned(),
            value: value.map(str::to_owned),
        };
        s.without_effect = vec![
            option("slab_automove", Some("1")),
            option("modern", None),
            option("ext_threads", Some("2")),
            option("slab-growth-factor", Some("1.1")),
            option("slab-min-size", Some("96")),
        ];
    });
    sets("-o ext_path=/tmp/x:1G,modern,ext_path=/tmp/y", |s| {
        s.flash.devices = vec![on("/tmp/x", Some(1 << 30)), on("/tmp/y", None)];
        s.without_effect = vec![WithoutEffect { name: "modern".to_owned(), value: None }];
    });
    sets("-o ext_path=/tmp/x:1G", |s| s.flash.devices = vec![on("/tmp/x", Some(1 << 30))]);
    refuses("-o slab_automov", "there is no option 'slab_automov'; the nearest is 'slab_automove'");
    refuses("-o idle_timeout", "idle_timeout needs a value");
    refuses("-o hashpower=5", "hashpower: expected a whole number from 12 to 32");
    refuses("-o no_hashpower", "there is no option");
}

#[test]
fn every_bad_value_is_one_line_that_says_what_to_do() {
    refuses("-c 0", "bad value '0' for -c (--conn-limit): expected a whole number from 1 to");
    refuses("-t 0", "bad value '0' for -t (--threads): expected a whole number from 1 to 1024");
    refuses("-I 1000", "bad value '1000' for -I (--max-item-size): expected a size from 1k to 1g");
    refuses("-I 2g", "expected a size from 1k to 1g");
    refuses("-I 33m", "lower -I or raise -m");
    refuses("-m 64x", "expected a size from 8m to 32t");
    refuses("-m -1", "expected a size from 8m to 32t");
    refuses("-m 1 -I 5m", "lower -I or raise -m");
    refuses("-B http", "expected auto, ascii or binary");
    refuses("-l host:", "'host:' is no address");
    refuses("-l 127.0.0.1,", "'' is no address");
    refuses("-p 70000", "expected a port");
    refuses("-a 9", "octal");
    refuses("-R 0", "expected a whole number from 1");
    refuses("-f 1", "expected a number greater than 1");
    refuses("-n 0", "expected a whole number from 1");
    refuses("-b x", "expected a whole number from 1");
    refuses("-D ab", "expected one character");
    refuses("--backend epoll", "expected auto, ring or poll");
    refuses("--admin nowhere", "expected host:port");
    refuses("--column-bytes 96k", "expected a power of two");
    refuses("--pin-cpus 0 -t 2", "name one for each thread");
    refuses("--numa yes", "expected off or on");
    refuses("--numa on --keep /dev/shm/x", "the items in a file (--keep) stay where they are");
    refuses("--numa on --pages coloured", "lie on any NUMA node");
    refuses("--disable-cas=no", "expected true or false");
    refuses("--flash /x:12q", "bad value '/x:12q' for --flash: expected a size from 1m to 1024t");
    refuses("--flash-recover journal", "give --flash PATH:SIZE, or leave");
    refuses("--flash /x -M --flash-admit read", "with -M an item leaves memory only if flash takes it");
    refuses("--flash /x --flash-admit warm", "expected all, or read and reject-first=SECONDS");
    refuses("-S", "SASL (-S) needs users");
    refuses("-S -Y /x -B ascii", "leave -B out");
    refuses("-Y /x -U 7", "nobody can log in over UDP");
    refuses("-Z", "TLS (-Z) needs a certificate");
    refuses("-l notls:localhost", "turn TLS on with -Z");
    refuses("--memory-file /dev/shm/x", "--keep FILE, or -e FILE");
    refuses("-e /dev/shm/x --flash /x", "with flash (--flash) items outlive the process already");
    refuses("--keep /dev/shm/x --pages coloured", "leave --pages coloured out");
    refuses("--thread 3x", "bad value '3x' for -t");
    refuses("--treads 3", "there is no flag '--treads'; the nearest is '--threads'");
    refuses("-9", "there is no flag '-9'");
    refuses("-m", "--memory-limit needs a value, such as --memory-limit 4g");
    refuses("--config", "--config needs a value");
    refuses("word", "'word' is not understood: the server takes flags only");
    refuses("--config /no/such/file", "cannot read the settings file /no/such/file (--config)");
    refuses("--config /tmp --config /tmp", "may be given once only");
}

fn example(flag: &Row) -> String {
    match flag.takes {
        Takes::Nothing => (flag.default() != "true").to_string(),
        _ => flag.example.to_owned(),
    }
}

fn toml_of(flag: &Row) -> String {
    let example = example(flag);
    match flag.takes {
        Takes::Nothing | Takes::Count => format!("{} = {example}\n", flag.name),
        _ if example.parse::<f64>().is_ok() && !example.starts_with('0') => {
            format!("{} = {example}\n", flag.name)
        }
        Takes::Value(_) => format!("{} = \"{example}\"\n", flag.name),
        Takes::List(_) | Takes::Options(_) => {
            format!("{} = {:?}\n", flag.name, example.split(',').collect::<Vec<_>>())
        }
    }
}

#[test]
fn toml_says_what_a_flag_says() {
    for flag in table::flags().filter(|flag| flag.is_obeyed_flag()) {
        let mut by_flag = Settings::default();
        extended::set(flag, &mut by_flag, &example(flag)).unwrap();
        // -L alone asks for the default; it only reverts another choice of pages.
        assert!(by_flag != Settings::default() || flag.letter == Some('L'), "--{}", flag.name);
        let mut by_file = Settings::default();
        apply(&toml_of(flag), &mut by_file);
        assert_eq!(by_file, by_flag, "--{}", flag.name);

        // SASL needs users, who cannot log in over UDP, and so do namespaces of users.
        let needs_users = flag.letter == Some('S') || flag.name == "user-namespaces";
        let users = if needs_users { "-Y /tmp/x" } else { "" };
        // Memory is not kept where there is flash.
        let flash = if flag.name == "keep" { "" } else { "--flash /tmp/x" };
        // A device needs a hitmap, flags of flash need a flash device, and TLS a certificate.
        let words = format!(
            "--temperature hitmap {flash} {users} --tls-cert /tmp/x --{}={}",
            flag.name,
            example(flag)
        );
        let found = settings(&format!("{words} -t 4")).unwrap();
        if !["temperature", "flash", "tls-cert", "threads", "auth-file"].contains(&flag.name) {
            assert_eq!(flag.text(&found), flag.text(&by_flag), "--{}", flag.name);
        }
    }
}

/// A settings file that is removed at the end of the test.
pub(super) struct File(pub(super) PathBuf);

impl File {
    pub(super) fn new(name: &str, text: &str) -> File {
        let path = std::env::temp_dir().join(format!("larder-{}-{name}.toml", std::process::id()));
        std::fs::write(&path, text).unwrap();
        File(path)
    }

    fn flag(&self) -> String {
        format!("--config {}", self.0.display())
    }
}

impl Drop for File {
    fn drop(&mut self) {
        std::fs::remove_file(&self.0).unwrap();
    }
}

#[test]
fn a_flag_wins_over_the_file_and_the_file_over_the_default() {
    let file = File::new(
        "precedence",
        "threads = 2\nconn-limit = 1_000\ndisable-cas = true\nverbose = 3\nlisten = [\"127.0.0.1\", \"::1\"]\n",
    );
    let found = settings(&format!("{} -t 3 --disable-cas=false -v -l localhost", file.flag())).unwrap();
    assert_eq!(
        (found.threads, found.connections_max, found.cas_enabled, found.verbosity),
        (3, 1000, true, 1)
    );
    assert_eq!(
        found.addresses,
        [Address { host: "localhost".to_owned(), port: None, tls: ListenerTls::Default }]
    );
    let found = settings(&file.flag()).unwrap();
    assert_eq!((found.threads, found.cas_enabled, found.verbosity, found.addresses.len()), (2, false, 3, 2));
}

#[test]
fn a_mistake_in_the_file_is_named_with_its_line() {
    let says = |text: &str, says: &str| {
        let file = File::new("mistake", text);
        let error = settings(&file.flag()).expect_err(text);
        assert!(error.starts_with(&format!("{} {says}", file.0.display())), "{text}: {error}");
        assert!(!error.contains('\n'), "{error}");
    };
    says("# one\n\nthread = 2\n", "line 3: there is no setting 'thread'; the nearest is 'threads'");
    says("memory_limit = 2\n", "line 1: there is no setting 'memory_limit'; the nearest is 'memory-limit'");
    says(
        "port = 1\nthreads = 0\n",
        "line 2: bad value '0' for threads: expected a whole number from 1 to 1024",
    );
    says("disable-cas = \"yes\"\n", "line 1: disable-cas: expected true or false");
    says("\nthreads = [1]\n", "line 2: threads: expected a number or a text in quotes");
    says("[network]\nport = 1\n", "line 1: there is no setting 'network'");
    says("port = 1\nport = 2\n", "line 2: this is not TOML: duplicate key");
    says("port 1\n", "line 1: this is not TOML");
    says("flash-zone = \"4m\"\n", "line 1: 'flash-zone' is no setting any more: write zone = VALUE below");
    says("flash = \"/x\"\n\n[flash.tuning]\nzone = 1\n", "line 3: this is not TOML");
    says(
        "[flash]\npath = \"/x\"\nmemry = 1\n",
        "line 3: there is no setting 'memry' in [flash]; the nearest is",
    );
    says("[flash]\nzone = \"4m\"\n", "line 2: 'zone' is a key of [flash.tuning], not of [flash]");
    says(
        "[flash.tuning]\n\nzoen = 1\n",
        "line 3: there is no key 'zoen' in [flash.tuning]; the nearest is 'zone'",
    );
    says(
        "[flash.tuning]\ndepth = 0\n",
        "line 2: bad value '0' for depth: expected a whole number from 1 to 4096",
    );
    says("[flash.tuning]\nsave = [1]\n", "line 2: save: expected a number or a text in quotes");
    says(
        "[flash.tuning]\nzone = \"96x\"\n",
        "line 2: bad value '96x' for zone: expected a size from 64k to 16g",
    );
}

#[test]
fn the_short_help_is_what_wrappers_expect() {
    for words in [
        &["larder", "-h"][..],
        &["larder", "serve", "-h"],
        &["/opt/memcached", "--help"],
        &["memcached", "-h"],
    ] {
        let text = printed(words);
        assert_eq!(text.lines().next(), Some("memcached 1.6.45"));
        assert!(text.contains("--unix-socket"));
        for absent in ["ext_path", "proxy_config", "no_drop_privileges", "memory-file"] {
            assert!(!text.contains(absent), "{absent}");
        }
    }
}

#[test]
fn the_long_help_has_every_flag_and_fits_a_terminal() {
    let text = printed(&["larder", "serve", "--help"]);
    for flag in table::flags().filter(|flag| flag.is_obeyed_flag()) {
        assert!(text.contains(&format!("--{}", flag.name)), "{}", flag.name);
    }
    for key in table::tuning() {
        assert!(text.contains(&format!("\n      {} ", key.key())), "{}", key.name);
    }
    let format = printed(&["larder", "format-flash", "--help"]);
    for line in format.lines().chain(text.lines()).chain(printed(&["larder", "--help"]).lines()) {
        assert!(line.len() <= 100, "{line}");
    }
}

#[test]
fn the_overview_names_every_command() {
    let text = printed(&["larder", "--help"]);
    for command in
        COMMANDS.iter().chain(&["serve", "check-config", "format-flash", "health", "man", "completions"])
    {
        assert!(text.contains(&format!(" larder {command} ")), "{command}");
    }
    for command in ["man", "completions"] {
        for words in [["larder", command, "--help"], ["larder", "help", command]] {
            assert!(printed(&words).starts_with(&format!("usage: larder {command} ")), "{words:?}");
        }
    }
}

#[test]
fn man_pages_have_examples_and_name_signals_and_files() {
    let folder = std::env::temp_dir().join(format!("larder-man-{}", std::process::id()));
    std::fs::create_dir(&folder).unwrap();
    assert_eq!(printed(&["larder", "man", folder.to_str().unwrap()]), "");
    let page = |name: &str| std::fs::read_to_string(folder.join(name)).unwrap();
    for command in ["serve", "check-config", "trace-inspect", "plan", "top"] {
        let text = page(&format!("larder-{command}.1"));
        let line = format!(
            ".SH EXAMPLES\n.TP\n\\&larder {}",
            command.replace("trace-", "trace ").replace('-', "\\-")
        );
        assert!(text.contains(&line) && text.contains("larder(1)"), "{text}");
    }
    for section in ["FILES", "SIGNALS", "\"SEE ALSO\""] {
        assert_eq!(page("larder-serve.1").matches(&format!(".SH {section}\n")).count(), 1, "{section}");
    }
    std::fs::remove_dir_all(&folder).unwrap();
}

#[test]
fn a_memcached_command_line_starts_a_server() {
    for words in [
        &["larder", "-p", "5", "-m", "100"][..],
        &["/usr/bin/memcached", "-p5", "-m", "100"],
        &["larder", "serve", "--port", "5", "--memory-limit=100"],
    ] {
        let Ok(Action::Serve(found)) = run(words) else { panic!("{words:?}") };
        assert_eq!((found.tcp_port, found.memory_bytes), (Port::Fixed(5), 100 * MIB));
    }
    assert!(matches!(run(&["memcached"]), Ok(Action::Serve(_))));
    assert_eq!(printed(&["memcached", "-V"]), "memcached 1.6.45\n");
    assert!(printed(&["larder", "--version"]).starts_with("larder "));
    assert!(printed(&["larder", "-i"]).contains("MIT"));
}

#[test]
fn an_unknown_command_is_met_with_the_nearest() {
    let says = |words: &[&str], says: &str| {
        let error = run(words).unwrap_err().to_string();
        assert!(error.contains(says), "{error}");
    };
    says(&["larder", "server"], "there is no command 'server'; the nearest is 'serve'");
    says(&["larder", "hlep"], "the nearest is 'help'");
    says(&["larder"], "'larder serve' starts a server");
}
