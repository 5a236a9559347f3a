//! The table of all flags of the server. A row gives the names of the flag, its help with unit and default, the rule
//! for its value, and the setting it sets. The command line, the settings file, memcached's `-o` list, both helps and
//! the tests are made from this table; a new flag is one more row.

use larder_server::settings::{
    Backend, KeyFormat, LogFormat, Objective, Pages, Placement, Protocol, Recover, Settings, Temperature,
    TlsVersion, VerifyMode, WorthMode,
};

use super::compatible;
use super::error::nearest;
use super::values::{
    address, admin, admit, bytes, cpus, flash_devices, host_name, namespaces, one_of, path, port, switch,
    user_namespaces, whole,
};

/// One flag.
pub(crate) struct Flag {
    /// memcached's letter, if it has one.
    pub(crate) short: Option<char>,
    /// The long name, which is also the key in the settings file.
    pub(crate) long: &'static str,
    /// The name in memcached's `-o` list, if any.
    pub(crate) option: Option<&'static str>,
    /// The value that follows the flag.
    pub(crate) takes: Takes,
    /// The section of the help.
    pub(crate) topic: Topic,
    /// One sentence for the help, with the unit.
    pub(crate) help: &'static str,
    /// The default as it would be written; empty if there is none.
    pub(crate) default: &'static str,
    /// A valid value that differs from the default, for errors and tests; empty for a switch.
    pub(crate) example: &'static str,
    /// Checks a value and sets it. A switch gets `true` or `false`, a counter the number of times it was given. The
    /// error describes a valid value.
    pub(crate) set: fn(&mut Settings, &str) -> Result<(), String>,
}

/// The value that follows a flag.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Takes {
    /// Nothing, or `=true` or `=false`.
    Nothing,
    /// Nothing, or `=N`. The number of times the flag is given counts.
    Count,
    /// One value with this name in the help.
    Value(&'static str),
    /// Values separated by commas; the flag may be repeated.
    List(&'static str),
}

/// The sections of the help, in their order.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Topic {
    Network,
    Memory,
    Flash,
    Limits,
    Protocol,
    Tls,
    Process,
    Watching,
    Compatibility,
    /// Known only so that the error can explain why the flag is not supported; in no help.
    Refused,
}

/// A row with all optional fields at their defaults.
const ROW: Flag = Flag {
    short: None,
    long: "",
    option: None,
    takes: Takes::Nothing,
    topic: Topic::Network,
    help: "",
    default: "",
    example: "",
    set: |_, _| Ok(()),
};

/// The flag with this long name.
pub(crate) fn by_long_name(name: &str) -> Option<&'static Flag> {
    FLAGS.iter().find(|flag| flag.long == name)
}

/// The flag with this name in memcached's `-o` list.
pub(crate) fn by_option_name(name: &str) -> Option<&'static Flag> {
    FLAGS.iter().find(|flag| flag.option == Some(name))
}

/// The table.
#[rustfmt::skip] // A row reads as a card: one line for each thing it says.
pub(crate) static FLAGS: &[Flag] = &[
    // ---- network ----
    Flag {
        short: Some('p'), long: "port", takes: Takes::Value("NUM"), topic: Topic::Network,
        help: "TCP port to listen on; 0 turns TCP off, -1 picks any free port; if it is not given, the UDP port (-U), \
               where there is one",
        default: "11211", example: "-1",
        set: |s, v| { s.tcp_port = port(v)?; Ok(()) }, ..ROW
    },
    Flag {
        short: Some('U'), long: "udp-port", takes: Takes::Value("NUM"), topic: Topic::Network,
        help: "UDP port to listen on; 0 turns UDP off, -1 picks any free port; without -l, UDP is for this machine \
               only",
        default: "0", example: "11311",
        set: |s, v| { s.udp_port = port(v)?; Ok(()) }, ..ROW
    },
    Flag {
        long: "resp-port", takes: Takes::Value("NUM"), topic: Topic::Network,
        help: "TCP port on which every connection speaks RESP, the protocol of Redis; 0 turns it off, -1 picks any \
               free port; on the TCP port (-p), a connection speaks RESP if its first byte is *",
        default: "0", example: "6379",
        set: |s, v| { s.resp_port = port(v)?; Ok(()) }, ..ROW
    },
    Flag {
        long: "udp-reply-limit", takes: Takes::Value("NUM"), topic: Topic::Network,
        help: "bytes of replies that one address gets over UDP in a second, or with a suffix k, m or g; 0 is no limit; \
               further requests are dropped, because the address may be forged; addresses of this machine have no \
               limit",
        default: "1m", example: "10m",
        set: |s, v| { s.udp_reply_bytes_per_s = bytes(v, 1, 0, 1 << 40)?; Ok(()) }, ..ROW
    },
    Flag {
        short: Some('l'), long: "listen", takes: Takes::List("ADDR"), topic: Topic::Network,
        help: "addresses to listen on, separated by commas, each as host, host:port or [v6]:port; without them, TCP \
               has all addresses of the machine, and UDP the loopback addresses; notls:, btls: or mtls: before an \
               address says how it is encrypted, see -Z",
        example: "127.0.0.1:11300,[::1]:11301,localhost",
        set: |s, v| { s.addresses = v.split([',', ';']).map(address).collect::<Result<_, _>>()?; Ok(()) }, ..ROW
    },
    Flag {
        short: Some('s'), long: "unix-socket", takes: Takes::Value("FILE"), topic: Topic::Network,
        help: "path of a UNIX socket to listen on instead of the ports of -p and -U",
        example: "/tmp/larder.sock",
        set: |s, v| { s.unix_socket = Some(path(v)?); Ok(()) }, ..ROW
    },
    Flag {
        short: Some('a'), long: "unix-mask", takes: Takes::Value("MODE"), topic: Topic::Network,
        help: "permission bits of the UNIX socket (-s), in octal",
        default: "700", example: "0755",
        set: |s, v| {
            s.unix_mask = u32::from_str_radix(v, 8).ok().filter(|mode| *mode <= 0o777)
                .ok_or("expected permission bits in octal, 0 to 777")?;
            Ok(())
        }, ..ROW
    },
    Flag {
        short: Some('b'), long: "listen-backlog", takes: Takes::Value("NUM"), topic: Topic::Network,
        help: "maximum number of connections that wait to be accepted, per listener",
        default: "1024", example: "77",
        set: |s, v| { s.backlog = whole(v, 1, 1 << 30)?; Ok(()) }, ..ROW
    },
    Flag {
        long: "backend", takes: Takes::Value("NAME"), topic: Topic::Network,
        help: "how workers wait for the network: ring (io_uring), poll (epoll), or auto, which takes the ring where \
               the kernel allows it",
        default: "auto", example: "poll",
        set: |s, v| {
            s.backend = one_of(v, &[("auto", Backend::Auto), ("ring", Backend::Ring), ("poll", Backend::Poll)])?;
            Ok(())
        }, ..ROW
    },
    Flag {
        long: "admin", takes: Takes::Value("ADDR"), topic: Topic::Network,
        help: "address of the admin page and of the metrics, as host:port (port 0 picks any free port), or off; if the \
               default address is in use, the server starts without the page",
        default: "127.0.0.1:11219", example: "127.0.0.1:0",
        set: |s, v| { s.admin = admin(v)?; Ok(()) }, ..ROW
    },
    Flag {
        long: "admin-host", takes: Takes::List("NAME"), topic: Topic::Network,
        help: "names by which the admin page may be asked for, separated by commas, beside its address, localhost and \
               the name of the machine; requests by other names are refused, because a web page could send them",
        example: "cache-1.example.com,cache.example.com",
        set: |s, v| { s.admin_hosts = v.split(',').map(host_name).collect::<Result<_, _>>()?; Ok(()) }, ..ROW
    },

    // ---- memory ----
    Flag {
        short: Some('m'), long: "memory-limit", takes: Takes::Value("NUM"), topic: Topic::Memory,
        help: "memory for items, index and buffers together, in MiB, or with a suffix k, m, g or t; less than 8m \
               becomes 8m",
        default: "64", example: "4g",
        set: compatible::memory_limit, ..ROW
    },
    Flag {
        short: Some('I'), long: "max-item-size", takes: Takes::Value("NUM"), topic: Topic::Memory,
        help: "maximum size of an item in bytes, or with a suffix k, m or g; from 1k to 1g, and at most half of the \
               memory",
        default: "1m", example: "2m",
        set: |s, v| { s.item_bytes_max = bytes(v, 1, 1 << 10, 1 << 30)? as u32; Ok(()) }, ..ROW
    },
    Flag {
        short: Some('M'), long: "disable-evictions", topic: Topic::Memory,
        help: "answer \"out of memory\" when memory is full, instead of evicting items",
        set: |s, v| { s.evict = !switch(v)?; Ok(()) }, ..ROW
    },
    Flag {
        long: "pages", takes: Takes::Value("NAME"), topic: Topic::Memory,
        help: "kind of memory pages for items: huge (2 MiB, reserved by the system), transparent (huge where the \
               kernel finds room), small (4 KiB), coloured (4 KiB, sorted by CPU cache set), or auto, which takes the \
               best available",
        default: "auto", example: "coloured",
        set: |s, v| {
            s.pages = one_of(v, &[("auto", Pages::Auto), ("huge", Pages::Huge), ("transparent", Pages::Transparent),
                ("small", Pages::Small), ("coloured", Pages::Coloured)])?;
            Ok(())
        }, ..ROW
    },
    Flag {
        long: "temperature", takes: Takes::Value("NAME"), topic: Topic::Memory,
        help: "how eviction tells hot items from cold ones: entry (two bits per item in the index), hitmap or \
               hitmap-published (bit maps fed by a log of all accesses), or off (first in, first out)",
        default: "entry", example: "hitmap",
        set: |s, v| {
            s.temperature = one_of(v, &Temperature::ALL.map(|kind| (kind.name(), kind)))?;
            Ok(())
        }, ..ROW
    },
    Flag {
        long: "worth", takes: Takes::Value("NAME"), topic: Topic::Memory,
        help: "what decides which items stay, beside temperature: penalty (what a miss costs, as --objective counts \
               it, for each byte), hits (every miss costs the same) or static (nothing else); the command worth mode \
               NAME changes it while the server runs",
        default: "penalty", example: "hits",
        set: |s, v| {
            s.worth.mode = one_of(v, &WorthMode::ALL.map(|mode| (mode.name(), mode)))?;
            Ok(())
        }, ..ROW
    },
    Flag {
        long: "objective", takes: Takes::Value("NAME"), topic: Topic::Memory,
        help: "what --worth penalty saves: time (that clients wait for the back end), requests (misses) or bytes \
               (fetched from the back end); the command worth objective NAME changes it while the server runs",
        default: "time", example: "bytes",
        set: |s, v| {
            s.worth.objective = one_of(v, &Objective::ALL.map(|objective| (objective.name(), objective)))?;
            Ok(())
        }, ..ROW
    },
    Flag {
        long: "namespaces", takes: Takes::List("NAME=LEAST-MOST[/SECONDS]"), topic: Topic::Memory,
        help: "tenants, separated by commas, whose keys begin with NAME and the delimiter (-D, else :): the least and \
               the most of the memory for items that each has while memory is short, in percent, and the longest time \
               to live of its items; stats namespaces shows what they have, stats mrc NAME what one would miss with \
               more memory or less",
        example: "session=20-50/3600,page=0-40",
        set: |s, v| { s.namespaces = namespaces(v)?; Ok(()) }, ..ROW
    },
    Flag {
        long: "user-namespaces", takes: Takes::List("USER=NAME"), topic: Topic::Memory,
        help: "users of the file of -Y, separated by commas, each with the NAME of a namespace (--namespaces): NAME \
               and the delimiter are put before each of the user's keys, and taken off again in what the user is shown",
        example: "alice=session,bob=page",
        set: |s, v| { s.user_namespaces = user_namespaces(v)?; Ok(()) }, ..ROW
    },
    Flag {
        long: "device", takes: Takes::Value("NAME"), topic: Topic::Memory,
        help: "device that works on a hitmap: cpu, cuda, or cuda:N for GPU number N; the CPU takes over if there is no \
               GPU or if it fails",
        default: "cpu", example: "cuda:1",
        set: |s, v| { s.device.choose(v) }, ..ROW
    },
    Flag {
        long: "device-managed-memory", topic: Topic::Memory,
        help: "keep a hitmap on a GPU (--device cuda) in managed memory, which may exceed the memory of the GPU but is \
               slower",
        set: |s, v| { s.device.set_managed_memory(switch(v)?); Ok(()) }, ..ROW
    },
    Flag {
        short: Some('L'), long: "enable-largepages", topic: Topic::Memory,
        help: "use large pages where the machine has them; the same as --pages auto",
        set: |s, v| { if switch(v)? { s.pages = Pages::Auto; } Ok(()) }, ..ROW
    },
    Flag {
        short: Some('k'), long: "lock-memory", topic: Topic::Memory,
        help: "lock memory into RAM as it is used, so that it is never swapped out",
        set: |s, v| { s.lock_memory = switch(v)?; Ok(()) }, ..ROW
    },
    Flag {
        long: "prefault", topic: Topic::Memory,
        help: "take all memory for items from the system at start instead of when it is first used: the first write to \
               a page then costs no more than later ones",
        set: |s, v| { s.prefault = switch(v)?; Ok(()) }, ..ROW
    },
    Flag {
        short: Some('e'), long: "keep", takes: Takes::Value("FILE"), topic: Topic::Memory,
        help: "keep the items in a file on a tmpfs, such as /dev/shm, or on a hugetlbfs, so that the server has them \
               again when it is started anew, after a stop and after a crash of the process alike; not with --flash",
        example: "/dev/shm/larder",
        set: |s, v| { s.keep = Some(path(v)?); Ok(()) }, ..ROW
    },
    Flag {
        long: "column-bytes", takes: Takes::Value("NUM"), topic: Topic::Memory,
        help: "size of a column, the unit in which memory is filled and reclaimed: a power of two from 32k to 1m; \
               derived from the CPU cache if not given",
        example: "64k",
        set: |s, v| {
            let column_bytes = bytes(v, 1, 32 << 10, 1 << 20)?;
            if !column_bytes.is_power_of_two() {
                return Err("expected a power of two: 32k, 64k, 128k, 256k, 512k or 1m".to_owned());
            }
            s.column_bytes = Some(column_bytes as u32);
            Ok(())
        }, ..ROW
    },
    Flag {
        long: "placement", takes: Takes::Value("NAME"), topic: Topic::Memory,
        help: "where items stand that are moved: column (hot items in columns of their own, also while there is room) \
               or off (items stay where they were stored until their column is reclaimed)",
        default: "column", example: "off",
        set: |s, v| {
            s.placement = one_of(v, &Placement::ALL.map(|placement| (placement.name(), placement)))?;
            Ok(())
        }, ..ROW
    },
    Flag {
        long: "hashpower", option: Some("hashpower"), takes: Takes::Value("NUM"), topic: Topic::Memory,
        help: "initial size of the index as a power of two, 12 to 32: 22 means 4 million items; the index begins \
               small and grows by itself if not given",
        example: "22",
        set: |s, v| { s.hashpower = Some(whole(v, 12, 32)?); Ok(()) }, ..ROW
    },

    // ---- flash ----
    Flag {
        long: "flash", option: Some("ext_path"), takes: Takes::List("PATH[:SIZE]"), topic: Topic::Flash,
        help: "keep evicted items on flash: a file, a block device or a zoned block device, and the size to use \
               (suffix k, m, g or t; the whole device if not given); a new file needs a size; given several times, \
               items are spread over all these devices; sim:PROFILE:SIZE is a simulated drive in memory, to try \
               without a device, and PROFILE is ftl, ftl-28, zoned or open-channel",
        example: "/var/cache/larder.flash:10g",
        set: |s, v| { s.flash.devices = flash_devices(v)?; Ok(()) }, ..ROW
    },
    Flag {
        long: "flash-memory", takes: Takes::Value("NUM"), topic: Topic::Flash,
        help: "memory for the buffers, tables and filters of flash, in addition to -m, in MiB or with a suffix k, m, g \
               or t; a 64th of the flash size, and at least 16m, if not given",
        example: "256m",
        set: |s, v| { s.flash.memory_bytes = Some(bytes(v, 1 << 20, 64 << 10, 1 << 45)?); Ok(()) }, ..ROW
    },
    Flag {
        long: "flash-recover", takes: Takes::Value("NAME"), topic: Topic::Flash,
        help: "what a crash leaves on flash: clean (nothing), journal (everything written; a delete or overwrite is \
               answered once it is durable) or best-effort (like journal without that wait, so old values may come \
               back); a normal stop keeps everything",
        default: "clean", example: "journal",
        set: |s, v| {
            s.flash.recover = one_of(v, &[("clean", Recover::Clean), ("journal", Recover::Journal),
                ("best-effort", Recover::BestEffort)])?;
            Ok(())
        }, ..ROW
    },
    Flag {
        long: "flash-admit", takes: Takes::List("WHAT"), topic: Topic::Flash,
        help: "evicted items that are written to flash: all, or one or both of read (only items that were read) and \
               reject-first=SECONDS (only keys that were also evicted within the last SECONDS), separated by a comma",
        default: "all", example: "read,reject-first=600",
        set: |s, v| { s.flash.admit = admit(v)?; Ok(()) }, ..ROW
    },
    Flag {
        long: "flash-write-budget", takes: Takes::Value("NUM"), topic: Topic::Flash,
        help: "maximum bytes of items written to flash per day, spread evenly over the day; the items go that save \
               most per byte (see --worth); a suffix k, m, g or t multiplies; 0 is no limit",
        default: "0", example: "500g",
        set: |s, v| {
            s.flash.write_budget_bytes = Some(bytes(v, 1, 0, 1 << 60)?).filter(|bytes| *bytes > 0);
            Ok(())
        }, ..ROW
    },

    // ---- limits ----
    Flag {
        short: Some('c'), long: "conn-limit", takes: Takes::Value("NUM"), topic: Topic::Limits,
        help: "maximum number of client connections at the same time",
        default: "1024", example: "10000",
        set: |s, v| { s.connections_max = whole(v, 1, 1 << 30)?; Ok(()) }, ..ROW
    },
    Flag {
        long: "maxconns-fast", option: Some("maxconns_fast"), topic: Topic::Limits,
        help: "answer a connection beyond the limit (-c) with an error and close it; with =false it waits until \
               another one closes",
        default: "true",
        set: |s, v| { s.maxconns_fast = switch(v)?; Ok(()) }, ..ROW
    },
    Flag {
        long: "address-conn-limit", takes: Takes::Value("NUM"), topic: Topic::Limits,
        help: "maximum number of TCP connections from one address at the same time, where an IPv6 address stands for \
               its network of 64 bits; one beyond is answered with an error and closed; 0 is no limit",
        default: "0", example: "100",
        set: |s, v| { s.connections_per_address_max = whole(v, 0, 1 << 30)?; Ok(()) }, ..ROW
    },
    Flag {
        long: "read-buf-mem-limit", option: Some("read_buf_mem_limit"), takes: Takes::Value("NUM"),
        topic: Topic::Limits,
        help: "the part of the memory (-m) that input and output of all connections may take together, in MiB, or with \
               a suffix k, m or g; a sixteenth, and at least 4m, if not given; never less than the workers need, and \
               never more than a quarter",
        example: "32m",
        set: |s, v| { s.buffers_bytes = Some(bytes(v, 1 << 20, 1 << 20, 1 << 40)?); Ok(()) }, ..ROW
    },
    Flag {
        long: "idle-timeout", option: Some("idle_timeout"), takes: Takes::Value("SECONDS"), topic: Topic::Limits,
        help: "close a connection after this many seconds without a request; 0 is never",
        default: "0", example: "300",
        set: |s, v| { s.idle_timeout_s = whole(v, 0, i32::MAX as u32)?; Ok(()) }, ..ROW
    },
    Flag {
        short: Some('t'), long: "threads", takes: Takes::Value("NUM"), topic: Topic::Limits,
        help: "number of worker threads",
        default: "4", example: "2",
        set: |s, v| { s.threads = whole(v, 1, 1024)?; Ok(()) }, ..ROW
    },
    Flag {
        long: "pin-cpus", takes: Takes::List("CPUS"), topic: Topic::Limits,
        help: "bind each worker to its own CPU: off, auto, or a list with one CPU per worker, such as 0-3,8",
        default: "off", example: "0-3,8",
        set: |s, v| { s.pin_cpus = cpus(v)?; Ok(()) }, ..ROW
    },
    Flag {
        long: "numa", takes: Takes::Value("NAME"), topic: Topic::Limits,
        help: "bind the workers to the machine's NUMA nodes in turn (on), and let each store items in memory of its \
               node while there is some; on a machine with one node this changes nothing; not with --keep",
        default: "off", example: "on",
        set: |s, v| { s.numa = one_of(v, &[("off", false), ("on", true)])?; Ok(()) }, ..ROW
    },
    Flag {
        short: Some('R'), long: "max-reqs-per-event", takes: Takes::Value("NUM"), topic: Topic::Limits,
        help: "maximum number of requests answered on one connection before the worker turns to the next one",
        default: "20", example: "100",
        set: |s, v| { s.requests_per_event = whole(v, 1, i32::MAX as u32)?; Ok(()) }, ..ROW
    },

    // ---- protocol ----
    Flag {
        short: Some('B'), long: "protocol", takes: Takes::Value("NAME"), topic: Topic::Protocol,
        help: "protocol of the connections: ascii (memcached's text and meta commands), binary (memcached's binary \
               protocol), or auto, which tells them apart by the first byte of a connection",
        default: "auto", example: "ascii",
        set: |s, v| { s.protocol = compatible::protocol(v)?; Ok(()) }, ..ROW
    },
    Flag {
        short: Some('C'), long: "disable-cas", topic: Topic::Protocol,
        help: "do not use CAS numbers: answers contain none, and no compare-and-swap succeeds",
        set: |s, v| { s.cas_enabled = !switch(v)?; Ok(()) }, ..ROW
    },
    Flag {
        short: Some('F'), long: "disable-flush-all", topic: Topic::Protocol,
        help: "refuse the commands flush_all, FLUSHALL and FLUSHDB",
        set: |s, v| { s.flush_enabled = !switch(v)?; Ok(()) }, ..ROW
    },
    Flag {
        short: Some('X'), long: "disable-dumping", topic: Topic::Protocol,
        help: "refuse what lists keys: stats cachedump, lru_crawler metadump and mgdump, KEYS and SCAN",
        set: |s, v| { s.dump_enabled = !switch(v)?; Ok(()) }, ..ROW
    },
    Flag {
        short: Some('W'), long: "disable-watch", topic: Topic::Protocol,
        help: "refuse the watch command, which streams a log to the client",
        set: |s, v| { s.watch_enabled = !switch(v)?; Ok(()) }, ..ROW
    },
    Flag {
        short: Some('A'), long: "enable-shutdown", topic: Topic::Protocol,
        help: "allow clients to stop the server with the shutdown command",
        set: |s, v| { s.shutdown_enabled = switch(v)?; Ok(()) }, ..ROW
    },
    Flag {
        long: "enable-debugtime", topic: Topic::Protocol,
        help: "allow clients to move the clock of the server with the command debugtime, for test suites: everything \
               may expire at once, for every client",
        set: |s, v| { s.debugtime_enabled = switch(v)?; Ok(()) }, ..ROW
    },
    Flag {
        short: Some('Y'), long: "auth-file", takes: Takes::Value("FILE"), topic: Topic::Protocol,
        help: "require a user name and password on every connection, whatever its protocol; the file has one \
               user:password per line, or readonly user:password for a user who may only read; #DIGEST instead of the \
               password is its SHA-256 digest; read again on SIGHUP",
        example: "/tmp/larder.auth",
        set: |s, v| { s.auth_file = Some(path(v)?); Ok(()) }, ..ROW
    },
    Flag {
        short: Some('S'), long: "enable-sasl", topic: Topic::Protocol,
        help: "require a login by SASL PLAIN on every connection, and serve the binary protocol only; the users are in \
               the file of -Y, or in the file that the environment variable MEMCACHED_SASL_PWDB names",
        set: |s, v| {
            s.sasl = switch(v)?;
            if s.sasl { s.protocol = Protocol::Binary; }
            Ok(())
        }, ..ROW
    },
    Flag {
        short: Some('D'), long: "prefix-delimiter", takes: Takes::Value("CHAR"), topic: Topic::Protocol,
        help: "character that ends the prefix of a key in stats detail; giving it also turns that counting on",
        default: ":", example: "/",
        set: |s, v| {
            let [delimiter] = v.as_bytes() else { return Err("expected one character, such as : or /".to_owned()) };
            s.prefix_delimiter = *delimiter;
            s.detail_enabled = true;
            Ok(())
        }, ..ROW
    },
    Flag {
        long: "track-sizes", option: Some("track_sizes"), topic: Topic::Protocol,
        help: "count item sizes for the command stats sizes",
        set: |s, v| { s.track_sizes = switch(v)?; Ok(()) }, ..ROW
    },

    // ---- encryption ----
    Flag {
        short: Some('Z'), long: "enable-ssl", topic: Topic::Tls,
        help: "encrypt TCP connections (TLS); an address of -l that begins with notls: is not encrypted, with btls: it \
               is without client certificates, and with mtls: every client needs a certificate",
        set: |s, v| { s.tls.enabled = switch(v)?; Ok(()) }, ..ROW
    },
    Flag {
        long: "tls-cert", option: Some("ssl_chain_cert"), takes: Takes::Value("FILE"), topic: Topic::Tls,
        help: "PEM file with the certificate of the server, and the certificates between it and its authority; read \
               again on SIGHUP and by the command refresh_certs",
        example: "/etc/larder/server.pem",
        set: |s, v| { s.tls.chain_cert = Some(path(v)?); Ok(()) }, ..ROW
    },
    Flag {
        long: "tls-key", option: Some("ssl_key"), takes: Takes::Value("FILE"), topic: Topic::Tls,
        help: "file with the private key; it is looked for in --tls-cert if not given",
        example: "/etc/larder/server.key",
        set: |s, v| { s.tls.key = Some(path(v)?); Ok(()) }, ..ROW
    },
    Flag {
        long: "tls-key-format", option: Some("ssl_keyformat"), takes: Takes::Value("NAME"), topic: Topic::Tls,
        help: "format of the private key: pem (text) or der (bytes)",
        default: "pem", example: "der",
        set: |s, v| {
            let (pem, der) = (KeyFormat::Pem, KeyFormat::Der);
            let formats = [("pem", pem), ("der", der), ("1", pem), ("2", der)];
            s.tls.key_format = one_of(&v.to_ascii_lowercase(), &formats)?;
            Ok(())
        }, ..ROW
    },
    Flag {
        long: "tls-verify", option: Some("ssl_verify_mode"), takes: Takes::Value("NAME"), topic: Topic::Tls,
        help: "whether clients show certificates: none (0), request (1, one that is shown must be valid), require (2) \
               or once (3, the same as require)",
        default: "none", example: "require",
        set: |s, v| {
            s.tls.verify = one_of(v, &[("none", VerifyMode::None), ("request", VerifyMode::Request),
                ("require", VerifyMode::Require), ("once", VerifyMode::Once), ("0", VerifyMode::None),
                ("1", VerifyMode::Request), ("2", VerifyMode::Require), ("3", VerifyMode::Once)])?;
            Ok(())
        }, ..ROW
    },
    Flag {
        long: "tls-ca", option: Some("ssl_ca_cert"), takes: Takes::Value("FILE"), topic: Topic::Tls,
        help: "PEM file with the authorities whose client certificates are accepted",
        example: "/etc/larder/clients-ca.pem",
        set: |s, v| { s.tls.ca_cert = Some(path(v)?); Ok(()) }, ..ROW
    },
    Flag {
        long: "tls-ciphers", option: Some("ssl_ciphers"), takes: Takes::Value("NAMES"), topic: Topic::Tls,
        help: "cipher suites that may be used, separated by colons, by the names of OpenSSL or of the standards; a \
               list without a suite of TLS 1.3 allows all suites of TLS 1.3",
        example: "ECDHE-ECDSA-AES128-GCM-SHA256:TLS_AES_128_GCM_SHA256",
        set: |s, v| {
            s.tls.ciphers = v.split(':').map(|name| name.trim().to_owned()).filter(|name| !name.is_empty()).collect();
            Ok(())
        }, ..ROW
    },
    Flag {
        long: "tls-min-version", option: Some("ssl_min_version"), takes: Takes::Value("NAME"), topic: Topic::Tls,
        help: "oldest version that is spoken: 1.2 or 1.3 (for memcached also 2 or 3; 0 and 1 mean versions that are \
               too old, and 1.2 is the oldest then)",
        default: "1.2", example: "1.3",
        set: |s, v| {
            let (old, new) = (TlsVersion::V1_2, TlsVersion::V1_3);
            s.tls.min_version = one_of(v, &[("1.2", old), ("1.3", new), ("tlsv1.2", old), ("tlsv1.3", new), ("0", old),
                ("1", old), ("2", old), ("3", new)])?;
            Ok(())
        }, ..ROW
    },
    Flag {
        long: "tls-kernel", option: Some("ssl_kernel_tls"), topic: Topic::Tls,
        help: "let the kernel encrypt where it can (Linux with the module tls); the server encrypts where it cannot",
        set: |s, v| { s.tls.kernel = switch(v)?; Ok(()) }, ..ROW
    },
    Flag {
        long: "tls-session-cache", option: Some("ssl_session_cache"), topic: Topic::Tls,
        help: "show in stats how many sessions began anew; clients can always resume sessions, with tickets that take \
               no memory here",
        set: |s, v| { s.tls.session_cache = switch(v)?; Ok(()) }, ..ROW
    },
    Flag {
        long: "tls-write-buffer", option: Some("ssl_wbuf_size"), takes: Takes::Value("KIB"),
        topic: Topic::Compatibility,
        help: "accepted and ignored: buffers for encrypted output have the size that they need",
        default: "16", example: "64",
        set: |s, v| { s.tls.write_buffer_kib = whole(v, 1, 1 << 20)?; Ok(()) }, ..ROW
    },

    // ---- process ----
    Flag {
        short: Some('d'), long: "daemon", topic: Topic::Process,
        help: "run in the background; the command returns once the server answers, or with an error if it could not \
               start",
        set: |s, v| { s.daemonize = switch(v)?; Ok(()) }, ..ROW
    },
    Flag {
        short: Some('P'), long: "pidfile", takes: Takes::Value("FILE"), topic: Topic::Process,
        help: "file that holds the process id while the server runs",
        example: "/tmp/larder.pid",
        set: |s, v| { s.pidfile = Some(path(v)?); Ok(()) }, ..ROW
    },
    Flag {
        short: Some('u'), long: "user", takes: Takes::Value("USER"), topic: Topic::Process,
        help: "user to run as when started as root, by name or number; without it the server stays root",
        example: "nobody",
        set: |s, v| {
            if v.is_empty() {
                return Err("expected the name or number of a user".to_owned());
            }
            s.user = Some(v.to_owned());
            Ok(())
        }, ..ROW
    },
    Flag {
        short: Some('r'), long: "enable-coredumps", topic: Topic::Process,
        help: "raise the size limit of core files to the maximum that the system allows",
        set: |s, v| { s.core_dumps = switch(v)?; Ok(()) }, ..ROW
    },

    // ---- watching ----
    Flag {
        short: Some('v'), long: "verbose", takes: Takes::Count, topic: Topic::Watching,
        help: "log events to stderr; -vv also requests and answers, -vvv also internal steps",
        example: "2",
        set: |s, v| { s.verbosity = whole(v, 0, 255)?.min(3) as u8; Ok(()) }, ..ROW
    },
    Flag {
        long: "log-format", takes: Takes::Value("NAME"), topic: Topic::Watching,
        help: "format of the log: compact (text for people) or json (one object per line)",
        default: "compact", example: "json",
        set: |s, v| {
            s.log_format = one_of(v, &[("compact", LogFormat::Compact), ("json", LogFormat::Json)])?;
            Ok(())
        }, ..ROW
    },

    // ---- compatibility ----
    Flag {
        short: Some('o'), long: "extended", takes: Takes::List("OPTIONS"), topic: Topic::Compatibility,
        help: "memcached's extended options, separated by commas: hashpower, idle_timeout, maxconns_fast, \
               read_buf_mem_limit and track_sizes set the flags of these names (no_ before a switch turns it off), and \
               the path of \
               memcached's flash storage sets --flash; other options of memcached are accepted and ignored",
        example: "hashpower=20,no_maxconns_fast,lru_crawler",
        set: extended, ..ROW
    },
    Flag {
        short: Some('f'), long: "slab-growth-factor", takes: Takes::Value("NUM"), topic: Topic::Compatibility,
        help: "accepted and ignored: Larder has no slab classes",
        example: "1.05",
        set: |s, v| {
            v.parse().ok().filter(|factor: &f64| *factor > 1.0 && factor.is_finite())
                .ok_or("expected a number greater than 1")?;
            compatible::without_effect(s, "slab-growth-factor", Some(v));
            Ok(())
        }, ..ROW
    },
    Flag {
        short: Some('n'), long: "slab-min-size", takes: Takes::Value("BYTES"), topic: Topic::Compatibility,
        help: "accepted and ignored: Larder has no slab classes",
        example: "96",
        set: |s, v| { whole(v, 1, 1 << 30)?; compatible::without_effect(s, "slab-min-size", Some(v)); Ok(()) }, ..ROW
    },
    Flag {
        short: Some('N'), long: "napi-ids", takes: Takes::Value("NUM"), topic: Topic::Compatibility,
        help: "accepted and ignored: a new connection goes to the worker with the fewest connections",
        example: "4",
        set: |s, v| { whole(v, 1, 1 << 30)?; compatible::without_effect(s, "napi-ids", Some(v)); Ok(()) }, ..ROW
    },

    // ---- refused ----
    Flag {
        long: "memory-file", takes: Takes::Value("FILE"), topic: Topic::Refused,
        example: "/tmp/memory",
        set: |_, _| {
            Err("the file that items are kept in over a restart is named with --keep FILE, or -e FILE".to_owned())
        }, ..ROW
    },
];

/// Applies memcached's `-o` list. An option that is also a flag sets what the flag sets.
fn extended(settings: &mut Settings, list: &str) -> Result<(), String> {
    for word in list.split(',').map(str::trim).filter(|word| !word.is_empty()) {
        let (name, value) = match word.split_once('=') {
            Some((name, value)) => (name, Some(value)),
            None => (word, None),
        };
        if let Some((flag, value)) = as_flag(name, value)? {
            // memcached takes several paths of its flash storage, each as an option of its own.
            let all = |word: &'_ str| word.trim().strip_prefix(name)?.strip_prefix('=').map(str::to_owned);
            let value = match flag.takes {
                Takes::List(_) => list.split(',').filter_map(all).collect::<Vec<_>>().join(","),
                _ => value.to_owned(),
            };
            (flag.set)(settings, &value).map_err(|expected| format!("{name}: {expected}"))?;
        } else if compatible::WITHOUT_EFFECT.contains(&name) {
            compatible::without_effect(settings, name, value);
        } else if let Some((_, why)) = compatible::REFUSED.iter().find(|(start, _)| name.starts_with(start)) {
            return Err(format!("{name}: {why}"));
        } else {
            let known = FLAGS.iter().filter_map(|flag| flag.option);
            let near = nearest(name, known.chain(compatible::WITHOUT_EFFECT.iter().copied()));
            return Err(format!("there is no option '{name}'; the nearest is '{near}'"));
        }
    }
    Ok(())
}

/// The flag that an option stands for, and the value that the option gives it. `no_` before a switch turns it off.
fn as_flag<'a>(name: &str, value: Option<&'a str>) -> Result<Option<(&'static Flag, &'a str)>, String> {
    if let Some(flag) = by_option_name(name) {
        return match (flag.takes, value) {
            (Takes::Nothing, None) => Ok(Some((flag, "true"))),
            (_, Some(value)) => Ok(Some((flag, value))),
            (_, None) => Err(format!("{name} needs a value: write {name}=NUM")),
        };
    }
    match name.strip_prefix("no_").and_then(by_option_name) {
        Some(flag) if flag.takes == Takes::Nothing && value.is_none() => Ok(Some((flag, "false"))),
        _ => Ok(None),
    }
}
