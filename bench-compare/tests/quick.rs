//! Small comparisons of the empty server with memcached: what is measured, kept and shown, not how fast anything is.

use std::path::PathBuf;
use std::process::{Command, Output};

fn run(arguments: &[&str]) -> Output {
    Command::new(env!("CARGO_BIN_EXE_larder-bench-compare")).args(arguments).output().expect("it starts")
}

fn on_path(name: &str) -> bool {
    let folders = std::env::var_os("PATH").unwrap_or_default();
    std::env::split_paths(&folders).any(|folder| folder.join(name).is_file())
}

/// The first two cores that this test may use; twice the same core on a machine with one.
fn two_cores() -> (String, String) {
    let status = std::fs::read_to_string("/proc/self/status").expect("/proc is there");
    let list =
        status.lines().find_map(|line| line.strip_prefix("Cpus_allowed_list:")).expect("a list").trim();
    let mut cores = list.split(',').flat_map(|part| {
        let (first, last) = part.split_once('-').unwrap_or((part, part));
        let number = |text: &str| text.parse::<usize>().expect("a core number");
        number(first)..=number(last)
    });
    let first = cores.next().expect("a core");
    let second = cores.next().unwrap_or(first);
    (first.to_string(), second.to_string())
}

/// Runs a comparison without pins. Returns the document that it writes to a file of that name, and what it prints.
fn compared(name: &str, arguments: &[&str]) -> (serde_json::Value, String) {
    let json = PathBuf::from(env!("CARGO_TARGET_TMPDIR")).join(name);
    let pins = ["--server-cores", "none", "--client-cores", "none", "--json"];
    let output = run(&[arguments, &pins, &[json.to_str().expect("UTF-8")]].concat());
    let text = String::from_utf8_lossy(&output.stdout).into_owned();
    assert!(output.status.success(), "{text}\n{}", String::from_utf8_lossy(&output.stderr));
    let document = std::fs::read_to_string(&json).expect("the JSON file");
    (serde_json::from_str(&document).expect("JSON"), text)
}

/// One load of each kind: all is there, all is there but some was evicted, and what is there is counted.
const LOADS: [&str; 3] = ["get-32", "pressure-10", "hit-ratio-64mb"];

#[test]
fn empty_and_memcached_are_compared() {
    if !on_path("memcached") {
        println!("skipped: memcached is not on PATH");
        return;
    }
    let json = PathBuf::from(env!("CARGO_TARGET_TMPDIR")).join("quick.json");
    let (server, client) = two_cores();
    let arguments = [
        "--quick",
        "--seconds",
        "0.15",
        "--warmup",
        "0.05",
        "--scale",
        "0.01",
        "--only",
        "empty,memcached",
        "--load",
        LOADS[0],
        "--load",
        LOADS[1],
        "--load",
        LOADS[2],
        "--json",
    ];
    let pins = ["--server-cores", &server, "--client-cores", &client];
    let output = run(&[&arguments[..], &[json.to_str().expect("UTF-8")], &pins[..]].concat());
    let text = String::from_utf8_lossy(&output.stdout);
    assert!(output.status.success(), "{text}\n{}", String::from_utf8_lossy(&output.stderr));

    let document = std::fs::read_to_string(&json).expect("the JSON file");
    let document: serde_json::Value = serde_json::from_str(&document).expect("JSON");
    assert!(document["servers"]["memcached"]["version"].as_str().is_some_and(|v| v.contains("memcached")));
    let loads = document["loads"].as_array().expect("loads");
    assert_eq!(loads.len(), LOADS.len());
    for load in loads {
        let name = load["load"].as_str().expect("a name");
        assert!(text.contains(&format!("## {name}:")), "{name} is not in {text}");
        for row in load["rows"].as_array().expect("rows") {
            assert!(row["failed"].is_null(), "{name}: {row}");
            let round = &row["rounds"][0];
            let number = |field: &str| round[field].as_f64().expect("a number");
            assert!(number("requests") > 0.0 && number("server_us_per_request") > 0.0, "{name}: {row}");
            assert!(name != LOADS[0] || number("misses") == 0.0, "{name}: {row}");
            if row["server"] == "memcached" && load["rows"].as_array().is_some_and(|rows| rows.len() == 2) {
                assert!(row["ratios"]["empty"].as_f64().expect("a ratio") > 0.0, "{name}: {row}");
            }
        }
    }
    let pressure = loads.iter().find(|load| load["load"] == "pressure-10").expect("the load");
    let round = &pressure["rows"][0]["rounds"][0];
    assert!(round["misses"].as_u64() > Some(0) && round["pressure"]["cost"].as_f64() > Some(0.0), "{round}");
    let hit_ratio = loads.iter().find(|load| load["load"] == "hit-ratio-64mb").expect("the load");
    let ratio = hit_ratio["rows"][0]["median"]["hit_ratio"].as_f64().expect("a ratio");
    assert!((0.5..0.95).contains(&ratio), "{ratio}");
}

#[test]
fn a_trial_runs_only_when_it_is_named() {
    if !on_path("memcached") {
        println!("skipped: memcached is not on PATH");
        return;
    }
    let arguments = ["--load", "kept", "--scale", "0.125", "--only", "memcached"];
    let (document, text) = compared("kept.json", &arguments);
    let figures = &document["loads"][0]["rows"][0]["rounds"][0]["trial"]["figures"];
    let left = figures[1]["value"].as_f64().expect("new ones left");
    // All were stored last, and they fit; memcached may have evicted a few where slabs are coarse.
    assert!((4_000.0..=8_750.0).contains(&left), "{figures}");
    assert!(text.contains("| kept % of the living |"), "{text}");
}

#[test]
fn values_of_a_kind_are_stored_and_read_back() {
    if !on_path("memcached") {
        println!("skipped: memcached is not on PATH");
        return;
    }
    let loads = ["dense", "dense-sets", "dense-fits"];
    let load = loads.join(",");
    let small = ["--quick", "--scale", "0.125", "--items", "60000", "--only", "memcached"];
    let (document, text) =
        compared("dense.json", &[&small[..], &["--values", "mix", "--load", &load]].concat());
    for (name, load) in loads.iter().zip(document["loads"].as_array().expect("loads")) {
        let round = &load["rows"][0]["rounds"][0];
        let number = |field: &str| round[field].as_u64().expect("a number");
        let held = |field: &str| round["held"][field].as_u64().expect("a number");
        assert_eq!((load["load"].as_str(), load["values"].as_str()), (Some(*name), Some("mix")));
        assert!(number("requests") > 0 && number("refused") == 0 && held("items") > 1_000, "{name}: {round}");
        match *name {
            "dense" => assert!(number("hits") > 0 && number("misses") > 0, "{round}"),
            "dense-sets" => assert!(number("stored") == 60_000 && held("evictions") > 0, "{round}"),
            _ => assert!(number("hits") > 0 && number("misses") == 0 && held("items") == 60_000, "{round}"),
        }
    }
    assert!(text.contains("the hit ratio "), "{text}");
}

#[test]
fn servers_die_with_the_comparison() {
    // A load that would take a minute.
    let mut child = Command::new(env!("CARGO_BIN_EXE_larder-bench-compare"))
        .args(["--only", "empty", "--load", "get-32-d1", "--scale", "0.01", "--seconds", "60"])
        .args(["--server-cores", "none", "--client-cores", "none"])
        .stdout(std::process::Stdio::null())
        .spawn()
        .expect("it starts");
    let own = |parent: u32| {
        let stat = |pid: &str| std::fs::read_to_string(format!("/proc/{pid}/stat")).unwrap_or_default();
        let entries = std::fs::read_dir("/proc").expect("/proc is there").flatten();
        let pids = entries.filter_map(|entry| entry.file_name().into_string().ok());
        let parent = parent.to_string();
        pids.filter(|pid| pid.bytes().all(|byte| byte.is_ascii_digit())).find(|pid| {
            stat(pid).rsplit_once(')').and_then(|(_, rest)| rest.split(' ').nth(2)) == Some(&parent)
        })
    };
    let wait_for = |done: &dyn Fn() -> bool| {
        (0..2400).any(|_| {
            std::thread::sleep(std::time::Duration::from_millis(25));
            done()
        })
    };
    let started = wait_for(&|| own(child.id()).is_some());
    let server = own(child.id());
    child.kill().expect("it is killed");
    child.wait().expect("it ends");
    assert!(started, "no server was started");
    let server = server.expect("a server");
    let gone = || !std::fs::read(format!("/proc/{server}/cmdline")).is_ok_and(|line| !line.is_empty());
    assert!(wait_for(&gone), "the server outlived its parent");
}

#[test]
fn mistakes_are_told_in_one_line() {
    for (arguments, wanted) in [
        (&["--load", "nonsense"][..], "there is no load `nonsense`"),
        (&["--only", "nonsense"][..], "which is none of the servers"),
        (&["--peer", "nonsense"][..], "want name=path[:args]"),
        (&["--value-bytes", "9"][..], "both 150 to 2000 bytes"),
        (&["--scale", "0"][..], "--scale must be"),
        (&["--server-cores", "999", "--only", "empty"][..], "core 999 is not ours to use"),
    ] {
        let output = run(arguments);
        let error = String::from_utf8_lossy(&output.stderr);
        assert!(!output.status.success() && error.contains(wanted), "{arguments:?}: {error}");
    }
}
