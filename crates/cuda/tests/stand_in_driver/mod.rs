//! The stand-in for the CUDA driver: building it, running a test with it, ordering its failures.

use std::ffi::{CString, c_char, c_longlong};
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::OnceLock;
use std::time::Duration;

use libloading::Library;

const IN_CHILD: &str = "LARDER_TEST_IN_CHILD";
/// A test takes seconds.
const CHILD_LIFE_MAX: Duration = Duration::from_secs(120);

/// Compiles C++ into a library `libcuda.so.1` in a folder of this name, and returns the folder.
fn compile(folder: &str, source: &Path) -> PathBuf {
    let crate_root = Path::new(env!("CARGO_MANIFEST_DIR"));
    let folder = Path::new(env!("CARGO_TARGET_TMPDIR")).join(folder);
    std::fs::create_dir_all(&folder).unwrap();
    // Another run of the tests may be doing the same; a rename makes each library whole.
    let made = folder.join(format!("made.{}", std::process::id()));
    let compiler = ["c++", "g++", "clang++"].into_iter().find(|compiler| {
        Command::new(compiler).arg("--version").output().is_ok_and(|output| output.status.success())
    });
    let compiler = compiler.expect("these tests need a C++ compiler: none of c++, g++, clang++ is installed");
    let output = Command::new(compiler)
        .args(["-std=c++17", "-O2", "-Wall", "-Wextra", "-fPIC", "-shared", "-pthread", "-I"])
        .arg(crate_root.join("kernels"))
        .args(["-x", "c++"])
        .arg(source)
        .arg("-o")
        .arg(&made)
        .output()
        .unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    // Both names, so that a driver that this machine may have is not found before it.
    for name in ["libcuda.so", "libcuda.so.1"] {
        let link = folder.join(format!("{name}.{}", std::process::id()));
        std::fs::hard_link(&made, &link).unwrap();
        std::fs::rename(&link, folder.join(name)).unwrap();
    }
    std::fs::remove_file(made).unwrap();
    folder
}

/// The folder with the stand-in.
pub(crate) fn folder() -> &'static Path {
    static FOLDER: OnceLock<PathBuf> = OnceLock::new();
    FOLDER.get_or_init(|| {
        let source = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/stand_in_driver/driver.cpp");
        compile("stand_in_driver", &source)
    })
}

/// A folder with a library of the driver's name that has one function.
fn hollow_folder() -> PathBuf {
    let source = Path::new(env!("CARGO_TARGET_TMPDIR")).join(format!("hollow.{}.cpp", std::process::id()));
    std::fs::write(&source, "extern \"C\" int cuInit(unsigned) { return 0; }\n").unwrap();
    let folder = compile("hollow_driver", &source);
    std::fs::remove_file(source).unwrap();
    folder
}

/// What a test finds when it looks for a driver.
pub(crate) enum Driver {
    /// What the machine has: nothing, most likely.
    OfTheMachine,
    /// The stand-in.
    StandIn,
    /// A library of the right name that has only one of the functions.
    Hollow,
}

/// Runs the test of this name in a process of its own, where it finds this driver with these orders, and returns what
/// it wrote to stderr. In that process it returns none: there the test does its work.
pub(crate) fn in_child(test: &str, driver: Driver, orders: &str) -> Option<String> {
    if std::env::var_os(IN_CHILD).is_some() {
        std::thread::spawn(|| {
            std::thread::sleep(CHILD_LIFE_MAX);
            eprintln!("it hangs");
            std::process::abort();
        });
        tracing_subscriber::fmt().with_writer(std::io::stderr).with_ansi(false).init();
        return None;
    }
    let mut child = Command::new(std::env::current_exe().unwrap());
    child
        .args([test, "--exact", "--nocapture", "--test-threads=1"])
        .env(IN_CHILD, "1")
        .env("STAND_IN", orders);
    match driver {
        Driver::OfTheMachine => child.env_remove("LD_LIBRARY_PATH"),
        Driver::StandIn => child.env("LD_LIBRARY_PATH", folder()),
        Driver::Hollow => child.env("LD_LIBRARY_PATH", hollow_folder()),
    };
    let output = child.output().unwrap();
    let (out, err) = (String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr));
    assert!(output.status.success(), "{test} in its own process: {}\n{out}\n{err}", output.status);
    assert!(out.contains("1 passed"), "{test} is no test\n{out}");
    Some(err.into_owned())
}

/// The lines of a log that are warnings.
pub(crate) fn warnings(log: &str) -> Vec<&str> {
    log.lines().filter(|line| line.contains(" WARN ")).collect()
}

/// The stand-in that this process has for a driver.
pub(crate) struct StandIn {
    library: Library,
}

impl StandIn {
    pub(crate) fn find() -> StandIn {
        // SAFETY: the library that the crate loads too; its initializers do nothing.
        StandIn { library: unsafe { Library::new("libcuda.so.1") }.unwrap() }
    }

    /// Orders a failure: see `driver.cpp`.
    pub(crate) fn set(&self, order: &str, value: i64) {
        let order = CString::new(order).unwrap();
        // SAFETY: the function has this type.
        unsafe {
            let set = self
                .library
                .get::<unsafe extern "C" fn(*const c_char, c_longlong)>(b"stand_in_set\0")
                .unwrap();
            set(order.as_ptr(), value);
        }
    }

    fn number(&self, name: &str) -> i64 {
        // SAFETY: the functions that this is called with have this type.
        unsafe { self.library.get::<unsafe extern "C" fn() -> c_longlong>(name.as_bytes()).unwrap()() }
    }

    /// What was made or allocated and is still there.
    pub(crate) fn live(&self) -> i64 {
        self.number("stand_in_live")
    }

    /// The most memory of the device that was ever taken.
    pub(crate) fn device_bytes_max(&self) -> i64 {
        self.number("stand_in_device_bytes_max")
    }

    /// Kernels that were started.
    pub(crate) fn launches(&self) -> i64 {
        self.number("stand_in_launches")
    }
}
